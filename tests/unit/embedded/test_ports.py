"""Ports that embedded servers and the gateway of ``up`` get."""

from __future__ import annotations

import socket
import struct
import sys

import pytest

from threadfold.embedded.ports import HOST, ReservedPort, free_ports

LOCAL_PORT_RANGE = 51
"""IP_LOCAL_PORT_RANGE of Linux 6.3, which Python 3.11 does not name."""


def test_free_ports_are_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(1024 <= port <= 65535 for port in ports)


def serve_once(port: int) -> None:
    with (
        socket.create_server((HOST, port)) as server,
        socket.create_connection((HOST, port)),
        server.accept()[0],
    ):
        pass


def test_a_server_listens_on_a_reserved_port_and_again_after_a_restart() -> None:
    reserved = ReservedPort()
    try:
        serve_once(reserved.number)
        serve_once(reserved.number)
    finally:
        reserved.release()


def test_a_port_on_which_something_listens_cannot_be_reserved() -> None:
    with socket.create_server((HOST, 0)) as server, pytest.raises(OSError, match="in use"):
        ReservedPort(server.getsockname()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reserves ports")
def test_no_connection_of_another_program_gets_a_reserved_port() -> None:
    reserved = ReservedPort()
    with socket.create_server((HOST, 0)) as server:

        def connects() -> bool:
            with socket.socket() as other:
                only = struct.pack("=I", reserved.number << 16 | reserved.number)
                try:
                    other.setsockopt(socket.IPPROTO_IP, LOCAL_PORT_RANGE, only)
                except OSError:
                    pytest.skip("this kernel has no IP_LOCAL_PORT_RANGE")
                try:
                    other.connect(server.getsockname())
                except OSError:
                    return False
                return True

        assert not connects()
        reserved.release()
        assert connects()

"""When ``up`` says that it is ready, and what it says before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from streams.settings.settings import Settings
from threadfold.cli import fleet
from threadfold.cli.fleet import Fleet

READY = '{"status":"ready","generation":1,"partitions":4,"behind":%d%s}'


@contextmanager
def answering(*answers: tuple[int, str]) -> Iterator[str]:
    """The address of a gateway that answers so, one after the other, and with the last for good."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_up_is_ready_once_no_conversation_waits_and_says_meanwhile_which_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleet, "SAY_EVERY", 0.0)
    monkeypatch.setattr(fleet, "POLL", 0.0)
    waiting = READY % (7, ',"restoring":2')
    with answering((503, "{}"), (200, waiting), (200, READY % (3, ""))) as url:
        settings = Settings.load(env={}, gateway_url=url)
        Fleet(settings, tmp_path, workers=1).wait_ready(lambda: print("ready"))
    found = capsys.readouterr()
    starts, restores = found.err.splitlines()
    assert found.out == "ready\n"
    assert "not ready after 0 s: the services still start, or the workers still fold" in starts
    assert "for 2 conversations older events are still read from the log" in restores
    assert f"the others are served at {url}" in restores

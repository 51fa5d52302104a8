"""Certificates of a test's own authority, in PEM files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from contextlib import suppress
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """A certificate authority; ``ca`` is the file of its certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key, days=30)
        made = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def issue(
        self, name: str, days: int = 30, host: str = "127.0.0.1", rsa_bits: int = 0
    ) -> tuple[Path, Path]:
        """The files of a new certificate and of its key, for a server at ``host`` or a client.

        Args:
            rsa_bits: the size of an RSA key; 0: an EC key (P-256).
        """
        key: _Key = ec.generate_private_key(ec.SECP256R1())
        if rsa_bits:
            key = rsa.generate_private_key(65_537, rsa_bits)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        builder = self._builder(subject, key, days).add_extension(names, critical=False)
        certificate = self._folder / f"{name}.pem"
        private = self._folder / f"{name}.key"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, private

    def _builder(self, subject: x509.Name, key: _Key, days: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=60))
            .not_valid_after(now + datetime.timedelta(days=days))
        )


def trusting(authority: Authority) -> httpx.AsyncClient:
    """A client that trusts this authority alone."""
    trusted = ssl.create_default_context(cafile=str(authority.ca))
    return httpx.AsyncClient(verify=trusted, trust_env=False)


def unchecked() -> ssl.SSLContext:
    """A client's context that trusts everybody."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found


def first_message() -> bytes:
    """What a client sends to begin a handshake."""
    context, to_send = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), to_send, server_hostname="127.0.0.1")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return to_send.read()


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)

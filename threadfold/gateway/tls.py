"""TLS of the gateway: its certificate, which is read again when its files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from projections.errors import InvalidSettings
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
INTERVAL = 60.0
"""Seconds between two looks at the files."""


class Certificate:
    """The certificate chain and private key in two PEM files. ``context`` is what a new
    connection begins TLS with: TLS 1.2 and 1.3, no client certificates. A renewal replaces it.

    Raises:
        InvalidSettings: a file cannot be read, the two do not belong together, or the key has a
            password.
    """

    def __init__(self, certificate: Path, private_key: Path) -> None:
        self._certificate = certificate
        self._private_key = private_key
        self._times = self._modified()
        self.context = self._loaded()

    def renew(self) -> bool:
        """Read the files again if they changed: new connections get the new certificate. Returns
        whether they did.

        Raises:
            InvalidSettings: as at the start; the former certificate stays.
        """
        times = self._modified()
        if times == self._times:
            return False
        # Never into the former context: it holds one certificate for each type of key, so the
        # former one would stay beside a new one of another type.
        self.context = self._loaded()
        self._times = times
        return True

    async def keep_current(self, interval: float = INTERVAL) -> None:
        """Renew for ever; what cannot be read yet is logged and tried again."""
        while True:
            await asyncio.sleep(interval)
            try:
                if self.renew():
                    logger.info("the gateway's certificate was read again: its files changed")
            except InvalidSettings as error:
                logger.warning("the gateway keeps its former certificate: %s", error)

    def _modified(self) -> tuple[int, int]:
        try:
            return (
                self._certificate.stat().st_mtime_ns,
                self._private_key.stat().st_mtime_ns,
            )
        except OSError as error:
            raise InvalidSettings(
                f"the gateway's TLS: {error.filename} cannot be read: {error.strerror}"
            ) from None

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._private_key, _no_password)
        except OSError as error:  # ssl.SSLError is one
            reason = error.strerror or str(error)
            if isinstance(error, ssl.SSLError):
                reason = (error.reason or reason).replace("_", " ").lower()
            raise InvalidSettings(
                f"the gateway's TLS: gateway_certificate {self._certificate} and"
                f" gateway_private_key {self._private_key} do not load ({reason}): give PEM files"
                " of a certificate chain and of its own key"
            ) from None
        return context


def certificate_of(settings: Settings) -> Certificate | None:
    """The certificate that the settings name; None: the gateway speaks plain HTTP.

    Raises:
        InvalidSettings: it cannot be used.
    """
    if not settings.gateway_certificate:
        return None
    return Certificate(Path(settings.gateway_certificate), Path(settings.gateway_private_key))


def _no_password() -> str:
    # Without this, OpenSSL would ask at the terminal.
    raise InvalidSettings(
        "the gateway's TLS: gateway_private_key has a password: give a key without one, and let"
        " its file's permissions protect it"
    )

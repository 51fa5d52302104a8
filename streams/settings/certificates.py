"""The certificates that a service is configured with, and when each ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs

from cryptography import x509

from projections.errors import InvalidSettings
from streams.settings.settings import Settings

_SETTINGS = ("kafka_ca", "kafka_certificate", "gateway_certificate")
_REDIS = {"redis_ca": "ssl_ca_certs", "redis_certificate": "ssl_certfile"}


def certificate_files(settings: Settings) -> dict[str, Path]:
    """The files that have certificates, by the setting; those of Redis are in its URL's query."""
    query = parse_qs(settings.redis.partition("?")[2])
    named = {name: getattr(settings, name) for name in _SETTINGS}
    named |= {name: query.get(option, [""])[0] for name, option in _REDIS.items()}
    return {name: Path(path) for name, path in named.items() if path}


def certificate_ends(settings: Settings) -> dict[str, float]:
    """When the first certificate of each file ends, as a Unix time.

    Raises:
        InvalidSettings: a file cannot be read, or has no certificate.
    """
    return {name: _end_of(name, path) for name, path in certificate_files(settings).items()}


def known_ends(settings: Settings) -> Mapping[tuple[str, ...], float]:
    """The same as a metric has them; empty while a file cannot be read."""
    try:
        return {(name,): end for name, end in certificate_ends(settings).items()}
    except InvalidSettings:
        return {}


def _end_of(name: str, path: Path) -> float:
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it has no certificate that can be read"
        raise InvalidSettings(f"{name}: {path}: {reason}") from None
    return min(each.not_valid_after_utc.timestamp() for each in found)

"""How clients reach Kafka and log in: which settings go together.

| ``kafka_mechanism`` | needs |
|---|---|
| ``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512`` | ``kafka_user`` and ``kafka_password``; without them there is no login |
| ``OAUTHBEARER`` | ``kafka_token_file``, a file with the current token, or ``kafka_token_url``, where user and password get one (OAuth's client credentials) for ``kafka_token_scope`` |

``kafka_tls`` encrypts. ``kafka_ca`` is a file of certificates to trust (default: the system's);
``kafka_certificate`` and ``kafka_private_key`` are files of the client's own certificate, whose key
has no password. The broker's certificate must name the host that ``kafka`` names.
"""  # noqa: E501 - a table

from __future__ import annotations

import re

import msgspec

from projections.errors import InvalidSettings

OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)


class KafkaLogin(msgspec.Struct, frozen=True, kw_only=True):
    """The settings by which clients reach Kafka and log in."""

    kafka: str = ""
    kafka_user: str = ""
    kafka_password: str = ""
    kafka_mechanism: str = "PLAIN"
    kafka_token_file: str = ""
    kafka_token_url: str = ""
    kafka_token_scope: str = ""
    kafka_tls: bool = False
    kafka_ca: str = ""
    kafka_certificate: str = ""
    kafka_private_key: str = ""


def check_addresses(kafka: str) -> None:
    """Raise InvalidSettings where an address is not ``host:port``."""
    for address in kafka.split(","):
        scheme, named, _ = address.strip().partition("://")
        if named:
            raise InvalidSettings(
                f"THREADFOLD_KAFKA has {scheme[:20]}://…: give host:port without a scheme. TLS is"
                " the setting kafka_tls, the login kafka_mechanism, kafka_user and kafka_password"
            )
        port = re.fullmatch(r"\S+:([0-9]{1,5})", address.strip())
        if port is None or not 0 < int(port[1]) <= 65_535:
            raise InvalidSettings(
                f"THREADFOLD_KAFKA has {address.strip()[:60]!r}: it must be host:port (1 to 65535),"
                " several joined by commas"
            )


def check_kafka_login(settings: KafkaLogin) -> None:
    """Raise InvalidSettings where the settings of the login or of TLS do not go together."""
    mechanism = settings.kafka_mechanism
    if mechanism not in MECHANISMS:
        raise InvalidSettings(
            f"setting 'kafka_mechanism' is {mechanism[:60]!r}: it must be one of"
            f" {', '.join(MECHANISMS)}"
        )
    tokens = bool(settings.kafka_token_file) + bool(settings.kafka_token_url)
    if mechanism == OAUTHBEARER and tokens != 1:
        raise InvalidSettings(
            "kafka_mechanism OAUTHBEARER needs either kafka_token_file or kafka_token_url"
        )
    if mechanism != OAUTHBEARER and tokens:
        raise InvalidSettings(
            f"kafka_token_file and kafka_token_url belong to kafka_mechanism OAUTHBEARER: it is"
            f" {mechanism}"
        )
    needs_user = mechanism.startswith("SCRAM") or settings.kafka_token_url
    if needs_user and not settings.kafka_user:
        raise InvalidSettings(f"kafka_mechanism {mechanism} needs kafka_user and kafka_password")
    if settings.kafka_token_scope and not settings.kafka_token_url:
        raise InvalidSettings("setting 'kafka_token_scope' belongs to kafka_token_url")
    for name in ("kafka_ca", "kafka_certificate"):
        if getattr(settings, name) and not settings.kafka_tls:
            raise InvalidSettings(f"setting {name!r} needs kafka_tls = true")


def login_of(settings: KafkaLogin) -> str:
    """How clients log in, in words; empty where they do not."""
    tls = "over TLS" if settings.kafka_tls else "without TLS"
    if settings.kafka_mechanism == OAUTHBEARER:
        return f"by SASL/{OAUTHBEARER} {tls}"
    if settings.kafka_user:
        return f"as {settings.kafka_user} by SASL/{settings.kafka_mechanism} {tls}"
    if settings.kafka_certificate:
        return f"by a client certificate {tls}"
    return f"as nobody {tls}" if settings.kafka_tls else ""

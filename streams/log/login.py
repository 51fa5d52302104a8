"""How Kafka's clients connect and log in: the one place that turns settings into arguments of
clients, and says why a broker refuses them.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

import httpx
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    CorruptRecordException,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from projections.errors import InvalidSettings
from streams.settings.kafka_login import OAUTHBEARER, login_of
from streams.settings.settings import Settings

BEFORE_ITS_END = 30.0
"""Seconds before its end in which a token is not used any more."""
LONGEST_USE = 300.0
"""Seconds for which a token is used that does not say when it ends."""
ASK = 5.0
"""Seconds for one question of :func:`why_refused`."""


def connection(settings: Settings) -> dict[str, Any]:
    """Where the brokers are and how to log in, as arguments of any client of aiokafka; raises
    InvalidSettings where a file of TLS cannot be used.
    """
    return {"bootstrap_servers": settings.kafka, **_login(settings)}


def _login(settings: Settings) -> dict[str, Any]:
    bearer = settings.kafka_mechanism == OAUTHBEARER
    sasl = bool(settings.kafka_user) or bearer
    if not sasl and not settings.kafka_tls:
        return {}
    found: dict[str, Any] = {
        "security_protocol": ("SASL_" if sasl else "")
        + ("SSL" if settings.kafka_tls else "PLAINTEXT")
    }
    if settings.kafka_tls:
        found["ssl_context"] = tls_context(settings)
    if bearer:
        found |= {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": Tokens(settings)}
    elif sasl:
        found |= {
            "sasl_mechanism": settings.kafka_mechanism,
            "sasl_plain_username": settings.kafka_user,
            "sasl_plain_password": settings.kafka_password,
        }
    return found


def tls_context(settings: Settings) -> ssl.SSLContext:
    """What clients trust, and the certificate that they show.

    Raises:
        InvalidSettings: a file cannot be read, or is not what it should be.
    """
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ca or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(
            f"setting 'kafka_ca': {settings.kafka_ca} has no certificates that can be read:"
            f" {error.strerror or error}"
        ) from None
    if settings.kafka_certificate:
        try:
            # An empty password: a key that has one fails, and asks nobody.
            context.load_cert_chain(
                settings.kafka_certificate, settings.kafka_private_key, password=""
            )
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidSettings(
                "settings 'kafka_certificate' and 'kafka_private_key':"
                f" {settings.kafka_certificate} and {settings.kafka_private_key} cannot be used:"
                f" {reason}"
            ) from None
    return context


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """The bearer token of OAUTHBEARER: what is in a file now, or what an authorization server gives
    for client credentials (RFC 6749, 4.4), used until shortly before its end.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token = ""
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def token(self) -> str:
        """A token to log in with.

        Raises:
            KafkaError: there is none; the message says why.
        """
        if self._settings.kafka_token_file:
            try:
                path = Path(self._settings.kafka_token_file)
                return (await asyncio.to_thread(path.read_text)).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise KafkaError(f"kafka_token_file cannot be read: {error}") from None
        async with self._asking:
            if time.monotonic() >= self._until:
                await self._ask()
        return self._token

    async def _ask(self) -> None:
        settings = self._settings
        form = {"grant_type": "client_credentials"}
        if settings.kafka_token_scope:
            form["scope"] = settings.kafka_token_scope
        try:
            async with httpx.AsyncClient(timeout=ASK) as client:
                answer = await client.post(
                    settings.kafka_token_url,
                    data=form,
                    auth=(settings.kafka_user, settings.kafka_password),
                )
            answer.raise_for_status()
            found = answer.json()
            self._token = str(found["access_token"])
            use = float(found.get("expires_in", LONGEST_USE + BEFORE_ITS_END)) - BEFORE_ITS_END
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
            raise KafkaError(f"no token from kafka_token_url: {reason}") from None
        self._until = time.monotonic() + use


async def why_refused(settings: Settings, address: str) -> str | None:
    """Why a broker at ``host:port`` cannot be used with these settings, and what to do; None: it
    answers.
    """
    host, _, port = address.strip().rpartition(":")
    host = host.strip("[]")
    try:
        login = _login(settings)
        async with asyncio.timeout(ASK):
            made = await create_conn(host, int(port), request_timeout_ms=int(ASK * 1000), **login)
            try:
                # A broker that wants a login, or a certificate, answers nothing before.
                answer = await made.send(MetadataRequest([]))
            finally:
                made.close()
            if not answer.brokers:
                # What refuses a token answers the next request with something else.
                return f"it refuses the login {login_of(settings)}: check the token and its expiry"
    except ssl.SSLCertVerificationError as error:
        return (
            f"its certificate is refused ({error.verify_message}): name the authority that signed"
            " it in kafka_ca, and the broker by a name of its certificate"
        )
    except UnsupportedSaslMechanismError as error:
        return (
            f"it does not accept kafka_mechanism {settings.kafka_mechanism}: {_first_line(error)}"
        )
    except (AuthenticationFailedError, SaslAuthenticationFailed) as error:
        return f"it refuses the login {login_of(settings)}: {_first_line(error)}"
    except ConnectionRefusedError:
        return "nobody listens there: check that it runs, and the port"
    except (KafkaError, OSError, TimeoutError) as error:
        return await _why_closed(settings, host, int(port)) or (
            f"it does not answer ({_first_line(error) or type(error).__name__}): check that it runs"
        )
    return None


def remedy_of(error: Exception, settings: Settings) -> str:
    """What to do where Kafka fails with an error that says no more."""
    if isinstance(error, CorruptRecordException):
        return (
            "its files are damaged there: bring them back from a replica or a backup; the broker's"
            " log says which"
        )
    check = "check that it runs"
    if settings.kafka_user:
        check += ", and that it accepts kafka_user and kafka_password"
    if settings.kafka_tls:
        check += "; `threadfold doctor` says what is wrong with TLS"
    return check


async def _why_closed(settings: Settings, host: str, port: int) -> str | None:
    """Why a broker that listens ends the connection without a word, as far as can be seen."""
    context = tls_context(settings) if settings.kafka_tls else ssl.create_default_context()
    if not settings.kafka_tls:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    alert = ""
    try:
        async with asyncio.timeout(ASK / 2):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            encrypted = True
            try:
                # With TLS 1.3 a certificate is refused after the handshake.
                async with asyncio.timeout(ASK / 10):
                    await reader.read(1)
            except ssl.SSLError as error:
                alert = error.reason or ""
            except (OSError, TimeoutError):
                pass  # Nothing came: the certificate was not refused.
            finally:
                writer.close()
    except (OSError, TimeoutError):
        encrypted = False
    if encrypted != settings.kafka_tls:
        return (
            "it speaks TLS there: set kafka_tls = true (and kafka_ca)"
            if encrypted
            else "it does not speak TLS there: unset kafka_tls, or name its TLS port"
        )
    if "CERTIFICATE" in alert or "CA" in alert.split("_"):
        return (
            f"it refuses kafka_certificate ({alert})"
            if settings.kafka_certificate
            else "it wants a client certificate: set kafka_certificate and kafka_private_key"
        )
    if not settings.kafka_user and settings.kafka_mechanism != OAUTHBEARER:
        return (
            "it closes the connection: if it wants a login, set kafka_mechanism, kafka_user and"
            " kafka_password"
        )
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]

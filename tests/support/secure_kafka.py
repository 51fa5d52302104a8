"""A broker with TLS and every login that is supported: each of its listeners wants another one."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from streams.settings.settings import Settings
from tests.support.certificates import Authority
from tests.support.kafka_tools import tools_classpath
from tests.support.ports import own_port
from threadfold.embedded.java import find_java
from threadfold.embedded.kafka import EmbeddedKafka
from threadfold.embedded.ports import HOST

USER, PASSWORD = "ann", "correct horse"
PROTOCOLS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "PLAIN": "SASL_SSL",
    "SCRAM": "SASL_SSL",
    "BEARER": "SASL_SSL",
    "OPEN": "SASL_PLAINTEXT",
    "SHORT": "SASL_SSL",
}
"""``SHORT`` breaks each connection a second after its login."""
_MODULE = "org.apache.kafka.common.security"


class SecureKafka(EmbeddedKafka):
    """One broker with a listener for each way in, beside the open one of its own."""

    def __init__(self, data: Path, authority: Authority) -> None:
        super().__init__(data)
        self._authority = authority
        self.ports = {name: own_port() for name in PROTOCOLS}

    def properties(self, port: int, controller: int) -> dict[str, object]:
        found = super().properties(port, controller)
        places = ",".join(f"{name}://{HOST}:{at}" for name, at in self.ports.items())
        certificate, key = self._authority.issue("broker")
        both = self.data / "broker-chain.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items())
        mechanisms = {
            "plain": "PLAIN",
            "scram": "SCRAM-SHA-256,SCRAM-SHA-512",
            "bearer": "OAUTHBEARER",
            "open": "PLAIN",
            "short": "SCRAM-SHA-512",
        }
        found |= {
            "listeners": f"{found['listeners']},{places}",
            "advertised.listeners": f"{found['advertised.listeners']},{places}",
            "listener.security.protocol.map": (
                f"{found['listener.security.protocol.map']},{protocols}"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": both,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._authority.ca,
            "listener.name.mutual.ssl.client.auth": "required",
        }
        plain = f'{_MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        modules = {
            "plain": {"plain": plain},
            "open": {"plain": plain},
            "scram": dict.fromkeys(
                ("scram-sha-256", "scram-sha-512"), f"{_MODULE}.scram.ScramLoginModule required;"
            ),
            "short": {"scram-sha-512": f"{_MODULE}.scram.ScramLoginModule required;"},
            "bearer": {
                "oauthbearer": f"{_MODULE}.oauthbearer.OAuthBearerLoginModule required"
                ' unsecuredLoginStringClaim_sub="broker";'
            },
        }
        for name, enabled in mechanisms.items():
            found[f"listener.name.{name}.sasl.enabled.mechanisms"] = enabled
            for mechanism, login in modules[name].items():
                found[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = login
        found["listener.name.short.scram-sha-512.connections.max.reauth.ms"] = 1000
        return found


@dataclass
class Platform:
    """A broker, a Redis, and who signs."""

    kafka: SecureKafka
    redis: str
    authority: Authority
    folder: Path

    def settings(self, listener: str, **changes: object) -> Settings:
        values: dict[str, object] = {
            "kafka": f"{HOST}:{self.kafka.ports[listener]}",
            "redis": self.redis,
            "topic_prefix": f"secure-{listener.lower()}",
            "partitions": 1,
            "replication": 1,
            "min_isr": 1,
            "append_timeout": 5.0,
            **changes,
        }
        if PROTOCOLS[listener].endswith("SSL") and "kafka_tls" not in values:
            values |= {"kafka_tls": True, "kafka_ca": str(self.authority.ca)}
        return Settings.load({}, **values)

    def token(self, seconds: float = 600) -> str:
        """An unsigned token, as brokers take them that are told to."""
        now = time.time()
        parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + seconds})
        encoded = (base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in parts)
        return b".".join(encoded).decode() + "."


def alter_user(kafka: SecureKafka, user: str, *change: str) -> None:
    """Kafka's own tool: no client of Python's can. It takes one credential at a time."""
    java = [str(find_java().path), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", tools_classpath()]
    tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", kafka.address, "--alter"]
    what = ["--entity-type", "users", "--entity-name", user, *change]
    ran = subprocess.run(
        [*java, *tool, *what], check=False, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def set_password(kafka: SecureKafka, user: str, password: str, bits: int = 512) -> None:
    alter_user(kafka, user, "--add-config", f"SCRAM-SHA-{bits}=[password={password}]")


def ways(platform: Platform) -> dict[str, Settings]:
    certificate, key = platform.authority.issue("client")
    token = platform.folder / "token"
    token.write_text(platform.token() + "\n")
    who = {"kafka_user": USER, "kafka_password": PASSWORD}
    return {
        "TLS": platform.settings("TLS"),
        "client certificate": platform.settings(
            "MUTUAL", kafka_certificate=str(certificate), kafka_private_key=str(key)
        ),
        "PLAIN": platform.settings("PLAIN", **who),
        "PLAIN without TLS": platform.settings("OPEN", **who),
        "SCRAM-SHA-256": platform.settings("SCRAM", kafka_mechanism="SCRAM-SHA-256", **who),
        "SCRAM-SHA-512": platform.settings("SCRAM", kafka_mechanism="SCRAM-SHA-512", **who),
        "OAUTHBEARER": platform.settings(
            "BEARER", kafka_mechanism="OAUTHBEARER", kafka_token_file=str(token)
        ),
    }


WAYS = [
    "TLS",
    "client certificate",
    "PLAIN",
    "PLAIN without TLS",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "OAUTHBEARER",
]

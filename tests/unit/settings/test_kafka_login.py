"""Which settings of Kafka's login and of TLS go together, and secrets that stand in files."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from projections.errors import InvalidSettings
from streams.log.login import connection
from streams.settings.certificates import certificate_ends, known_ends
from streams.settings.settings import Settings
from tests.support.certificates import Authority

WHO = {"kafka_user": "ann", "kafka_password": "pw"}


def load(**values: object) -> Settings:
    return Settings.load({}, kafka="k:9092", **values)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, {}),
        (WHO, {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}),
        ({"kafka_tls": True}, {"security_protocol": "SSL"}),
        (
            {**WHO, "kafka_tls": True, "kafka_mechanism": "SCRAM-SHA-512"},
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"},
        ),
        (
            {"kafka_mechanism": "OAUTHBEARER", "kafka_token_file": "/token"},
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
        ),
    ],
)
def test_clients_get_the_protocol_and_the_mechanism(
    values: dict[str, object], found: dict[str, str]
) -> None:
    made = connection(load(**values))
    assert made.pop("bootstrap_servers") == "k:9092"
    shown = ("security_protocol", "sasl_mechanism")
    assert {name: made[name] for name in shown if name in made} == found
    assert ("ssl_context" in made) == bool(values.get("kafka_tls"))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"kafka_mechanism": "GSSAPI"}, "'kafka_mechanism' is 'GSSAPI': it must be one of PLAIN"),
        ({"kafka_mechanism": "SCRAM-SHA-256"}, "needs kafka_user and kafka_password"),
        ({"kafka_mechanism": "OAUTHBEARER"}, "either kafka_token_file or kafka_token_url"),
        (
            {
                "kafka_mechanism": "OAUTHBEARER",
                "kafka_token_file": "/t",
                "kafka_token_url": "http://a",
                **WHO,
            },
            "either kafka_token_file or kafka_token_url",
        ),
        (
            {"kafka_mechanism": "OAUTHBEARER", "kafka_token_url": "http://a"},
            "needs kafka_user and kafka_password",
        ),
        ({"kafka_token_file": "/t"}, "belong to kafka_mechanism OAUTHBEARER"),
        ({"kafka_token_scope": "s"}, "belongs to kafka_token_url"),
        ({"kafka_ca": "/ca"}, "'kafka_ca' needs kafka_tls = true"),
        ({"kafka_tls": True, "kafka_certificate": "/c"}, "'kafka_private_key' is missing"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_by_name(
    values: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidSettings, match=named):
        load(**values)


def test_a_secret_may_stand_in_a_file_named_by_the_environment_or_the_configuration(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    env = {"THREADFOLD_KAFKA_USER": "ann", "THREADFOLD_KAFKA_PASSWORD_FILE": str(secret)}
    assert Settings.load(env).kafka_password == "correct horse"
    config = tmp_path / "threadfold.toml"
    config.write_text(f'kafka_user = "ann"\nkafka_password_file = "{secret}"\n')
    assert Settings.load({}, config).kafka_password == "correct horse"
    wins = Settings.load({"THREADFOLD_KAFKA_PASSWORD": "other"}, config)
    assert wins.kafka_password == "other"


def test_the_environments_file_wins_over_the_configurations_secret(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("redis://:pw@r:6379/0")
    config = tmp_path / "threadfold.toml"
    config.write_text('redis = "redis://other:1/0"\n')
    loaded = Settings.load({"THREADFOLD_REDIS_FILE": str(secret)}, config)
    assert loaded.redis == "redis://:pw@r:6379/0"


@pytest.mark.parametrize("content", [None, " \n"])
def test_a_file_that_has_no_secret_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidSettings, match=f"'token_secret_file': {path}"):
        Settings.load({"THREADFOLD_TOKEN_SECRET_FILE": str(path)})


def test_a_secret_and_its_file_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("x" * 40)
    env = {
        "THREADFOLD_TOKEN_SECRET": "y" * 40,
        "THREADFOLD_TOKEN_SECRET_FILE": str(tmp_path / "s"),
    }
    with pytest.raises(InvalidSettings, match="'token_secret' and 'token_secret_file' exclude"):
        Settings.load(env)


def test_the_end_of_every_configured_certificate_is_known(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("client", days=5)
    settings = load(
        kafka_tls=True,
        kafka_ca=str(authority.ca),
        kafka_certificate=str(certificate),
        kafka_private_key=str(key),
        redis=f"rediss://r:6379/0?ssl_ca_certs={authority.ca}",
    )
    ends = certificate_ends(settings)
    assert set(ends) == {"kafka_ca", "kafka_certificate", "redis_ca"}
    assert 24 * 86_400 < ends["kafka_ca"] - ends["kafka_certificate"] < 26 * 86_400
    assert known_ends(settings) == {(name,): end for name, end in ends.items()}
    authority.ca.write_text("nothing")
    with pytest.raises(InvalidSettings, match=r"kafka_ca: .*no certificate"):
        certificate_ends(settings)
    assert known_ends(settings) == {}


def test_scram_logs_in_with_the_password_that_its_file_has_at_each_login(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\n")
    env = {"THREADFOLD_KAFKA_USER": "ann", "THREADFOLD_KAFKA_PASSWORD_FILE": str(file)}
    settings = Settings.load(env, kafka="k:9092", kafka_mechanism="SCRAM-SHA-512")
    there = pickle.loads(pickle.dumps(settings))
    for one in (settings, there):
        login = connection(one)
        assert _scram(login) == b"first"
        file.write_text("another\n")
        assert _scram(login) == b"another"
        file.unlink()
        assert _scram(login) == b"first", "what is known of it"
        file.write_text("first\n")


def _scram(login: dict[str, Any]) -> bytes:
    """What aiokafka does with the password, at each login."""
    found: bytes = login["sasl_plain_password"].encode("utf-8")
    return found

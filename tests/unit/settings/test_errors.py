"""What is wrong with a setting is named, with the variable that sets it."""

from __future__ import annotations

import pytest

from projections.errors import InvalidSettings
from streams.settings.settings import Settings


def test_a_setting_of_a_wrong_type_names_itself_and_its_variable() -> None:
    with pytest.raises(
        InvalidSettings,
        match=r"setting 'partitions' \(THREADFOLD_PARTITIONS\): expected a whole number, got text",
    ):
        Settings.load(env={"THREADFOLD_PARTITIONS": "many"})


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("THREADFOLD_KAKFA", "did you mean THREADFOLD_KAFKA"),
        ("THREADFOLD_MASTER_KEY", "did you mean THREADFOLD_MASTER_KEYS"),
        ("THREADFOLD_kafka", "THREADFOLD_kafka is no setting"),
        ("threadfold_redis", "did you mean THREADFOLD_REDIS"),
        ("THREADFOLD_WHATEVER", "unset it"),
        ("THREADFOLD_PORT", "unset it"),
    ],
)
def test_a_misspelt_variable_is_refused_by_name(variable: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        Settings.load(env={variable: "x"})
    assert variable in str(caught.value) and hint in str(caught.value)


def test_variables_of_others_are_left_alone() -> None:
    others = {
        "THREADFOLD_CACHE": "/tmp/x",
        "THREADFOLD_DEBUG": "1",
        "THREADFOLD_SERVICE_HOST": "10.0.0.1",
        "THREADFOLD_SERVICE_PORT_HTTP": "8080",
        "THREADFOLD_PORT": "tcp://10.0.0.1:8080",
        "THREADFOLD_PORT_8080_TCP_ADDR": "10.0.0.1",
        "THREADFOLD_API_PORT_8080_TCP": "tcp://10.0.0.1:8080",
        "MY_THREADFOLD": "x",
    }
    Settings.load(env=others)


@pytest.mark.parametrize("scheme", ["sasl_ssl", "ssl", "kafka"])
def test_a_kafka_with_a_scheme_says_what_is_supported(scheme: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"{scheme}://….*TLS is the setting kafka_tls") as e:
        Settings.load(env={}, kafka=f"a:1,{scheme}://user:pw@b:2")
    assert "pw" not in str(e.value)


@pytest.mark.parametrize("address", ["a:99999", "a:0", "a:1,b", "a"])
def test_an_address_of_kafka_that_nothing_can_listen_at_is_named(address: str) -> None:
    with pytest.raises(InvalidSettings, match=r"THREADFOLD_KAFKA has '[ab].*must be host:port"):
        Settings.load(env={"THREADFOLD_KAFKA": address})

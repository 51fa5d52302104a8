"""What can be known of the deploy files without a container engine: their schema, and that they
agree with the product.
"""

from __future__ import annotations

import fnmatch
import importlib
import json
import subprocess
import sys
import tomllib
import typing
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "docker-compose.yml"
OURS = ["topics", "worker", "gateway"]


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """The compose file's services by name, anchors and merge keys resolved."""
    return dict(YAML(typ="safe", pure=True).load(COMPOSE)["services"])


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order, as (name, arguments), continued lines joined."""
    lines = [
        line
        for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
        if not line.startswith("#")
    ]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (name, rest.strip())
        for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def context_sources(instructions: list[tuple[str, str]]) -> list[str]:
    """What the Dockerfile copies out of the build context (not from another stage)."""
    copies = [
        rest.split()
        for name, rest in instructions
        if name == "COPY" and not rest.startswith("--from=")
    ]
    return [source.rstrip("/") for words in copies for source in words[:-1]]


def check_schema(path: Path) -> subprocess.CompletedProcess[str]:
    """Checks a file against the Compose specification's schema, which the checker's package
    carries: no network.
    """
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(path),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_compose_file_follows_the_compose_specification() -> None:
    result = check_schema(COMPOSE)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_schema_check_refuses_a_misspelt_key(tmp_path: Path) -> None:
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(COMPOSE.read_text().replace("depends_on:", "depend_on:"))
    assert check_schema(broken).returncode != 0


def test_the_services_are_there_and_every_image_names_a_version(
    services: dict[str, dict[str, Any]], project: dict[str, Any]
) -> None:
    assert set(services) == {
        "kafka",
        "redis",
        "projector",
        "compactor",
        "prometheus",
        "grafana",
        *OURS,
    }
    assert {name for name, service in services.items() if "profiles" in service} == {
        "projector",
        "compactor",
    }, "the worker's parts in its place, only where they are asked for"
    for name, service in services.items():
        _, separator, tag = service["image"].rpartition(":")
        assert separator and tag.removeprefix("v")[0].isdigit(), f"{name}: {service['image']}"
    assert {services[name]["image"] for name in OURS} == {f"threadfold:{project['version']}"}


def test_services_wait_for_services_that_can_become_ready(
    services: dict[str, dict[str, Any]],
) -> None:
    for name in OURS:
        assert services[name]["depends_on"], name
        for target, rule in services[name]["depends_on"].items():
            if rule["condition"] == "service_healthy":
                assert services[target]["healthcheck"]["test"], (
                    f"{name} waits for {target}, which has no health check"
                )
            else:
                assert rule["condition"] == "service_completed_successfully"
                assert services[target]["restart"] == "no", (
                    f"{name} waits for the end of {target}, which starts again"
                )
    for name in ("worker", "gateway"):
        assert set(services[name]["depends_on"]) == {"kafka", "redis", "topics"}


def test_what_is_published_is_published_only_to_this_machine(
    services: dict[str, dict[str, Any]],
) -> None:
    assert {
        name: service.get("ports") for name, service in services.items() if "ports" in service
    } == {
        "gateway": ["127.0.0.1:8080:8080"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    }


def test_the_gateway_listens_and_is_checked_on_the_published_port(
    services: dict[str, dict[str, Any]],
) -> None:
    command, check = services["gateway"]["command"], services["gateway"]["healthcheck"]["test"]
    assert command[command.index("--port") + 1] == "8080"
    assert check[:3] == ["CMD", "python", "-c"]
    compile(check[3], "healthcheck", "exec")
    assert "http://127.0.0.1:8080/healthz" in check[3]


def test_workers_can_be_scaled_and_services_come_back_after_a_crash(
    services: dict[str, dict[str, Any]],
) -> None:
    assert "container_name" not in services["worker"]
    for name, service in services.items():
        assert service["restart"] == ("no" if name == "topics" else "unless-stopped"), name


def test_kafka_and_redis_keep_their_data_in_named_volumes_and_redis_never_evicts(
    services: dict[str, dict[str, Any]],
) -> None:
    declared = set(YAML(typ="safe", pure=True).load(COMPOSE)["volumes"])
    mounted = {
        name: [volume.split(":") for volume in services[name]["volumes"] if volume[0] != "."]
        for name in ("kafka", "redis", "gateway", "prometheus")
    }
    assert {volume for volumes in mounted.values() for volume, _ in volumes} == declared
    assert mounted["kafka"][0][1] == services["kafka"]["environment"]["KAFKA_LOG_DIRS"]
    command = services["redis"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    assert command[command.index("--appendonly") + 1] == "yes"


def test_files_that_are_mounted_exist(services: dict[str, dict[str, Any]]) -> None:
    mounted = [volume for service in services.values() for volume in service.get("volumes", [])]
    files = [volume.split(":") for volume in mounted if volume.startswith("./")]
    assert len(files) == 5
    for source, target, mode in files:
        assert (ROOT / source).is_file() and target.startswith("/") and mode == "ro", source


def test_prometheus_scrapes_the_ports_that_services_serve_their_metrics_on(
    services: dict[str, dict[str, Any]],
) -> None:
    jobs = YAML(typ="safe", pure=True).load(ROOT / "deploy" / "monitoring" / "prometheus.yml")
    scraped = {
        name: str(found["port"])
        for job in jobs["scrape_configs"]
        for found in job["dns_sd_configs"]
        for name in found["names"]
    }
    workers = {
        name for name, service in services.items() if service.get("command", [""])[0] == "worker"
    }
    port = services["worker"]["environment"]["THREADFOLD_METRICS_PORT"]
    assert scraped == {"gateway": "8080"} | dict.fromkeys(workers, port)


def test_grafana_finds_its_dashboard_and_asks_the_prometheus_of_the_file(
    services: dict[str, dict[str, Any]],
) -> None:
    yaml, folder = YAML(typ="safe", pure=True), ROOT / "deploy" / "monitoring"
    (provider,) = yaml.load(folder / "grafana-dashboards.yml")["providers"]
    (source,) = yaml.load(folder / "grafana-datasource.yml")["datasources"]
    mounted = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]
    shown = f"{provider['options']['path']}/threadfold.json"
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert shown in mounted and home == shown
    port = services["prometheus"]["ports"][0].rpartition(":")[2]
    assert source["url"] == f"http://prometheus:{port}" and source["isDefault"]
    dashboard = json.loads((ROOT / "deploy" / "helm" / "files" / "dashboard.json").read_text())
    (variable,) = dashboard["templating"]["list"]
    asked = {
        (target["datasource"]["type"], target["datasource"]["uid"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    assert asked == {(source["type"], f"${{{variable['name']}}}")}
    assert (variable["type"], variable["query"]) == ("datasource", source["type"])


def test_no_secret_has_a_default_value(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        for key in service.get("environment", {}):
            assert not any(
                word in key.upper() for word in ("PASSWORD", "SECRET", "TOKEN", "API_KEY")
            ), key


def test_the_addresses_given_are_those_of_the_services(services: dict[str, dict[str, Any]]) -> None:
    for name in OURS:
        environment = services[name]["environment"]
        assert environment["THREADFOLD_KAFKA"] == "kafka:9092"
        assert environment["THREADFOLD_REDIS"] == "redis://redis:6379/0"
    listeners = services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert listeners == "PLAINTEXT://kafka:9092"


def test_every_variable_set_is_a_setting_of_the_product(
    services: dict[str, dict[str, Any]],
) -> None:
    known = typing.get_type_hints(importlib.import_module("streams.settings.settings").Settings)
    names = {name for service in OURS for name in services[service]["environment"]}
    assert {name.removeprefix("THREADFOLD_").lower() for name in names} <= set(known)


@pytest.mark.parametrize("name", OURS)
def test_every_command_line_is_one_the_product_takes(
    name: str, services: dict[str, dict[str, Any]], project: dict[str, Any], tmp_path: Path
) -> None:
    module, function = project["scripts"]["threadfold"].split(":")
    program = (
        f"import sys; from {module} import {function}; sys.argv[0] = 'threadfold';"
        f" sys.exit({function}())"
    )
    command = [sys.executable, "-c", program, *services[name]["command"], "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert services[name]["command"][0] in result.stdout


def test_the_image_copies_what_exists_and_what_the_builder_is_sent(
    instructions: list[tuple[str, str]],
) -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in rules
    sent = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    sources = context_sources(instructions)
    packaged = {"projections", "streams", "threadfold", "clients/python", "pyproject.toml"}
    assert packaged <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), f"deploy/Dockerfile copies {source}, which does not exist"
        assert any(fnmatch.fnmatch(source, rule) for rule in sent), (
            f".dockerignore keeps {source} from the builder"
        )
    for rule in sent:
        assert any(fnmatch.fnmatch(source, rule) for source in sources), (
            f".dockerignore sends {rule}, which nothing copies"
        )


def test_the_image_installs_by_hash_and_runs_as_an_ordinary_user(
    instructions: list[tuple[str, str]],
) -> None:
    installs = [rest for name, rest in instructions if name == "RUN" and ".lock" in rest]
    assert installs
    for rest in installs:
        for part in rest.split("&&"):
            assert "--require-hashes" in part, part
    assert [rest for name, rest in instructions if name == "USER"][-1] not in ("", "0", "root")
    assert json.loads(next(rest for name, rest in instructions if name == "ENTRYPOINT")) == [
        "threadfold"
    ]


def test_both_stages_start_from_one_python_that_the_project_supports(
    instructions: list[tuple[str, str]], project: dict[str, Any]
) -> None:
    bases = {rest.split()[0] for name, rest in instructions if name == "FROM"}
    assert len(bases) == 1
    version = bases.pop().removeprefix("python:").removesuffix("-slim")
    lowest = project["requires-python"].removeprefix(">=")
    assert tuple(map(int, version.split("."))) >= tuple(map(int, lowest.split(".")))

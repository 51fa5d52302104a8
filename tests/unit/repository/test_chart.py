"""The Helm chart, rendered by Helm's own library: what it gives follows Kubernetes' schemas and
agrees with the product. Nothing is installed anywhere.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
import typing
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from streams.settings.settings import Settings
from tests.support.expressions import unknown_labels, unknown_metrics
from threadfold.cli import main
from threadfold.gateway.server import GRACE

helm = pytest.importorskip(
    "helm_python", reason="no helm-python-sdk: it is there for Linux on x86-64 only"
)
kubernetes_validate = pytest.importorskip("kubernetes_validate")

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "helm"
PAGE = ROOT / "docs" / "deploy.md"
LEAST = {"settings": {"kafka": "kafka:9092"}, "secret": "threadfold"}
ALL = LEAST | {
    "settings": {"kafka": "kafka:9092", "max_event_bytes": 8_388_608, "append_timeout": 2.5},
    "filesSecret": "threadfold-files",
    "keda": {"enabled": True},
    "monitoring": {"podMonitor": True, "alerts": True, "dashboard": True, "labels": {"team": "a"}},
    "networkPolicy": {
        "gatewayFrom": [{"podSelector": {}}],
        "metricsFrom": [{"namespaceSelector": {}}],
    },
    "tolerations": [{"operator": "Exists"}],
    "nodeSelector": {"disk": "fast"},
    "podAnnotations": {"a": "b"},
    "image": {"repository": "registry.example/threadfold", "pullSecrets": [{"name": "pull"}]},
}
SOME_OFF = LEAST | {
    "topics": {"create": False},
    "autoscaling": {"enabled": False},
    "networkPolicy": {"enabled": False},
}
FOREIGN = ("ScaledObject", "PodMonitor", "PrometheusRule")
"""Kinds of other projects, whose schemas no package has."""


def rendered(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of an installation with these values."""
    with helm.Chart.load(str(CHART)) as chart:
        files = chart.render(values, name="demo", namespace="prod")
    yaml = YAML(typ="safe", pure=True)
    return [
        found
        for name, text in files.items()
        if name.endswith(".yaml")
        for found in yaml.load_all(text)
        if found
    ]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """The objects of a kind by the last word of their names."""
    return {
        found["metadata"]["name"].rpartition("-")[2]: found
        for found in objects
        if found["kind"] == kind
    }


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pod templates of deployments and jobs."""
    found = of_kind(objects, "Deployment") | of_kind(objects, "Job")
    return {name: made["spec"]["template"] for name, made in found.items()}


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    """All that the chart can give."""
    return rendered(ALL)


@pytest.mark.parametrize("values", [LEAST, ALL, SOME_OFF], ids=["least", "all", "some off"])
def test_every_object_follows_the_schemas_of_kubernetes(values: dict[str, Any]) -> None:
    versions = kubernetes_validate.utils.all_versions()
    checked = [found for found in rendered(values) if found["kind"] not in FOREIGN]
    assert len(checked) >= 7
    for found in checked:
        for version in (versions[0], versions[-1]):
            kubernetes_validate.validate(found, version, strict=True)


def test_the_values_on_the_page_give_objects_that_follow_the_schemas() -> None:
    example = re.search(r"^    image: .*?(?=^\S)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert example is not None, "the page has values"
    values = YAML(typ="safe", pure=True).load(textwrap.dedent(example[0]))
    found = rendered(values)
    for one in found:
        if one["kind"] not in FOREIGN:
            kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)
    assert {"PodMonitor", "PrometheusRule", "ConfigMap"} <= {one["kind"] for one in found}
    (container,) = pods(found)["projector"]["spec"]["containers"]
    environment = {pair["name"]: pair["value"] for pair in container["env"]}
    settings = Settings.load(environment)
    assert settings.partitions == 32 and settings.compress
    windows = settings.partitions * settings.cached_windows * 0.27 / 1024 + 0.5
    assert windows < int(container["resources"]["limits"]["memory"].removesuffix("Gi"))


def test_an_object_that_does_not_follow_them_is_refused(objects: list[dict[str, Any]]) -> None:
    gateway = of_kind(objects, "Deployment")["gateway"]
    gateway = gateway | {"spec": gateway["spec"] | {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(gateway, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "/secret"),
        (LEAST | {"settings": {}}, "/settings/kafka"),
        (LEAST | {"gatway": {}}, "gatway"),
        (LEAST | {"projector": {"replicas": 0}}, "/projector/replicas"),
        (LEAST | {"monitoring": {"podmonitor": True}}, "podmonitor"),
        (LEAST | {"keda": {"projector": {"maximum": 4}}}, "maximum"),
        (LEAST | {"networkPolicy": {"otherPort": [4318]}}, "otherPort"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm.HelmError, match=named):
        rendered(values)


def test_every_container_runs_as_an_ordinary_user_with_nothing_to_write_to_but_its_folders(
    objects: list[dict[str, Any]],
) -> None:
    assert set(pods(objects)) == {"gateway", "projector", "compactor", "topics"}
    for name, template in pods(objects).items():
        pod = template["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]} == {"work", "tmp", "files"}


def test_secrets_come_from_a_secret_of_the_operator_alone(objects: list[dict[str, Any]]) -> None:
    assert "Secret" not in {found["kind"] for found in objects}
    for template in pods(objects).values():
        assert template["spec"]["containers"][0]["envFrom"] == [
            {"secretRef": {"name": "threadfold"}}
        ]


def test_settings_become_variables_that_the_product_reads(objects: list[dict[str, Any]]) -> None:
    for template in pods(objects).values():
        pairs = template["spec"]["containers"][0]["env"]
        environment = {pair["name"]: pair["value"] for pair in pairs}
        settings = Settings.load(environment)
        assert settings.kafka == "kafka:9092"
        assert settings.max_event_bytes == 8_388_608 and settings.append_timeout == 2.5


def test_one_projector_keeps_no_more_windows_than_its_memory_holds(
    objects: list[dict[str, Any]],
) -> None:
    container = pods(objects)["projector"]["spec"]["containers"][0]
    environment = {pair["name"]: pair["value"] for pair in container["env"]}
    settings = Settings.load(environment)
    assert container["resources"]["limits"]["memory"] == "4Gi"
    assert settings.partitions * settings.cached_windows * 0.27 / 1024 + 0.5 < 4


def test_a_compactor_has_as_many_processes_as_cores_that_it_requests(
    objects: list[dict[str, Any]],
) -> None:
    container = pods(objects)["compactor"]["spec"]["containers"][0]
    environment = {pair["name"]: pair["value"] for pair in container["env"]}
    processes = Settings.load(environment).compactor_processes
    assert str(processes) == container["resources"]["requests"]["cpu"]


def test_a_gateway_with_a_certificate_is_probed_and_scraped_over_tls() -> None:
    settings = {
        "kafka": "kafka:9092",
        "gateway_certificate": "/etc/threadfold/files/tls.crt",
        "gateway_private_key": "/etc/threadfold/files/tls.key",
    }
    found = rendered(ALL | {"settings": settings})
    for objects, scheme in ((found, "https"), (rendered(ALL), "http")):
        container = pods(objects)["gateway"]["spec"]["containers"][0]
        probes = [container[probe] for probe in container if probe.endswith("Probe")]
        assert {probe["httpGet"]["scheme"] for probe in probes} == {scheme.upper()}
        scraped = of_kind(objects, "PodMonitor")
        (endpoint,) = scraped["http"]["spec"]["podMetricsEndpoints"]
        assert endpoint.get("scheme", "http") == scheme
        (endpoint,) = scraped["metrics"]["spec"]["podMetricsEndpoints"]
        assert "scheme" not in endpoint


def test_every_command_line_is_one_that_the_product_takes(
    objects: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    for template in pods(objects).values():
        arguments = template["spec"]["containers"][0]["args"]
        assert main([*arguments, "--help"]) == 0
        assert f"threadfold {arguments[0]}" in capsys.readouterr().out


def test_probes_ask_a_port_that_the_container_opens(objects: list[dict[str, Any]]) -> None:
    for name in ("gateway", "projector", "compactor"):
        container = pods(objects)[name]["spec"]["containers"][0]
        opened = {port["name"] for port in container["ports"]}
        probes = [container[probe] for probe in container if probe.endswith("Probe")]
        assert len(probes) >= 2
        assert {probe["httpGet"]["port"] for probe in probes} == opened
        (port,) = container["ports"]
        assert str(port["containerPort"]) in container["args"]


def test_a_gateway_that_was_ready_stays_in_service_while_kafka_or_redis_is_away(
    objects: list[dict[str, Any]],
) -> None:
    """All gateways share them: what still works without one would have no way in."""
    container = pods(objects)["gateway"]["spec"]["containers"][0]
    paths = {probe: container[probe]["httpGet"]["path"] for probe in container if "Probe" in probe}
    assert paths == {
        "startupProbe": "/readyz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/healthz",
    }
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 1_800


def test_a_gateway_that_ends_goes_on_until_the_service_has_left_it(
    objects: list[dict[str, Any]],
) -> None:
    pod = pods(objects)["gateway"]["spec"]
    (container,) = pod["containers"]
    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert int(seconds) + GRACE < pod["terminationGracePeriodSeconds"]


def test_whatever_selects_pods_selects_those_of_one_part(objects: list[dict[str, Any]]) -> None:
    labels = {name: template["metadata"]["labels"] for name, template in pods(objects).items()}
    selectors = [
        found["spec"].get("selector", found["spec"].get("podSelector", {}))
        for kind in ("PodDisruptionBudget", "NetworkPolicy", "Deployment")
        for found in of_kind(objects, kind).values()
    ]
    wanted = [selector["matchLabels"] for selector in selectors]
    wanted.append(of_kind(objects, "Service")["gateway"]["spec"]["selector"])
    assert len(wanted) == 10
    for one in wanted:
        matched = [name for name, has in labels.items() if one.items() <= has.items()]
        assert matched == [one["app.kubernetes.io/component"]]


def test_workers_are_scaled_by_what_they_have_to_do_and_the_gateway_by_its_processor(
    objects: list[dict[str, Any]],
) -> None:
    scaled = of_kind(objects, "ScaledObject")
    assert set(scaled) == {"projector", "compactor"}
    for name, found in scaled.items():
        assert found["spec"]["scaleTargetRef"]["name"] == f"demo-threadfold-{name}"
        assert "replicas" not in of_kind(objects, "Deployment")[name]["spec"]
        (trigger,) = found["spec"]["triggers"]
        query = trigger["metadata"]["query"]
        assert 'namespace="prod"' in query and "threadfold_" in query
        assert unknown_metrics(query) == set() and unknown_labels(query) == set()
        assert int(trigger["metadata"]["threshold"]) > 0
        assert found["spec"]["fallback"]["replicas"] >= 1
    target = of_kind(objects, "HorizontalPodAutoscaler")["gateway"]["spec"]
    assert target["scaleTargetRef"]["name"] == "demo-threadfold-gateway"
    assert target["metrics"][0]["resource"]["name"] == "cpu"
    fixed = of_kind(rendered(SOME_OFF), "Deployment")
    assert {name: found["spec"]["replicas"] for name, found in fixed.items()} == {
        "gateway": 2,
        "projector": 2,
        "compactor": 2,
    }


def test_workers_are_reached_by_who_scrapes_alone() -> None:
    closed = of_kind(rendered(LEAST), "NetworkPolicy")
    assert closed["projector"]["spec"]["ingress"] == closed["compactor"]["spec"]["ingress"] == []
    opened = of_kind(rendered(ALL), "NetworkPolicy")
    assert opened["projector"]["spec"]["ingress"] == [
        {"ports": [{"protocol": "TCP", "port": "metrics"}], "from": [{"namespaceSelector": {}}]}
    ]
    assert len(opened["gateway"]["spec"]["ingress"]) == 2


def test_the_chart_installs_the_alert_rules_and_the_dashboard(
    objects: list[dict[str, Any]],
) -> None:
    yaml = YAML(typ="safe", pure=True)
    (rule,) = of_kind(objects, "PrometheusRule").values()
    assert rule["spec"] == yaml.load(CHART / "files" / "alerts.yml")
    dashboard = of_kind(objects, "ConfigMap")["dashboard"]["data"]["threadfold.json"]
    assert dashboard == (CHART / "files" / "dashboard.json").read_text()
    jobs = {
        endpoint["relabelings"][0]["replacement"]
        for found in objects
        if found["kind"] == "PodMonitor"
        for endpoint in found["spec"]["podMetricsEndpoints"]
    }
    assert jobs == {"threadfold-gateways", "threadfold-workers"}


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    found = helm.lint(str(CHART), values=LEAST)
    assert found["errors"] == [], found["messages"]


def test_chart_and_product_have_one_version() -> None:
    chart = YAML(typ="safe", pure=True).load(CHART / "Chart.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    values = YAML(typ="safe", pure=True).load(CHART / "values.yaml")
    assert set(values["settings"]) <= set(typing.get_type_hints(Settings))

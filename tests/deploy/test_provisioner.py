"""The provisioner as a process of its own: its manifests are the chart's, it may do what it does."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.chart import ROOT, problems, rendered
from holdfast.kube.provisioner import HEALTH_PORT, LEASE, WATCHED

Raw = dict[str, Any]
FOLDER = ROOT / "deploy" / "provisioner"
ON = {"provisioner": {"enabled": True}}


def _plain() -> list[Raw]:
    files = [path for path in sorted(FOLDER.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [each for path in files for each in yaml.safe_load_all(path.read_text("utf-8"))]


def _of_chart(changes: Raw) -> list[Raw]:
    part = "app.kubernetes.io/component"
    return [each for each in rendered(changes) if each["metadata"]["labels"][part] == "provisioner"]


def _found(documents: list[Raw], kind: str) -> Raw:
    [found] = [each for each in documents if each["kind"] == kind]
    return found


def _without_helm(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_helm(each) for each in value]
    if not isinstance(value, dict):
        return value
    helms = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")
    return {key: _without_helm(each) for key, each in value.items() if key not in helms}


@pytest.mark.parametrize("document", _plain(), ids=lambda d: f"{d['kind']}-{d['metadata']['name']}")
def test_a_manifest_is_what_kubernetes_accepts(document: Raw) -> None:
    kubernetes_validate.validate(document, "1.35", strict=True)


def test_manifests_are_what_the_chart_makes() -> None:
    assert problems(ON) == []
    plain = {(each["kind"], each["metadata"]["name"]): each for each in _plain()}
    of_chart = {(each["kind"], each["metadata"]["name"]): _without_helm(each) for each in _of_chart(ON)}
    assert plain == of_chart


def test_there_is_none_unless_asked_for() -> None:
    assert _of_chart({}) == []


def test_the_scheduler_leaves_provisioning_to_it() -> None:
    def provisioner(changes: Raw) -> str | None:
        text = _found(rendered(changes), "ConfigMap")["data"]["config.yaml"]
        dynamic: Raw = yaml.safe_load(text).get("dynamicReservation") or {}
        return dynamic.get("provisioner")

    assert (provisioner({}), provisioner(ON)) == (None, "external")
    given = {**ON, "config": {"dynamicReservation": {"onFailure": "Bind"}}}
    assert provisioner(given) == "external"


def test_what_may_be_done_is_what_is_done() -> None:
    rules = _found(_plain(), "ClusterRole")["rules"]
    allowed = {
        f"{resource}.{group}".rstrip("."): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    read = {"get", "list", "watch"}
    assert set(allowed) == {each.info.resource for each in WATCHED}
    assert allowed["pods"] == read | {"patch"}
    assert allowed["reservations.scheduling.koordinator.sh"] == read | {"create"}


def test_it_takes_a_lease_of_its_own() -> None:
    rules = _found(_plain(), "Role")["rules"]
    assert all(rule["verbs"] == ["create"] or rule["resourceNames"] == [LEASE] for rule in rules)
    [container] = _found(_plain(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "provisioner"
    assert container["ports"] == [{"name": "http", "containerPort": HEALTH_PORT}]

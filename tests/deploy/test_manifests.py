"""The plain manifests: valid, the chart's equal, and no more allowed than is used."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.chart import ROOT, rendered
from holdfast import __version__
from holdfast.api.kinds import KINDS
from holdfast.kube.decoding import WATCHED
from holdfast.scheduler.framework.config import load
from holdfast.scheduler.plugins import registry

Raw = dict[str, Any]
DEPLOY = ROOT / "deploy"
FILES = sorted((DEPLOY / "manifests").glob("*.yaml"))


def _documents(*paths: Path) -> list[Raw]:
    return [each for path in paths for each in yaml.safe_load_all(path.read_text("utf-8")) if each]


def _manifests() -> list[Raw]:
    return _documents(*(path for path in FILES if path.name != "kustomization.yaml"))


@pytest.mark.parametrize("document", _manifests(), ids=lambda d: f"{d['kind']}-{d['metadata']['name']}")
def test_a_manifest_is_what_kubernetes_accepts(document: Raw) -> None:
    kubernetes_validate.validate(document, "1.35", strict=True)


def test_kustomize_takes_in_every_file() -> None:
    [kustomization] = _documents(DEPLOY / "manifests" / "kustomization.yaml")
    assert sorted(kustomization["resources"]) == [
        path.name for path in FILES if path.name != "kustomization.yaml"
    ]
    assert kustomization["images"] == [{"name": "holdfast", "newTag": __version__}]


def test_manifests_are_what_the_chart_makes() -> None:
    """But for what only Helm knows."""
    plain = [*_manifests(), *_documents(DEPLOY / "monitoring" / "servicemonitor.yaml")]
    of_chart = rendered({"serviceMonitor": {"enabled": True}})
    assert _by_name(plain, without=("Namespace",)) == _by_name(of_chart)


def _by_name(documents: list[Raw], without: tuple[str, ...] = ()) -> dict[str, Raw]:
    return {
        f"{each['kind']}/{each['metadata']['name']}": _without_helm(each)
        for each in documents
        if each["kind"] not in without
    }


def _without_helm(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_helm(each) for each in value]
    if not isinstance(value, dict):
        return value
    helms = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")
    kept = {key: _without_helm(each) for key, each in value.items() if key not in helms}
    if "checksum/config" in kept.get("annotations", {}):
        del kept["annotations"]
    if "config.yaml" in kept:
        kept["config.yaml"] = yaml.safe_load(kept["config.yaml"])
    return kept


def test_the_configuration_is_one_the_scheduler_reads() -> None:
    [config] = [each for each in _manifests() if each["kind"] == "ConfigMap"]
    load(yaml.safe_load(config["data"]["config.yaml"]), registry().implements())


def _deployment() -> Raw:
    [found] = [each for each in _manifests() if each["kind"] == "Deployment"]
    return found


def test_pods_meet_the_restricted_standard() -> None:
    pod = _deployment()["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "hostNetwork" not in pod
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_two_replicas_of_which_one_may_be_away() -> None:
    assert _deployment()["spec"]["replicas"] == 2
    [budget] = [each for each in _manifests() if each["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["maxUnavailable"] == 1
    labels = _deployment()["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


# Permissions

_READ = {"get", "list", "watch"}
OWN_KINDS = {
    "reservations.scheduling.koordinator.sh",
    "podmigrationjobs.scheduling.koordinator.sh",
    "reservationschedules.scheduling.holdfast.io",
    "devices.scheduling.koordinator.sh",
    "noderesourcetopologies.topology.node.k8s.io",
    "podgroups.scheduling.volcano.sh",
    "podgroups.scheduling.sigs.k8s.io",
    "queues.scheduling.volcano.sh",
    "jobs.batch.volcano.sh",
}
"""Kinds Holdfast schedules by besides Kubernetes' own."""
READ = {watched.info.resource for watched in WATCHED} | OWN_KINDS
WRITTEN = {
    "pods": {"patch", "delete"},
    "pods/binding": {"create"},
    "pods/eviction": {"create"},
    "pods/status": {"patch", "update"},
    "persistentvolumes": {"patch", "update"},
    "persistentvolumeclaims": {"patch", "update"},
    "events": {"create", "patch", "update"},
    "events.events.k8s.io": {"create", "patch", "update"},
    "reservations.scheduling.koordinator.sh": {"create", "update", "patch", "delete"},
    "reservations/status.scheduling.koordinator.sh": {"update", "patch"},
    "podmigrationjobs.scheduling.koordinator.sh": {"update", "patch"},
    "podmigrationjobs/status.scheduling.koordinator.sh": {"update", "patch"},
    "reservationschedules/status.scheduling.holdfast.io": {"update", "patch"},
    "resourceclaims.resource.k8s.io": {"create", "update", "patch", "delete"},
    "resourceclaims/status.resource.k8s.io": {"update", "patch"},
    "resourceclaims/binding.resource.k8s.io": {"update", "patch"},
    "podgroups.scheduling.volcano.sh": {"update", "patch"},
    "podgroups/status.scheduling.volcano.sh": {"update", "patch"},
    "podgroups.scheduling.sigs.k8s.io": {"update", "patch"},
    "podgroups/status.scheduling.sigs.k8s.io": {"update", "patch"},
    "podgroups/status.scheduling.k8s.io": {"update", "patch"},
    "queues/status.scheduling.volcano.sh": {"update", "patch"},
}


def _allowed(kind: str) -> dict[str, set[str]]:
    [role] = [each for each in _manifests() if each["kind"] == kind]
    allowed: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                name = f"{resource}.{group}" if group else resource
                allowed.setdefault(name, set()).update(rule["verbs"])
    return allowed


def test_what_may_be_done_is_what_is_done() -> None:
    wanted = {name: set(_READ) for name in READ}
    for name, verbs in WRITTEN.items():
        wanted.setdefault(name, set()).update(verbs)
    for group in ("scheduling.volcano.sh", "scheduling.sigs.k8s.io"):
        wanted[f"podgroups/status.{group}"] |= _READ  # in one rule with the pod groups themselves
    assert _allowed("ClusterRole") == wanted


def test_what_is_read_are_known_kinds() -> None:
    known = {row.resource for row in KINDS.values()}
    assert {name for name in _allowed("ClusterRole") if "/" not in name} <= known


def test_the_lease_is_the_only_one_that_can_be_taken() -> None:
    assert _allowed("Role") == {"leases.coordination.k8s.io": {"create", "get", "update"}}
    [role] = [each for each in _manifests() if each["kind"] == "Role"]
    for rule in role["rules"]:
        assert rule["verbs"] == ["create"] or rule["resourceNames"] == ["holdfast-scheduler"]


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_nothing_is_allowed_that_leads_further(kind: str) -> None:
    for name, verbs in _allowed(kind).items():
        assert "*" not in name and "*" not in verbs
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & verbs
        resource = name.partition(".")[0].partition("/")[0]
        assert resource not in ("secrets", "configmaps", "serviceaccounts", "roles", "clusterroles")


# The image


def test_the_image_has_no_root_and_only_the_package() -> None:
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    stages = [line for line in lines if line.startswith("FROM")]
    assert len(stages) == 2
    last = lines[lines.index(stages[-1]) :]
    user = _deployment()["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}" in last
    assert not [line for line in last if line.startswith(("RUN", "ADD"))]
    copied = [line for line in last if line.startswith("COPY")]
    assert copied == ["COPY --from=build /opt/holdfast /opt/holdfast"]
    assert not [line for line in lines if "curl" in line or "wget" in line or "apt" in line]


def test_docker_sees_nothing_but_what_is_built() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    built_from = {rule[1:] for rule in rules if rule.startswith("!")}
    assert built_from == {"src", "examples", "pyproject.toml", "README.md", "LICENSE"}

"""A misspelt field is refused as the API server refuses it, of every kind and wherever it stands."""

import json
from typing import Any

import pytest

from harness.scenarios import NODE, documents, joined, pod_text, step_text
from holdfast.sim.scenario import read_scenario
from holdfast.snapshot.manifests import InvalidInput

Raw = dict[str, Any]

POD = {"containers": [{"name": "c"}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD}
SELECTOR = {"matchLabels": {"a": "b"}}


def _object(api_version: str, kind: str, **more: Any) -> Raw:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **more}


MISSPELT: dict[str, tuple[Raw, str, str]] = {
    "a pod's resources": (
        _object("v1", "Pod", spec={"containers": [{"name": "c", "resources": {"request": {}}}]}),
        "spec.containers[0].resources.request",
        "requests",
    ),
    "a pod's selector": (
        _object("v1", "Pod", spec={**POD, "nodeSelectr": {"a": "b"}}),
        "spec.nodeSelectr",
        "nodeSelector",
    ),
    "a pod's metadata": (
        _object("v1", "Pod", spec=POD) | {"metadata": {"name": "x", "lables": {}}},
        "metadata.lables",
        "labels",
    ),
    "a node": (
        _object("v1", "Node", status={"alocatable": {"cpu": "1"}}),
        "status.alocatable",
        "allocatable",
    ),
    "a deployment": (
        _object(
            "apps/v1", "Deployment", spec={"replica": 3, "selector": SELECTOR, "template": TEMPLATE}
        ),
        "spec.replica",
        "replicas",
    ),
    "a template": (
        _object(
            "apps/v1",
            "StatefulSet",
            spec={
                "selector": SELECTOR,
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {**POD, "tolerationz": []}},
            },
        ),
        "spec.template.spec.tolerationz",
        "tolerations",
    ),
    "a job": (_object("batch/v1", "Job", spec={"paralelism": 3}), "spec.paralelism", "parallelism"),
    "a pod group": (
        _object("scheduling.volcano.sh/v1beta1", "PodGroup", spec={"minMembr": 3}),
        "spec.minMembr",
        "minMember",
    ),
    "another pod group": (
        _object("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", spec={"minMembr": 3}),
        "spec.minMembr",
        "minMember",
    ),
    "a queue": (
        _object("scheduling.volcano.sh/v1beta1", "Queue", spec={"capabilty": {"cpu": "2"}}),
        "spec.capabilty",
        "capability",
    ),
    "a priority class": (
        _object("scheduling.k8s.io/v1", "PriorityClass", value=1, preemptionPolicey="Never"),
        "preemptionPolicey",
        "preemptionPolicy",
    ),
    "a claim": (
        _object("v1", "PersistentVolumeClaim", spec={"storageClas": "x"}),
        "spec.storageClas",
        "storageClassName",
    ),
    "a budget": (
        _object("policy/v1", "PodDisruptionBudget", spec={"minAvailabel": 1}),
        "spec.minAvailabel",
        "minAvailable",
    ),
    "a device": (
        _object("scheduling.koordinator.sh/v1alpha1", "Device", spec={"device": []}),
        "spec.device",
        "devices",
    ),
    "a migration": (
        _object(
            "scheduling.koordinator.sh/v1alpha1",
            "PodMigrationJob",
            spec={"podRef": {"name": "p"}, "mod": "EvictDirectly"},
        ),
        "spec.mod",
        "mode",
    ),
    "a runtime class": (
        _object("node.k8s.io/v1", "RuntimeClass", handler="h", overhed={}),
        "overhed",
        "overhead",
    ),
}


def _problems(*parts: str) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        read_scenario(documents(joined(*parts)))
    return refused.value.problems


@pytest.mark.parametrize("case", MISSPELT)
def test_a_misspelt_field_is_refused(case: str) -> None:
    raw, field, meant = MISSPELT[case]
    (problem,) = _problems(NODE, json.dumps(raw))
    assert f'{field}: strict decoding error: unknown field "{field}"; did you mean {meant}?' in problem
    assert problem.startswith(f"s.yaml: document 2, line 3: {raw['kind']}/")


@pytest.mark.parametrize("case", MISSPELT)
def test_a_step_that_applies_it_is_refused(case: str) -> None:
    raw, field, meant = MISSPELT[case]
    (problem,) = _problems(NODE, step_text("1s", f"apply: {json.dumps(raw)}"))
    assert f'apply.{field}: strict decoding error: unknown field "{field}"; did you mean {meant}?' in (
        problem
    )


@pytest.mark.parametrize("case", MISSPELT)
def test_a_step_that_patches_it_in_is_refused(case: str) -> None:
    raw, field, _ = MISSPELT[case]
    merge = {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}
    merge["metadata"] = {key: value for key, value in raw["metadata"].items() if key != "name"}
    target = f"apiVersion: {raw['apiVersion']}, kind: {raw['kind']}, name: x"
    found = _problems(NODE, step_text("1s", f"patch: {{{target}, merge: {json.dumps(merge)}}}"))
    assert len(found) == 1
    assert f'patch.merge.{field}: strict decoding error: unknown field "{field}"' in found[0]


def test_all_of_them_are_reported_at_once() -> None:
    given = {**POD, "nodeSelectr": {}, "tolerationz": []}
    found = _problems(json.dumps(_object("v1", "Pod", spec=given)), json.dumps(MISSPELT["a node"][0]))
    assert len(found) == 3


def test_a_misplaced_field_is_reported_once_and_with_its_place() -> None:
    misplaced = pod_text("p").replace('"containers":', '"labels": {"a": "b"}, "containers":')
    (problem,) = _problems(NODE, misplaced)
    assert (
        'spec.labels: strict decoding error: unknown field "spec.labels"; it belongs to metadata'
        in problem
    )

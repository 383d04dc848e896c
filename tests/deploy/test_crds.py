"""The CustomResourceDefinitions agree with the types, and refuse what is wrong."""

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from deploy.structural import problems
from holdfast.api.crds import NAMES, definition, definitions
from holdfast.api.errors import UnknownDefinition
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.cli.app import app

ROOT = Path(__file__).parents[2]
Raw = dict[str, Any]

OURS = {row.resource: row for row in KINDS.values() if row.resource in NAMES}


def test_every_kind_kubernetes_lacks_has_a_definition() -> None:
    built_in = ("", "apps", "batch", "policy")
    foreign = {
        row.resource
        for row in KINDS.values()
        if row.group not in built_in and not row.group.endswith(".k8s.io")
    }
    assert foreign - {"jobs.batch.volcano.sh"} <= set(NAMES)
    assert set(OURS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_definition_is_called_and_scoped_as_its_kind(name: str) -> None:
    row, spec = OURS[name], definition(name)["spec"]
    [version] = spec["versions"]
    assert spec["group"] == row.group
    assert version["name"] == row.version
    assert (spec["scope"] == "Namespaced") == row.namespaced
    assert spec["names"]["kind"] == row.kind
    assert spec["names"]["plural"] == row.plural
    assert spec["names"]["singular"] == row.singular
    assert tuple(spec["names"].get("shortNames", ())) == row.short_names
    assert ("status" in version.get("subresources", {})) == row.has_status


@pytest.mark.parametrize("name", NAMES)
def test_a_definition_is_one_kubernetes_accepts(name: str) -> None:
    kubernetes_validate.validate(definition(name), "1.35", strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_structural(name: str) -> None:
    for path, schema in _schemas(_root(name)):
        assert "part" not in schema, path
        typed = "type" in schema or schema.get("x-kubernetes-int-or-string")
        assert typed or schema.get("x-kubernetes-preserve-unknown-fields"), path
        assert not ("properties" in schema and "additionalProperties" in schema), path


@pytest.mark.parametrize("row", OURS.values(), ids=lambda row: row.resource)
def test_every_field_of_the_type_is_in_the_schema(row: KindInfo) -> None:
    missing = list(_missing(msgspec.inspect.type_info(row.type), _root(row.resource), ""))
    # One type stands for the PodGroups of both groups; each has its own fields.
    volcano = {f"spec.{f}" for f in ("minTaskMember", "queue", "priorityClassName", "networkTopology")}
    volcano |= {"status.conditions"}
    sigs = {f"status.{f}" for f in ("scheduled", "occupiedBy", "scheduleStartTime")}
    sigs |= {"spec.scheduleTimeoutSeconds"}
    allowed = {
        "podgroups.scheduling.sigs.k8s.io": volcano,
        "podgroups.scheduling.volcano.sh": sigs,
    }
    assert set(missing) == allowed.get(row.resource, set())


def test_files_under_deploy_are_the_definitions() -> None:
    from write_crds import TARGET, contents

    assert {path.name: path.read_text("utf-8") for path in TARGET.iterdir()} == contents()


def test_the_pod_template_is_what_its_tool_makes_of_kubernetes_schemas() -> None:
    tool = ROOT / "tools" / "pod_template_schema.py"
    made = subprocess.run([sys.executable, tool], capture_output=True, text=True, check=True).stdout
    kept = ROOT / "src" / "holdfast" / "api" / "crds" / "podTemplate.json"
    assert made == kept.read_text("utf-8")


RESERVATION: Raw = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r"},
    "spec": {
        "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": 1}}}]}},
        "owners": [{"object": {"name": "p"}}],
    },
}


def _requests(obj: Raw) -> Raw:
    found: Raw = obj["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return found


GOOD: dict[str, Callable[[Raw], Any]] = {
    "the least": lambda r: None,
    "a fraction of a cpu as a number": lambda r: _requests(r).update(cpu=0.5),
    "amounts as text": lambda r: _requests(r).update(cpu="500m", memory="1.5Gi", gpu="1e3"),
    "a generated template": lambda r: r["spec"]["template"].update(
        metadata={"creationTimestamp": None, "labels": {"a": "b"}}
    ),
    "the template's namespace at its top": lambda r: r["spec"]["template"].update(namespace="x"),
    "everyone": lambda r: r["spec"].update(owners=[{"labelSelector": {}}]),
    "a controller by name": lambda r: r["spec"].update(owners=[{"controller": {"name": "web"}}]),
    "for ever": lambda r: r["spec"].update(ttl="0"),
    "Go's way of writing a day": lambda r: r["spec"].update(ttl="24h0m0s"),
    "policy of old": lambda r: r["spec"].update(allocatePolicy=""),
}
BAD: dict[str, tuple[Callable[[Raw], Any], str]] = {
    "no spec": (lambda r: r.pop("spec"), "spec"),
    "no template": (lambda r: r["spec"].pop("template"), "spec.template"),
    "template without spec": (lambda r: r["spec"].update(template={}), "spec.template.spec"),
    "no owners": (lambda r: r["spec"].pop("owners"), "spec.owners"),
    "owners empty": (lambda r: r["spec"].update(owners=[]), "spec.owners"),
    "an owner that says nothing": (lambda r: r["spec"].update(owners=[{}]), "spec.owners.0"),
    "an object that says nothing": (
        lambda r: r["spec"].update(owners=[{"object": {}}]),
        "spec.owners.0.object",
    ),
    "a controller that says nothing": (
        lambda r: r["spec"].update(owners=[{"controller": {"controller": True}}]),
        "spec.owners.0.controller",
    ),
    "owners at the top": (lambda r: r.update(owners=[]), "owners"),
    "ttl in the template": (lambda r: r["spec"]["template"].update(ttl="1h"), "spec.template.ttl"),
    "containers in the template": (
        lambda r: r["spec"]["template"].update(containers=[]),
        "spec.template.containers",
    ),
    "a misspelt field of the pod": (
        lambda r: r["spec"]["template"]["spec"].update(nodeNmae="n"),
        "spec.template.spec.nodeNmae",
    ),
    "a ttl as a number": (lambda r: r["spec"].update(ttl=5), "spec.ttl"),
    "an unknown policy": (lambda r: r["spec"].update(allocatePolicy="Some"), "spec.allocatePolicy"),
    "a taint without effect": (
        lambda r: r["spec"].update(taints=[{"key": "a"}]),
        "spec.taints.0.effect",
    ),
    "not a quantity": (
        lambda r: _requests(r).update(cpu="1x"),
        "spec.template.spec.containers.0.resources.requests.cpu",
    ),
    "a negative number": (
        lambda r: _requests(r).update(cpu=-1),
        "spec.template.spec.containers.0.resources.requests.cpu",
    ),
    "an amount that is a map": (
        lambda r: _requests(r).update(cpu={"a": 1}),
        "spec.template.spec.containers.0.resources.requests.cpu",
    ),
    "an unknown phase": (lambda r: r.update(status={"phase": "Expired"}), "status.phase"),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_reservation_is_accepted(case: str) -> None:
    reservation = copy.deepcopy(RESERVATION)
    GOOD[case](reservation)
    assert problems(definition("reservations.scheduling.koordinator.sh"), reservation) == []


@pytest.mark.parametrize("case", BAD)
def test_a_reservation_is_refused_with_the_field(case: str) -> None:
    reservation = copy.deepcopy(RESERVATION)
    change, path = BAD[case]
    change(reservation)
    assert path in problems(definition("reservations.scheduling.koordinator.sh"), reservation)


@pytest.mark.parametrize("name", NAMES)
def test_what_examples_hold_is_accepted(name: str) -> None:
    row = OURS[name]
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        for obj in yaml.load_all(path.read_text("utf-8"), Loader=yaml.CSafeLoader):
            if obj and (obj["apiVersion"], obj["kind"]) == (row.api_version, row.kind):
                assert problems(definition(name), obj) == [], path


ASKED = {
    "everything": ([], len(NAMES)),
    "a short name": (["rsv"], 1),
    "a kind two groups have": (["PodGroup"], 2),
    "a full name and a plural": (["queues.scheduling.volcano.sh", "devices"], 2),
}


@pytest.mark.parametrize("case", ASKED)
def test_the_command_prints_what_is_asked_for(case: str) -> None:
    names, count = ASKED[case]
    result = CliRunner().invoke(app, ["crds", *names])
    documents = list(yaml.load_all(result.stdout, Loader=yaml.CSafeLoader))
    assert len(documents) == count
    assert documents == definitions(*names)


def test_an_unknown_name_is_met_with_the_nearest() -> None:
    with pytest.raises(UnknownDefinition, match="did you mean reservations"):
        definitions("resrvation")


def _root(name: str) -> Raw:
    root: Raw = definition(name)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return root


def _schemas(schema: Raw, path: str = "") -> Iterator[tuple[str, Raw]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _schemas(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _schemas(schema[key], f"{path}[]")


def _missing(type: msgspec.inspect.Type, schema: Raw, path: str) -> Iterator[str]:
    if isinstance(type, msgspec.inspect.UnionType):
        for inner in type.types:
            yield from _missing(inner, schema, path)
    if isinstance(type, msgspec.inspect.ListType):
        yield from _missing(type.item_type, schema["items"], path)
    if not isinstance(type, msgspec.inspect.StructType):
        return
    if schema.get("x-kubernetes-preserve-unknown-fields") or type.cls.__name__ == "ObjectMeta":
        return
    for field in type.fields:
        where = f"{path}.{field.encode_name}".lstrip(".")
        inner = schema["properties"].get(field.encode_name)
        if inner is not None:
            yield from _missing(field.type, inner, where)
        elif not _only_elsewhere(type.cls.__name__, field.encode_name):
            yield where


def _only_elsewhere(type: str, field: str) -> bool:
    """Fields of the shared condition that these kinds do not have."""
    return type in ("Condition", "PodGroupCondition") and field in (
        "lastHeartbeatTime",
        "lastProbeTime",
        "observedGeneration",
    )

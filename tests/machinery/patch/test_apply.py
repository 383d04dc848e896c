"""Server-side apply and field tracking: who owns what after each change."""

from __future__ import annotations

from typing import Any

import pytest

from harness.widgets import widget_crd
from holdfast.machinery.patch import (
    ApplyConflict,
    PatchError,
    apply,
    keep_times,
    merge_patch,
    track_update,
)
from holdfast.machinery.schema import ResourceType, apply_defaults, read_object
from holdfast.machinery.schema.catalogue import Catalogue

CATALOGUE = Catalogue()
T1, T2, T3 = (f"2026-01-01T00:00:0{i}Z" for i in (1, 2, 3))
Raw = dict[str, Any]


def type_of(group: str, plural: str) -> ResourceType:
    type = CATALOGUE.resource(group, "v1", plural)
    assert type is not None
    return type


CONFIG_MAP = type_of("", "configmaps")
POD = type_of("", "pods")
DEPLOYMENT = type_of("apps", "deployments")


def config_map(data: dict[str, str] | None, **metadata: Any) -> Raw:
    raw: Raw = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}}
    return raw if data is None else {**raw, "data": data}


def finished(type: ResourceType, raw: Raw) -> Raw:
    return apply_defaults(type, read_object(type, raw)[0])


def applied(live: Raw | None, config: Raw, manager: str, *, force: bool = False, at: str = T2) -> Raw:
    return finished(CONFIG_MAP, apply(CONFIG_MAP, live, config, manager, force, at))


def created(config: Raw, manager: str) -> Raw:
    return track_update(CONFIG_MAP, None, finished(CONFIG_MAP, config), manager, "", T1)


def owners(raw: Raw) -> dict[tuple[str, str], Any]:
    entries = raw["metadata"].get("managedFields", [])
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}


def test_a_created_object_belongs_to_its_creator() -> None:
    raw = created(config_map({"a": "1"}, labels={"x": "y"}), "me")
    assert raw["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Update",
            "apiVersion": "v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:a": {}},
                "f:metadata": {"f:labels": {".": {}, "f:x": {}}},
            },
        }
    ]


def test_a_pod_is_tracked_by_its_list_keys() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]},
    }
    raw = track_update(POD, None, finished(POD, pod), "me", "", T1)
    port = 'k:{"containerPort":80,"protocol":"TCP"}'
    assert owners(raw)["me", "Update"]["f:spec"]["f:containers"] == {
        'k:{"name":"c"}': {
            ".": {},
            "f:image": {},
            "f:imagePullPolicy": {},
            "f:name": {},
            "f:ports": {".": {}, port: {".": {}, "f:containerPort": {}, "f:protocol": {}}},
            "f:resources": {},
            "f:terminationMessagePath": {},
            "f:terminationMessagePolicy": {},
        }
    }


def test_applying_what_somebody_else_has_is_a_conflict() -> None:
    live = created(config_map({"a": "1", "b": "1"}), "one")
    with pytest.raises(ApplyConflict) as caught:
        applied(live, config_map({"a": "2"}), "two")
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "one" using v1: .data.a'
    )
    with pytest.raises(ApplyConflict) as caught:
        applied(live, config_map({"a": "2", "b": "2"}), "two")
    assert caught.value.message == (
        'Apply failed with 2 conflicts: conflicts with "one" using v1:\n- .data.a\n- .data.b'
    )
    assert [cause.field for cause in caught.value.causes] == [".data.a", ".data.b"]
    assert caught.value.code == 409


def test_force_takes_the_field() -> None:
    live = created(config_map({"a": "1", "b": "1"}), "one")
    raw = applied(live, config_map({"a": "2"}), "two", force=True)
    assert raw["data"] == {"a": "2", "b": "1"}
    assert owners(raw) == {
        ("two", "Apply"): {"f:data": {"f:a": {}}},
        ("one", "Update"): {"f:data": {".": {}, "f:b": {}}},
    }


def test_applying_the_same_value_shares_the_field() -> None:
    live = created(config_map({"a": "1"}), "one")
    raw = applied(live, config_map({"a": "1"}), "two")
    assert owners(raw) == {
        ("two", "Apply"): {"f:data": {"f:a": {}}},
        ("one", "Update"): {"f:data": {".": {}, "f:a": {}}},
    }


def test_what_is_no_longer_applied_is_removed_unless_shared() -> None:
    live = applied(None, config_map({"a": "1", "b": "1", "c": "1"}), "one")
    live = applied(live, config_map({"b": "1"}), "two")
    raw = applied(live, config_map({"c": "1"}), "one", at=T3)
    assert raw["data"] == {"b": "1", "c": "1"}
    assert owners(raw) == {
        ("one", "Apply"): {"f:data": {"f:c": {}}},
        ("two", "Apply"): {"f:data": {"f:b": {}}},
    }


def test_applying_nothing_gives_up_everything() -> None:
    live = applied(None, config_map({"a": "1"}), "one")
    raw = applied(live, config_map(None), "one")
    assert "data" not in raw
    assert "managedFields" not in raw["metadata"]


def test_an_update_takes_fields_from_appliers() -> None:
    live = applied(None, config_map({"a": "1", "b": "1"}), "one")
    changed = finished(CONFIG_MAP, merge_patch(live, {"data": {"a": "2"}}))
    raw = track_update(CONFIG_MAP, live, changed, "two", "", T3)
    assert owners(raw) == {
        ("one", "Apply"): {"f:data": {"f:b": {}}},
        ("two", "Update"): {"f:data": {"f:a": {}}},
    }


def test_an_update_that_changes_nothing_leaves_no_trace() -> None:
    live = created(config_map({"a": "1"}), "one")
    assert track_update(CONFIG_MAP, live, live, "two", "", T3) == live


def test_a_repeated_apply_keeps_its_time() -> None:
    live = applied(None, config_map({"a": "1"}), "one", at=T1)
    assert applied(live, config_map({"a": "1"}), "one", at=T2) == live


def test_an_object_without_a_history_belongs_to_those_before() -> None:
    live = finished(CONFIG_MAP, config_map({"a": "1", "b": "1"}, uid="u"))
    assert owners(track_update(CONFIG_MAP, live, live, "x", "", T1)) == {}
    raw = applied(live, config_map({"a": "1"}), "one")
    assert owners(raw) == {
        ("one", "Apply"): {"f:data": {"f:a": {}}},
        ("before-first-apply", "Update"): {"f:data": {".": {}, "f:a": {}, "f:b": {}}},
    }


@pytest.mark.parametrize("reset", [[], [{}]])
def test_managed_fields_can_be_cleared(reset: list[Any]) -> None:
    live = created(config_map({"a": "1"}, uid="u"), "one")
    cleared = merge_patch(live, {"metadata": {"managedFields": reset}})
    raw = track_update(CONFIG_MAP, live, cleared, "two", "", T3)
    assert "managedFields" not in raw["metadata"]


def test_a_client_that_drops_managed_fields_does_not_lose_them() -> None:
    live = created(config_map({"a": "1"}, uid="u"), "one")
    without = merge_patch(live, {"metadata": {"managedFields": None}})
    assert track_update(CONFIG_MAP, live, without, "two", "", T3) == live


def test_status_is_owned_only_through_its_subresource() -> None:
    raw = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {}, "template": {"spec": {"containers": []}}},
        "status": {"replicas": 3},
    }
    live = track_update(DEPLOYMENT, None, finished(DEPLOYMENT, raw), "me", "", T1)
    assert "f:status" not in owners(live)["me", "Update"]
    changed = merge_patch(live, {"status": {"replicas": 4}, "spec": {"replicas": 9}})
    after = track_update(DEPLOYMENT, live, changed, "controller", "status", T2)
    assert owners(after)["controller", "Update"] == {"f:status": {"f:replicas": {}}}
    entry = after["metadata"]["managedFields"][-1]
    assert entry["subresource"] == "status"


def test_kubectl_moves_from_client_side_to_server_side_without_conflict() -> None:
    last = (
        '{"apiVersion":"v1","data":{"a":"1"},"kind":"ConfigMap",'
        '"metadata":{"annotations":{},"name":"c"}}'
    )
    name = "kubectl.kubernetes.io/last-applied-configuration"
    before = config_map({"a": "1", "b": "1"}, annotations={name: last})
    live = created(before, "kubectl-client-side-apply")
    raw = applied(live, config_map({"a": "2"}), "kubectl")
    assert raw["data"] == {"a": "2", "b": "1"}
    assert '"data":{"a":"2"}' in raw["metadata"]["annotations"][name]
    with pytest.raises(ApplyConflict):
        applied(live, config_map({"a": "2"}), "somebody-else")
    with pytest.raises(ApplyConflict) as caught:
        applied(live, config_map({"a": "2", "b": "2"}), "kubectl")
    assert [cause.field for cause in caught.value.causes] == [".data.b"]


@pytest.mark.parametrize("last", ["[", "5", '{"apiVersion":"v1","data":5}', "[" * 100_000])
def test_a_client_side_past_that_cannot_be_read_excuses_nothing(last: str) -> None:
    name = "kubectl.kubernetes.io/last-applied-configuration"
    live = created(config_map({"a": "1"}, annotations={name: last}), "kubectl-client-side-apply")
    with pytest.raises(ApplyConflict):
        applied(live, config_map({"a": "2"}), "kubectl")


def test_more_than_ten_updaters_are_put_together() -> None:
    live = created(config_map({"k0": "v"}), "m00")
    for i in range(1, 12):
        changed = merge_patch(live, {"data": {f"k{i}": "v"}})
        at = f"2026-01-01T00:00:{i + 1:02}Z"
        live = track_update(CONFIG_MAP, live, changed, f"m{i:02}", "", at)
    names = [entry["manager"] for entry in live["metadata"]["managedFields"]]
    assert len(names) == 10
    assert names[0] == "ancient-changes"
    assert {"m00", "m01"}.isdisjoint(names)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"containers": [{"name": "a"}, {"name": "a"}]},
            '.spec.containers: duplicate entries for key [name="a"]',
        ),
        (
            {"containers": [5]},
            ".spec.containers: element 0: associative list with keys may not have non-map elements",
        ),
        ({"containers": {"a": 1}}, ".spec.containers: expected list, got &{map[a:1]}"),
        (
            {"containers": [{"name": 5}]},
            ".spec.containers[name=5].name: expected string, got &value.valueUnstructured{Value:5}",
        ),
        ({"priority": "x"}, ".spec.priority: expected numeric (int or float), got string"),
        ({"foo": 1}, ".spec.foo: field not declared in schema"),
        (
            {"priority": "x", "hostNetwork": 1},
            "errors:\n  .spec.hostNetwork: expected boolean, got &{1}\n"
            "  .spec.priority: expected numeric (int or float), got string",
        ),
    ],
)
def test_a_configuration_that_does_not_fit_its_type(spec: Raw, message: str) -> None:
    config = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
    with pytest.raises(PatchError) as caught:
        apply(POD, None, {**config, "spec": spec}, "me", False, T1)
    before = "failed to create typed patch object (n/p; /v1, Kind=Pod): "
    assert (caught.value.code, caught.value.message) == (500, before + message)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, "invalid object type: /v1, Kind=Pod"),
        ({"kind": "ConfigMap"}, "invalid object type: /, Kind=ConfigMap"),
        (config_map(None, managedFields=[]), "metadata.managedFields must be nil"),
    ],
)
def test_a_configuration_of_something_else(config: Raw, message: str) -> None:
    with pytest.raises(PatchError) as caught:
        apply(CONFIG_MAP, None, config, "me", False, T1)
    assert (caught.value.code, caught.value.message) == (400, message)


def test_a_part_that_has_become_atomic_is_owned_whole() -> None:
    def served(**spec: Any) -> ResourceType:
        crd = widget_crd()
        schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
        (type,) = Catalogue().add_crd(crd)
        return type

    values = {"additionalProperties": {"type": "string"}}
    config = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    live = apply(served(**values), None, {**config, "spec": {"a": "1", "b": "1"}}, "one", False, T1)
    assert owners(live)["one", "Apply"] == {"f:spec": {"f:a": {}, "f:b": {}}}
    type = served(**values, **{"x-kubernetes-map-type": "atomic"})
    changed = merge_patch(live, {"metadata": {"labels": {"x": "y"}}})
    after = track_update(type, live, changed, "two", "", T2)
    assert owners(after)["one", "Apply"] == {"f:spec": {}}


def test_times_only_are_no_change() -> None:
    live = applied(None, config_map({"a": "1"}, labels={}), "one", at=T1)
    again = applied(live, config_map({"a": "1"}, labels={}), "one", at=T2)
    assert again != live
    assert keep_times(live, again) == live
    more = applied(live, config_map({"a": "1"}), "two", at=T2)
    assert keep_times(live, more) is more
    changed = applied(live, config_map({"a": "2"}, labels={}), "one", at=T2)
    assert keep_times(live, changed) is changed

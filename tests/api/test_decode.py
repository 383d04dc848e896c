"""Raw objects to typed views."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from harness.builders import make_node, make_pod, make_reservation
from holdfast.api import InvalidObject, Node, Pod, decode, decode_pod_json, object_name
from holdfast.api.annotations import ReservationAffinity
from holdfast.api.decode import decode_json, drop_nulls
from holdfast.api.kinds import KINDS, kind_info


def test_every_kind_decodes_an_empty_object_of_itself() -> None:
    for (api_version, kind), info in KINDS.items():
        obj = decode({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}})
        assert type(obj) is info.type
        assert (obj.api_version, obj.kind, obj.metadata.name) == (api_version, kind, "x")


def test_unknown_fields_are_skipped_and_camel_case_is_read() -> None:
    raw = make_pod("p").host_port(80, host_ip="127.0.0.1").raw()
    raw["spec"]["serviceAccountName"] = "x"
    pod = decode(raw)
    assert isinstance(pod, Pod)
    assert pod.spec.containers[0].ports[0].host_ip == "127.0.0.1"
    node = decode(make_node("n").spec(providerID="a", podCIDR="b").raw())
    assert isinstance(node, Node)
    assert (node.spec.provider_id, node.spec.pod_cidr) == ("a", "b")


def test_nulls_mean_not_set() -> None:
    pod = decode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": None, "creationTimestamp": None},
            "spec": {
                "containers": [{"name": "c", "resources": None, "ports": None}],
                "affinity": None,
                "tolerations": None,
            },
            "status": None,
        }
    )
    assert isinstance(pod, Pod)
    assert pod.metadata.labels == {}
    assert pod.spec.containers[0].resources.requests == {}


def test_a_null_label_is_a_mistake_not_a_missing_one() -> None:
    raw = make_pod("p").raw()
    raw["metadata"]["annotations"] = {"a": "b", "c": None}
    with pytest.raises(InvalidObject, match=r"metadata.annotations\[c\]: expected a string"):
        decode(raw)


def test_drop_nulls_does_not_change_the_original() -> None:
    raw = {"a": None, "b": [{"c": None, "d": 1}]}
    assert drop_nulls(raw) == {"b": [{"d": 1}]}
    assert raw == {"a": None, "b": [{"c": None, "d": 1}]}


def _with(path: list[Any], value: Any) -> dict[str, Any]:
    raw = make_pod("p1").cpu("1").raw()
    here: Any = raw
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    return raw


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            _with(["spec", "containers", 0, "image"], 1),
            "Pod/default/p1: spec.containers[0].image: expected a string, got the number 1",
        ),
        (
            _with(["spec", "containers"], {"name": "c"}),
            "Pod/default/p1: spec.containers: expected a list, got a map",
        ),
        (
            _with(["metadata", "labels"], {"ok": "x", "port": 80}),
            "Pod/default/p1: metadata.labels[port]: expected a string, got the number 80",
        ),
        (
            _with(["spec", "containers", 0, "resources", "requests", "memory"], True),
            "Pod/default/p1: spec.containers[0].resources.requests[memory]: "
            "expected a number or a string, got true",
        ),
        (
            _with(["spec", "priority"], "high"),
            "Pod/default/p1: spec.priority: expected an integer, got the string 'high'",
        ),
        (
            _with(["metadata", "labels"], {1: "x"}),
            "Pod/default/p1: metadata.labels: keys must be strings; quote 1",
        ),
        (
            _with(["metadata", "creationTimestamp"], date(2026, 1, 1)),
            "Pod/default/p1: metadata.creationTimestamp: expected a string, "
            "got the date 2026-01-01 (put it in quotes)",
        ),
        ({"apiVersion": "v1"}, "?/default/: kind: is required"),
        ({"kind": "Pod"}, "Pod/default/: apiVersion: is required"),
        (
            {"apiVersion": "v1", "kind": "pod", "metadata": {"name": "x"}},
            "pod/default/x: kind: unknown kind 'pod'; did you mean Pod?",
        ),
        (
            {"apiVersion": "v1", "kind": "Reservation", "metadata": {"name": "r"}},
            "Reservation/r: apiVersion: no Reservation in 'v1'; "
            "known: scheduling.koordinator.sh/v1alpha1",
        ),
        ({"apiVersion": "v1", "kind": 7}, "7/default/: kind: expected a string, got the number 7"),
    ],
)
def test_errors_name_object_field_and_fault(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidObject) as error:
        decode(raw)
    assert str(error.value) == message


@pytest.mark.parametrize("raw", [None, [], "text", 1])
def test_what_is_no_object_is_refused(raw: Any) -> None:
    with pytest.raises(InvalidObject, match="expected an object"):
        decode(raw)


def test_objects_are_named_by_scope() -> None:
    assert object_name(make_pod("p").namespace("ns").obj()) == "Pod/ns/p"
    assert object_name({"kind": "Pod", "metadata": {"name": "p"}}) == "Pod/default/p"
    assert object_name(make_reservation("r").raw()) == "Reservation/r"
    assert object_name({"kind": "Node", "metadata": None}) == "Node/"


def test_fast_path_equals_slow_path_and_takes_nulls() -> None:
    raw = make_pod("p").cpu("1").host_port(80).pod_affinity("zone", {"a": "b"}).raw()
    assert decode_pod_json(json.dumps(raw).encode()) == decode(raw)
    raw["metadata"]["labels"] = None
    assert decode_pod_json(json.dumps(raw)).metadata.labels == {}
    raw["spec"]["priority"] = "x"
    with pytest.raises(InvalidObject, match=r"Pod/default/p: spec\.priority"):
        decode_pod_json(json.dumps(raw))
    for broken in (b"{", b"[1]", b"null"):
        with pytest.raises(InvalidObject):
            decode_pod_json(broken)


def test_annotations_are_decoded_with_the_annotation_as_the_field() -> None:
    field = "metadata.annotations[x]"
    assert decode_json('{"name": "r"}', ReservationAffinity).name == "r"
    with pytest.raises(InvalidObject, match=r"Pod/p: metadata.annotations\[x\]: not JSON"):
        decode_json("{", ReservationAffinity, "Pod/p", field)
    with pytest.raises(InvalidObject, match=r"annotations\[x\]: name: expected a string"):
        decode_json('{"name": 1}', ReservationAffinity, "Pod/p", field)


def test_kind_rows_know_group_and_resource() -> None:
    info = kind_info("scheduling.koordinator.sh/v1alpha1", "Reservation")
    assert (info.group, info.version) == ("scheduling.koordinator.sh", "v1alpha1")
    assert info.resource == "reservations.scheduling.koordinator.sh"
    assert info.short_names == ("rsv",)
    assert not info.namespaced
    assert kind_info("v1", "Pod").resource == "pods"

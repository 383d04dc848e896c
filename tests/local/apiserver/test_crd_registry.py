"""CustomResourceDefinitions: users' own kinds, from the first to the last of their objects."""

from __future__ import annotations

import copy
import http.client
import json
from typing import Any

import pytest

from harness.apiserver import TABLE, LiveServer
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.system_objects import ensure_definition
from holdfast.local.clock import RealClock
from holdfast.local.store import Store

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "colour": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                "replicas": {"type": "integer"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def definition(plural: str, kind: str, **spec: Any) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {
                "name": "Ready",
                "type": "string",
                "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
            },
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
        ],
    }
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": [plural[:3]]},
            "versions": [version],
            **spec,
        },
    }


def thing(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


def path(plural: str, version: str = "v1") -> str:
    return f"/apis/example.com/{version}/namespaces/default/{plural}"


def test_a_kind_is_served_from_the_moment_it_is_defined(server: LiveServer) -> None:
    assert server.get(path("things")).code == 404
    made = server.post(DEFINITIONS, definition("things", "Thing"))
    assert made.code == 201, made.text
    conditions = {each["type"]: each["status"] for each in made.body["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert made.body["status"]["acceptedNames"]["listKind"] == "ThingList"
    assert made.body["status"]["storedVersions"] == ["v1"]
    listed = server.get(path("things")).body
    assert (listed["kind"], listed["apiVersion"]) == ("ThingList", "example.com/v1")
    resources = server.get("/apis/example.com/v1").body["resources"]
    assert [each["name"] for each in resources if each["name"].startswith("things")] == [
        "things",
        "things/scale",
        "things/status",
    ]


def test_objects_are_checked_defaulted_and_pruned(server: LiveServer) -> None:
    server.post(DEFINITIONS, definition("boxes", "Box"))
    made = server.post(path("boxes"), thing("Box", "a", {"size": 3, "weight": 5}))
    assert made.body["spec"] == {"size": 3, "colour": "red"}
    assert made.warnings == ['299 - "unknown field \\"spec.weight\\""']
    assert made.body["metadata"]["generation"] == 1
    for spec, words in (
        ({}, "spec.size: Required value"),
        (
            {"size": 0},
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        ({"size": 1, "colour": "green"}, 'spec.colour: Unsupported value: "green"'),
        ({"size": "x"}, "spec.size: Invalid value"),
    ):
        answer = server.post(path("boxes"), thing("Box", "b", spec))
        assert (answer.code, answer.reason) == (422, "Invalid")
        assert words in answer.message
    strict = server.post(
        f"{path('boxes')}?fieldValidation=Strict",
        thing("Box", "b", {"size": 1, "weight": 5}),
    )
    assert (strict.code, 'unknown field "spec.weight"' in strict.message) == (400, True)


@pytest.mark.parametrize(("field", "kind"), [("labels", "object"), ("tags", "array")])
def test_what_is_neither_map_nor_list_is_invalid_however_it_comes(
    server: LiveServer, field: str, kind: str
) -> None:
    server.post(DEFINITIONS, definition("bins", "Bin"))
    good = server.post(path("bins"), thing("Bin", field, {"size": 1})).body
    wrong = {**good, "spec": {"size": 1, field: 5}}
    for answer in (
        server.post(path("bins"), thing("Bin", "b", wrong["spec"])),
        server.put(f"{path('bins')}/{field}", wrong),
        server.patch(f"{path('bins')}/{field}", {"spec": wrong["spec"]}),
    ):
        assert answer.code == 422, answer.text
        assert f"spec.{field} in body must be of type {kind}" in answer.message


def test_objects_have_kind_and_version(server: LiveServer) -> None:
    server.post(DEFINITIONS, definition("jars", "Jar"))
    body = thing("Jar", "a", {"size": 1})
    silent = server.post(path("jars"), {**body, "kind": ""})
    assert (silent.code, "Object 'Kind' is missing in" in silent.message) == (400, True)
    other = server.post(path("jars"), {**body, "kind": "Pot"})
    assert (other.code, other.message) == (
        422,
        'Pot.example.com "a" is invalid: kind: Invalid value: "Pot": must be Jar',
    )
    newer = server.post(path("jars"), {**body, "apiVersion": "example.com/v9"})
    assert newer.message == (
        "the API version in the data (example.com/v9) does not match the expected API version "
        "(example.com/v1)"
    )
    warned = server.post(path("jars"), thing("Jar", "a", {"size": 1}, finalizers=["homeless"]))
    assert (warned.code, "prefer a domain-qualified finalizer name" in warned.warnings[0]) == (
        201,
        True,
    )


def test_status_scale_and_generation(server: LiveServer) -> None:
    server.post(DEFINITIONS, definition("crates", "Crate"))
    body = thing("Crate", "a", {"size": 1, "replicas": 2})
    made = server.post(path("crates"), {**body, "status": {"x": 1}})
    assert "status" not in made.body
    one = f"{path('crates')}/a"
    server.patch(f"{one}/status", {"status": {"replicas": 2}, "spec": {"size": 9}})
    after = server.get(one).body
    assert (after["status"], after["spec"]["size"]) == ({"replicas": 2}, 1)
    assert after["metadata"]["generation"] == 1
    assert server.get(f"{one}/scale").body["status"] == {"replicas": 2}
    server.patch(f"{one}/scale", {"spec": {"replicas": 5}})
    after = server.get(one).body
    assert (after["spec"]["replicas"], after["metadata"]["generation"]) == (5, 2)
    blind = server.put(one, body)
    assert blind.code == 422, "custom objects are never overwritten unseen"


def test_columns(server: LiveServer) -> None:
    server.post(DEFINITIONS, definition("cards", "Card"))
    server.post(path("cards"), thing("Card", "a", {"size": 3}))
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    server.patch(f"{path('cards')}/a/status", {"status": {"conditions": conditions}})
    server.post(path("cards"), thing("Card", "b", {"size": 4}))
    table = server.get(path("cards"), TABLE).body
    assert [(each["name"], each["priority"]) for each in table["columnDefinitions"]] == [
        ("Name", 0),
        ("Size", 0),
        ("Ready", 0),
        ("Age", 0),
        ("Colour", 1),
    ]
    cells = [row["cells"] for row in table["rows"]]
    assert [[*each[:3], each[4]] for each in cells] == [["a", 3, "True", "red"], ["b", 4, None, "red"]]


def test_two_versions_are_two_views_of_one_object(server: LiveServer) -> None:
    raw = definition("maps", "Map")
    older = {**raw["spec"]["versions"][0], "name": "v1beta1", "storage": False, "deprecated": True}
    raw["spec"]["versions"].append(older)
    server.post(DEFINITIONS, raw)
    server.post(path("maps"), thing("Map", "a", {"size": 3}))
    seen = server.get(f"{path('maps', 'v1beta1')}/a")
    assert (seen.body["apiVersion"], seen.body["spec"]["size"]) == ("example.com/v1beta1", 3)
    warning = ['299 - "example.com/v1beta1 Map is deprecated"']
    assert seen.warnings == warning
    large = {"metadata": {"annotations": {"a": "x" * 100_000}}}  # computed in a thread
    assert server.patch(f"{path('maps', 'v1beta1')}/a", large).warnings == warning
    assert server.delete(f"{path('maps', 'v1beta1')}/nothing").warnings == warning
    server.patch(f"{path('maps', 'v1beta1')}/a", {"spec": {"size": 4}})
    assert server.get(f"{path('maps')}/a").body["spec"]["size"] == 4
    with server.watch(f"{path('maps', 'v1beta1')}?watch=1") as events:
        assert next(events)["object"]["apiVersion"] == "example.com/v1beta1"
    group = server.get("/apis/example.com").body
    assert [each["version"] for each in group["versions"]] == ["v1", "v1beta1"]


def test_a_change_of_the_definition_counts_at_once(server: LiveServer) -> None:
    made = server.post(DEFINITIONS, definition("hats", "Hat")).body
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = []
    assert server.put(f"{DEFINITIONS}/hats.example.com", made).code == 200
    assert server.post(path("hats"), thing("Hat", "a", {})).code == 201


def test_what_objects_are_kept_by_stays(server: LiveServer) -> None:
    made = server.post(DEFINITIONS, definition("caps", "Cap")).body
    server.post(path("caps"), thing("Cap", "a", {"size": 1}))
    for names, field in (({"kind": "Hood"}, "spec.names.kind"), ({"plural": "hoods"}, "plural")):
        changed = {**made["spec"], "names": {**made["spec"]["names"], **names}}
        answer = server.put(f"{DEFINITIONS}/caps.example.com", {**made, "spec": changed})
        assert answer.code == 422
        assert field in answer.message and "field is immutable" in answer.message


def test_our_own_definitions_are_brought_up_to_date() -> None:
    cluster = ApiState(Store(), RealClock())
    new = definition("hoods", "Hood")
    old = copy.deepcopy(new)
    schema = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["colour"]
    ensure_definition(cluster, old)
    ensure_definition(cluster, new)
    (kept,) = cluster.store.list("apiextensions.k8s.io", "CustomResourceDefinition")
    assert kept["spec"]["versions"] == new["spec"]["versions"]
    assert kept["metadata"]["generation"] == 2
    revision = cluster.store.revision
    ensure_definition(cluster, new)
    assert cluster.store.revision == revision, "nothing is written where nothing is new"


def test_names_can_be_taken(server: LiveServer) -> None:
    server.post(DEFINITIONS, definition("cups", "Cup"))
    second = definition("mugs", "Cup")
    made = server.post(DEFINITIONS, second).body
    conditions = {
        each["type"]: (each["status"], each["reason"]) for each in made["status"]["conditions"]
    }
    assert conditions["NamesAccepted"] == ("False", "KindConflict")
    assert conditions["Established"] == ("False", "NotAccepted")
    assert server.get(path("mugs")).code == 404


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"group": "other.com"}, 'must be spec.names.plural+"."+spec.group'),
        ({"versions": []}, "must have exactly one version marked as storage version"),
        ({"scope": "Galaxy"}, 'Unsupported value: "Galaxy"'),
        (
            {"versions": [{"name": "v1", "served": True, "storage": True}]},
            "schemas are required",
        ),
    ],
)
def test_invalid_definitions_are_refused(
    server: LiveServer, change: dict[str, Any], words: str
) -> None:
    answer = server.post(DEFINITIONS, definition("bads", "Bad", **change))
    assert answer.code == 422
    assert words in answer.message


@pytest.mark.parametrize(
    ("part", "schema", "words"),
    [
        ("spec", None, "properties[spec].type: Required value"),
        (
            "status",
            {"type": "array", "x-kubernetes-list-type": "set", "items": ["x"]},
            "items: Required",
        ),
        ("status", {"type": "array", "x-kubernetes-list-type": "map", "items": 0.5}, "items: Required"),
    ],
)
def test_schemas_that_are_none(server: LiveServer, part: str, schema: Any, words: str) -> None:
    wrong = definition("nones", "None")
    version = wrong["spec"]["versions"][0]
    properties = {**SCHEMA["properties"], part: schema}
    version["schema"] = {"openAPIV3Schema": {**SCHEMA, "properties": properties}}
    answer = server.post(DEFINITIONS, wrong)
    assert answer.code == 422, answer.text
    assert words in answer.message


def test_a_definition_goes_with_its_last_object(server: LiveServer) -> None:
    server.post(DEFINITIONS, definition("twigs", "Twig"))
    for name in ("a", "b"):
        server.post(path("twigs"), thing("Twig", name, {"size": 1}))
    assert server.delete(f"{DEFINITIONS}/twigs.example.com").code == 200
    assert server.get(f"{DEFINITIONS}/twigs.example.com").code == 404
    assert server.get(path("twigs")).code == 404


def test_a_definition_takes_its_objects_with_it(server: LiveServer) -> None:
    server.post(DEFINITIONS, definition("leaves", "Leaf"))
    server.post(path("leaves"), thing("Leaf", "a", {"size": 1}))
    server.post(path("leaves"), thing("Leaf", "b", {"size": 1}, finalizers=["a.b/c"]))
    with server.watch(f"{path('leaves')}?watch=1") as events:
        assert [next(events)["type"] for _ in range(2)] == ["ADDED", "ADDED"]
        assert server.delete(f"{DEFINITIONS}/leaves.example.com").code == 200
        assert sorted(next(events)["type"] for _ in range(2)) == ["DELETED", "MODIFIED"]
    assert server.get(path("leaves")).names == ["b"], "one waits for its finalizer, and is still served"
    refused = server.post(path("leaves"), thing("Leaf", "c", {"size": 1}))
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        'leaves.example.com "c" is forbidden: create not allowed while custom resource definition is '
        "terminating"
    )
    server.patch(f"{path('leaves')}/b", {"metadata": {"finalizers": None}})
    assert server.get(f"{DEFINITIONS}/leaves.example.com").code == 404
    assert server.get(path("leaves")).code == 404
    assert server.post(DEFINITIONS, definition("leaves", "Leaf")).code == 201
    assert server.get(path("leaves")).names == []


def test_nothing_is_created_of_a_kind_that_goes_while_the_request_comes(server: LiveServer) -> None:
    server.post(DEFINITIONS, definition("stems", "Stem"))
    body = json.dumps(thing("Stem", "a", {"size": 1})).encode()
    slow = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    slow.putrequest("POST", path("stems"))
    slow.putheader("Content-Type", "application/json")
    slow.putheader("Content-Length", str(len(body)))
    slow.putheader("Expect", "100-continue")
    slow.endheaders()
    assert slow.sock.recv(1024).startswith(b"HTTP/1.1 100 "), "the request is being served"
    assert server.delete(f"{DEFINITIONS}/stems.example.com").code == 200
    slow.send(body)
    answer = slow.getresponse()
    assert (answer.status, json.loads(answer.read())["reason"]) == (404, "NotFound")
    slow.close()
    server.post(DEFINITIONS, definition("stems", "Stem"))
    assert server.get(path("stems")).names == []

"""Rules of Holdfast's and Volcano's kinds that a schema cannot state, in the words of an API server."""

from __future__ import annotations

from copy import deepcopy
from itertools import combinations
from typing import Any

import pytest

from holdfast.api.crds import definitions
from holdfast.machinery.objects import check_decoded
from holdfast.machinery.schema.catalogue import Catalogue
from holdfast.machinery.validation.kinds import check_values

GROUP, VERSION = "scheduling.volcano.sh", "v1beta1"
BOTH = {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "rack"}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    found = Catalogue()
    for crd in definitions():
        found.add_crd(crd)
    return found


@pytest.mark.parametrize(
    ("kind", "spec", "complaints"),
    [
        ("Queue", {}, []),
        ("Queue", {"guarantee": {"resource": {"cpu": "2"}}}, []),
        ("Queue", {"deserved": {"cpu": 2}, "capability": {"cpu": "2000m"}}, []),
        (
            "Queue",
            {"deserved": {"cpu": "1"}, "guarantee": {"resource": {"cpu": "2"}}},
            ['spec.deserved.cpu: Invalid value: "1": deserved[cpu]=1 must be >= guarantee[cpu]=2'],
        ),
        (
            "Queue",
            {"deserved": {"cpu": "5"}, "capability": {"cpu": "4"}},
            ['spec.deserved.cpu: Invalid value: "5": deserved[cpu]=5 must be <= capability[cpu]=4'],
        ),
        (
            "Queue",
            {"parent": "x"},
            ['spec.parent: Invalid value: "x": queue x cannot use itself as parent'],
        ),
        ("Queue", {"parent": "y"}, []),
        ("PodGroup", {"minMember": 2, "networkTopology": {"highestTierAllowed": 1}}, []),
    ],
)
def test_contradictions(
    catalogue: Catalogue, kind: str, spec: dict[str, Any], complaints: list[str]
) -> None:
    type = catalogue.kind(GROUP, VERSION, kind)
    assert type is not None
    raw = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    assert [f"{each.field}: {each.message}" for each in check_values(type, raw)] == complaints


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"networkTopology": BOTH}, "spec.networkTopology"),
        ({"subGroupPolicy": [{"networkTopology": BOTH}]}, "spec.subGroupPolicy[0].networkTopology"),
    ],
)
def test_a_tier_is_named_in_one_way(catalogue: Catalogue, spec: dict[str, Any], field: str) -> None:
    type = catalogue.kind(GROUP, VERSION, "PodGroup")
    assert type is not None
    raw = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "PodGroup", "metadata": {"name": "x"}}
    [problem] = check_values(type, raw | {"spec": spec})
    assert problem.field == field
    assert "simultaneously" in problem.message


# Errors that different checks find: the schema, its rules, and the functions of a kind

Mistake = tuple[str, Any, str]
"""The path of a field, its value (None: it is left out), and the field of the error."""

POD = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
SPEC = {"owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}], "template": {"spec": POD}}
STARTS_AT, LEAD, BEFORE_START, AT_END = (
    f"holdfast.io/{name}" for name in ("starts-at", "lead", "before-start", "at-end")
)
CALENDAR = {STARTS_AT: "2027-01-01T00:00:00Z", LEAD: "5m"}
RESERVATION = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r", "annotations": CALENDAR},
    "spec": {**SPEC, "ttl": "4h"},
}
SCHEDULE = {
    "apiVersion": "scheduling.holdfast.io/v1alpha1",
    "kind": "ReservationSchedule",
    "metadata": {"name": "s"},
    "spec": {
        "schedule": "0 18 * * *",
        "timeZone": "UTC",
        "duration": "4h",
        "template": {"metadata": {"labels": {"a": "b"}, "annotations": {LEAD: "5m"}}, "spec": SPEC},
    },
}


def of_reservation(spec: str) -> list[Mistake]:
    """Mistakes in the spec of a Reservation at this path."""
    container = f"{spec}/template/spec/containers/0"
    at = spec.replace("/", ".")
    return [
        (f"{spec}/allocateOnce", "no", f"{at}.allocateOnce"),
        (f"{spec}/allocatePolicy", "None", f"{at}.allocatePolicy"),
        (
            f"{spec}/owners/0/labelSelector/matchLabels/a",
            "$",
            f"{at}.owners[0].labelSelector.matchLabels",
        ),
        (f"{spec}/template/spec/nodeSelector", {"a": "$"}, f"{at}.template.spec.nodeSelector"),
        (
            f"{container}/resources/requests/cpu",
            "1x",
            f"{at}.template.spec.containers[0].resources.requests.cpu",
        ),
    ]


def annotation(path: str, key: str, value: str) -> Mistake:
    return (f"{path}/{key.replace('/', '~')}", value, f"{path.replace('/', '.')}[{key}]")


MISTAKES: list[tuple[dict[str, Any], list[Mistake]]] = [
    (
        RESERVATION,
        [
            ("metadata/name", "R", "metadata.name"),
            annotation("metadata/annotations", STARTS_AT, "tomorrow"),
            annotation("metadata/annotations", LEAD, "-5m"),
            annotation("metadata/annotations", BEFORE_START, "Evict"),
            annotation("metadata/annotations", AT_END, "evict"),
            ("spec/ttl", "4 h", "spec.ttl"),
            *of_reservation("spec"),
        ],
    ),
    (
        SCHEDULE,
        [
            ("spec/schedule", "0 25 * * *", "spec.schedule"),
            ("spec/timeZone", "Europe/Zurch", "spec.timeZone"),
            ("spec/duration", "4 h", "spec.duration"),
            ("spec/duration", None, "spec.duration"),
            ("spec/lead", "5x", "spec.lead"),
            ("spec/beforeStart", "Evict", "spec.beforeStart"),
            ("spec/historyLimit", "3", "spec.historyLimit"),
            ("spec/template/metadata/labels/a", 3, "spec.template.metadata.labels[a]"),
            ("spec/template/metadata/labels/b", "$", "spec.template.metadata.labels"),
            annotation("spec/template/metadata/annotations", LEAD, "5x"),
            annotation("spec/template/metadata/annotations", AT_END, "evict"),
            annotation("spec/template/metadata/annotations", STARTS_AT, "2027-01-01T00:00:00Z"),
            ("spec/template/spec/ttl", "4h", "spec.template.spec.ttl"),
            *of_reservation("spec/template/spec"),
        ],
    ),
]


def with_mistake(raw: dict[str, Any], mistake: Mistake) -> None:
    part: Any = raw
    *path, last = (each.replace("~", "/") for each in mistake[0].split("/"))
    for step in path:
        part = part[int(step)] if isinstance(part, list) else part[step]
    if mistake[1] is None:
        del part[last]
    else:
        part[last] = mistake[1]


def fields_of_errors(catalogue: Catalogue, raw: dict[str, Any]) -> list[str]:
    group, _, version = raw["apiVersion"].partition("/")
    type = catalogue.kind(group, version, raw["kind"])
    assert type is not None
    return [each.field for each in check_decoded(type, raw)]


@pytest.mark.parametrize(("valid", "mistakes"), MISTAKES, ids=["Reservation", "ReservationSchedule"])
def test_two_mistakes_in_an_object_are_reported_together(
    catalogue: Catalogue, valid: dict[str, Any], mistakes: list[Mistake]
) -> None:
    assert fields_of_errors(catalogue, valid) == []
    for one, other in combinations(mistakes, 2):
        if one[0] != other[0]:
            raw = deepcopy(valid)
            with_mistake(raw, one)
            with_mistake(raw, other)
            assert sorted(fields_of_errors(catalogue, raw)) == sorted([one[2], other[2]])


@pytest.mark.parametrize(
    ("path", "value", "fields"),
    [
        ("spec", "x", ["spec"]),
        ("spec/template", None, ["spec.template"]),
        ("spec/template/spec/template/spec", [], ["spec.template.spec.template.spec"]),
        (
            "spec/template/spec/template/spec/containers",
            ["c"],
            ["spec.template.spec.template.spec.containers[0]"],
        ),
        ("spec/template/metadata/annotations", ["a"], ["spec.template.metadata.annotations"]),
        ("spec/schedule", "", ["spec.schedule"]),
        ("spec/schedule", None, ["spec.schedule"]),
        ("spec/duration", 4, ["spec.duration"]),
    ],
)
def test_a_mistake_is_reported_once(
    catalogue: Catalogue, path: str, value: Any, fields: list[str]
) -> None:
    raw = deepcopy(SCHEDULE)
    with_mistake(raw, (path, value, ""))
    assert fields_of_errors(catalogue, raw) == fields

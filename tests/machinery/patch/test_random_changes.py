"""What holds for any sequence of changes to any object."""

from __future__ import annotations

import gc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.widgets import widget_crd
from holdfast.machinery.patch import (
    ApplyConflict,
    apply,
    empty_object,
    fields,
    keep_times,
    merge_patch,
    track_update,
)
from holdfast.machinery.patch.compare import field_set
from holdfast.machinery.patch.managed_fields import ignored_fields, owners_after_update
from holdfast.machinery.schema import ResourceType, apply_defaults, read_object
from holdfast.machinery.schema.catalogue import Catalogue

Raw = dict[str, Any]
T1, T2 = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"

CATALOGUE = Catalogue()
CATALOGUE.add_crd(widget_crd())


def type_of(group: str, plural: str) -> ResourceType:
    type = CATALOGUE.resource(group, "v1", plural)
    assert type is not None
    return type


POD = type_of("", "pods")
WIDGET = type_of("example.com", "widgets")

words = st.sampled_from(["a", "b", "c"])
maps = st.dictionaries(words, words, max_size=3)


def listed(item: st.SearchStrategy[Raw], key: str, least: int = 0) -> st.SearchStrategy[list[Raw]]:
    return st.lists(item, min_size=least, max_size=3, unique_by=lambda one: str(one[key]))


ports = st.fixed_dictionaries(
    {"containerPort": st.sampled_from([80, 443])}, optional={"name": words, "hostPort": st.just(80)}
)
containers = st.fixed_dictionaries(
    {"name": words, "image": words},
    optional={
        "ports": listed(ports, "containerPort"),
        "args": st.lists(words, max_size=2),
        "env": listed(st.fixed_dictionaries({"name": words, "value": words}), "name"),
        "resources": st.fixed_dictionaries({"limits": st.just({"cpu": "1"})}),
    },
)
metadata = st.fixed_dictionaries(
    {"name": st.just("x")},
    optional={
        "labels": maps,
        "annotations": maps,
        "finalizers": st.lists(words, max_size=2, unique=True),
    },
)
pods = st.builds(
    lambda metadata, spec: {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
    metadata,
    st.fixed_dictionaries(
        {"containers": listed(containers, "name", 1)},
        optional={"nodeSelector": maps, "hostNetwork": st.booleans(), "priority": st.just(0)},
    ),
)
widgets = st.builds(
    lambda metadata, spec: {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": metadata,
        **({"spec": spec} if spec is not None else {}),
    },
    metadata,
    st.none()
    | st.fixed_dictionaries(
        {"size": st.integers(1, 3)},
        optional={
            "mode": st.just("fast"),
            "tags": st.lists(words, max_size=3, unique=True),
            "parts": listed(
                st.fixed_dictionaries({"name": words}, optional={"weight": st.integers(1, 2)}), "name"
            ),
            # Never empty: a map emptied by leaving its keys out of a configuration comes out as null.
            "extra": st.dictionaries(words, st.integers(0, 1), min_size=1, max_size=2),
            "free": st.dictionaries(words, words | st.lists(words), min_size=1, max_size=2),
        },
    ),
)
objects = pods.map(lambda raw: (POD, raw)) | widgets.map(lambda raw: (WIDGET, raw))
pairs = st.tuples(pods, pods).map(lambda two: (POD, *two)) | st.tuples(widgets, widgets).map(
    lambda two: (WIDGET, *two)
)


def finished(type: ResourceType, raw: Raw) -> Raw:
    return apply_defaults(type, read_object(type, raw)[0])


def entries(raw: Raw) -> dict[tuple[str, str], Raw]:
    found = raw["metadata"].get("managedFields", [])
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in found}


@given(objects)
def test_what_a_creator_owns_is_what_comparing_with_nothing_finds(
    case: tuple[ResourceType, Raw],
) -> None:
    type, raw = case
    raw = finished(type, raw)
    tracked = track_update(type, None, raw, "me", "", T1)
    _, gained = owners_after_update(type.shape, empty_object(type), raw, {}, ignored_fields(type, ""))
    system = {"f:apiVersion": fields.LEAF, "f:kind": fields.LEAF}
    gained = fields.difference(gained, {**system, "f:metadata": {".": {}, "f:name": fields.LEAF}})
    assert entries(tracked).get(("me", "Update"), {}) == fields.encode(gained)


def test_a_redefined_kind_does_not_inherit_how_fields_were_written() -> None:
    text: Raw = {"type": "string"}
    kinds: list[tuple[Raw, Any, Raw]] = [
        (
            {"type": "object", "additionalProperties": text},
            {"a": "b"},
            {".": {}, "f:a": {}},
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            ["a"],
            {".": {}, 'v:"a"': {}},
        ),
        (text, "a", {}),
    ]
    for i in range(60):
        part, value, owned = kinds[i % 3]
        crd = widget_crd()
        version = crd["spec"]["versions"][0]
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
            "type": "object",
            "properties": {"extra": part},
        }
        catalogue = Catalogue()
        catalogue.add_crd(crd)
        type = catalogue.resource("example.com", "v1", "widgets")
        assert type is not None
        raw = {"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"extra": value}}
        tracked = track_update(type, None, {**raw, "metadata": {"name": "x"}}, "me", "", T1)
        assert entries(tracked)["me", "Update"]["f:spec"]["f:extra"] == owned, i
        del crd, catalogue, type
        gc.collect()


@given(objects)
def test_fields_survive_being_written(case: tuple[ResourceType, Raw]) -> None:
    type, raw = case
    owned = field_set(type.shape, raw)
    written = fields.encode(owned)
    assert fields.encode(fields.decode(written)) == written


@given(objects)
def test_applying_twice_changes_nothing(case: tuple[ResourceType, Raw]) -> None:
    type, config = case
    once = finished(type, apply(type, None, config, "me", False, T1))
    twice = finished(type, apply(type, once, config, "me", False, T2))
    assert keep_times(once, twice) == once


@given(widgets, widgets)
def test_the_last_applied_configuration_is_what_there_is(first: Raw, second: Raw) -> None:
    """Applied by one manager alone, nothing of an earlier configuration stays.

    Widgets only: what a pod was given by default because of a field outlives that field.
    """
    type = WIDGET
    live = finished(type, apply(type, None, first, "me", False, T1))
    live = finished(type, apply(type, live, second, "me", False, T2))
    direct = finished(type, apply(type, None, second, "me", False, T2))
    assert entries(live) == entries(direct)
    assert fields.encode(field_set(type.shape, live)) == fields.encode(field_set(type.shape, direct))


@given(pairs)
def test_force_wins_and_without_it_nothing_is_taken(case: tuple[ResourceType, Raw, Raw]) -> None:
    type, first, second = case
    live = finished(type, apply(type, None, first, "one", False, T1))
    forced = finished(type, apply(type, live, second, "two", True, T2))
    mine = fields.decode(entries(forced).get(("two", "Apply"), {}))
    wanted = fields.without(field_set(type.shape, second), ignored_fields(type, ""))
    assert fields.difference(mine, wanted) == {}
    try:
        shared = finished(type, apply(type, live, second, "two", False, T2))
    except ApplyConflict:
        assert entries(forced).get(("one", "Apply")) != entries(live).get(("one", "Apply"))
    else:
        assert shared == forced
        assert entries(shared).get(("one", "Apply")) == entries(live).get(("one", "Apply"))


@given(pairs)
def test_after_an_update_no_other_manager_owns_what_changed(
    case: tuple[ResourceType, Raw, Raw],
) -> None:
    type, first, second = case
    live = finished(type, apply(type, None, first, "one", False, T1))
    changed = finished(type, merge_patch(live, second))
    after = track_update(type, live, changed, "two", "", T2)
    taken = fields.decode(entries(after).get(("two", "Update"), {}))
    theirs = fields.decode(entries(after).get(("one", "Apply"), {}))
    assert fields.intersection(taken, theirs) == {}

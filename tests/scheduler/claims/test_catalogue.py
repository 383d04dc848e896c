"""Slices, rules and nodes come and go: answers are those of a catalogue made anew."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.strategies import examples
from holdfast.api.meta import ObjectMeta
from holdfast.api.node import Node
from holdfast.api.resource_slices import DeviceID, DeviceTaintRule
from holdfast.scheduler.cluster.node_table import NodeTable, node_info
from holdfast.scheduler.managers.claims import (
    ClaimName,
    ClaimsAllocator,
    DeviceCatalogue,
    DeviceUse,
    explain,
)
from scheduler.claims.table_format import Case, _use, claim_spec, device_class, slice_of

NODES = ("alpha", "beta", "gamma", "delta")
CLAIMS = (
    {"requests": {"main": "gpus x 2"}},
    {"requests": {"main": "gpus"}, "match": ["gpu/size"]},
    {"requests": {"main": [{"best": "gpus x 3"}, {"next": "gpus"}]}},
    {"requests": {"main": {"class": "gpus", "where": ['device.attributes["gpu"].size == 2']}}},
    {"requests": {"main": "gpus x all"}},
)


def rule(name: str, taint: str = "health=bad:NoSchedule", **selector: str) -> DeviceTaintRule:
    key, _, effect = taint.partition(":")
    key, _, value = key.partition("=")
    spec: Case = {"taint": {"key": key, "value": value, "effect": effect}}
    if selector:
        spec["deviceSelector"] = selector
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


class World:
    """Nodes and what is published, with the allocator that is kept in line with it."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self.catalogue = DeviceCatalogue(self.nodes)
        self.use = DeviceUse(self.catalogue.table)
        self.allocator = ClaimsAllocator(self.catalogue, self.nodes)
        self.catalogue.put_class(device_class("gpus", "gpu"))
        self.slices: dict[str, Case] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.labels: dict[str, str] = {}
        self.claims: dict[str, list[str]] = {}

    def put_node(self, name: str, region: str) -> None:
        row = self.nodes.open_row(name)
        metadata = ObjectMeta(name=name, labels={"region": region})
        self.nodes.put(row, node_info(Node(metadata=metadata)))
        self.labels[name] = region
        self.catalogue.node_changed(row)

    def drop_node(self, name: str) -> None:
        if self.labels.pop(name, None) is not None:
            row = self.nodes.row(name)
            assert row is not None
            self.nodes.drop(row)
            self.catalogue.node_changed(row)
            self.nodes.close_row(row)

    def put_slice(self, given: Case) -> Any:
        self.slices[given["slice"]] = given
        return self.catalogue.put_slice(slice_of(given))

    def remove_slice(self, name: str) -> None:
        self.slices.pop(name, None)
        self.catalogue.remove_slice(name)

    def put_rule(self, given: DeviceTaintRule) -> Any:
        self.rules[given.metadata.name] = given
        return self.catalogue.put_rule(given)

    def remove_rule(self, name: str) -> None:
        self.rules.pop(name, None)
        self.catalogue.remove_rule(name)

    def claim(self, key: str, devices: list[str]) -> None:
        self.claims[key] = devices
        self.use.add(key, [_use(id) for id in devices])

    def release(self, key: str) -> None:
        self.claims.pop(key, None)
        self.use.remove(key)

    def anew(self) -> World:
        made = World()
        for name, region in self.labels.items():
            made.put_node(name, region)
        for slice in self.slices.values():
            made.put_slice(slice)
        for each in self.rules.values():
            made.put_rule(each)
        for key, devices in self.claims.items():
            made.claim(key, devices)
        for other in self.use.keys() - set(self.claims):
            made.use.add(other, self.use.results(other))
        return made

    def answers(self, claim: Case) -> dict[str, Any]:
        request = self.allocator.request([claim_spec(claim)])
        found: dict[str, Any] = {}
        rows = np.array([self.nodes.row(name) for name in sorted(self.labels)], dtype=np.intp)
        verdicts = self.allocator.feasible(request, rows, self.use)
        many = self.allocator.feasible(request, np.repeat(rows, 30), self.use)
        assert verdicts.codes.tolist() == many.codes.tolist()[::30]
        for name, row, code in zip(
            sorted(self.labels), rows.tolist(), verdicts.codes.tolist(), strict=True
        ):
            names = [ClaimName("default", "job", "uid")]
            outcome = self.allocator.allocate(request, row, self.use, names)
            found[name] = (code, msgspec.json.encode(outcome))
        return found


@st.composite
def published(draw: st.DrawFn) -> Case:
    number = draw(st.integers(1, 4))
    at: Any = draw(st.sampled_from([*NODES, *NODES, "all", "east", "each"]))
    devices = [
        {"device": f"dev-{n}", "attributes": {"size": draw(st.integers(1, 2))}}
        for n in range(draw(st.integers(1, 3)))
    ]
    if at == "each":
        for device in devices:
            device["at"] = draw(st.sampled_from([*NODES[:2], "all"]))
    return {
        "slice": f"slice-{number}",
        "pool": f"gpu/rack-{draw(st.integers(1, 2)) if at == 'all' else number}",
        "of": draw(st.sampled_from([1, 1, 1, 2])),
        "generation": draw(st.integers(1, 2)),
        "at": {"region": ["east"]} if at == "east" else at,
        "devices": devices,
    }


steps = st.one_of(
    st.tuples(st.just("put_slice"), published()),
    st.tuples(st.just("remove_slice"), st.sampled_from([f"slice-{n}" for n in range(1, 5)])),
    st.tuples(st.just("put_node"), st.sampled_from(NODES), st.sampled_from(["east", "west"])),
    st.tuples(st.just("drop_node"), st.sampled_from(NODES)),
    st.tuples(
        st.just("put_rule"),
        st.sampled_from([rule("a"), rule("a", pool="rack-1"), rule("b", device="dev-0")]),
    ),
    st.tuples(st.just("remove_rule"), st.sampled_from(["a", "b"])),
    st.tuples(
        st.just("claim"),
        st.sampled_from(["c1", "c2"]),
        st.lists(
            st.sampled_from([f"gpu/rack-{p}/dev-{d}" for p in range(1, 4) for d in range(2)]),
            max_size=2,
            unique=True,
        ),
    ),
    st.tuples(st.just("release"), st.sampled_from(["c1", "c2"])),
)


@examples(40)
@given(st.lists(steps, min_size=2, max_size=14))
def test_answers_follow_every_change(changes: list[tuple[Any, ...]]) -> None:
    world = World()
    for name in NODES[:3]:
        world.put_node(name, "east" if name != "beta" else "west")
    for number, (what, *arguments) in enumerate(changes):
        getattr(world, what)(*arguments)
        fresh = world.anew()
        for claim in (CLAIMS[number % len(CLAIMS)], CLAIMS[0]):
            assert world.answers(claim) == fresh.answers(claim)
    table = world.catalogue.table
    assert sum(entry is not None for entry in table.entries) == sum(
        len(each.get("devices", ())) for each in world.slices.values()
    )
    assert world.use.check() == []
    for name in list(world.slices):
        world.remove_slice(name)
    for key in list(world.claims):
        world.release(key)
    assert table.identities.used == table.shapes.used == 0
    assert table.taint_sets.used == table.consumptions.used == 1


def _world() -> World:
    world = World()
    for name in NODES:
        world.put_node(name, "east")
        world.put_slice(
            {"slice": f"{name}-gpus", "pool": f"gpu/{name}", "at": name, "devices": ["dev-0"]}
        )
    return world


def test_rows_of_changes_are_those_of_the_nodes_that_see_them() -> None:
    world = _world()
    slice = {"slice": "alpha-gpus", "pool": "gpu/alpha", "at": "alpha", "devices": ["dev-0"]}
    assert world.put_slice(slice).tolist() == []
    assert world.put_slice({**slice, "devices": ["dev-0", "dev-1"]}).tolist() == [0]
    assert world.put_slice({**slice, "at": "beta"}).tolist() == [0, 1]
    assert world.put_rule(rule("r", pool="gamma")).tolist() == [2]
    assert world.put_rule(rule("r", pool="gamma")).tolist() == []
    assert world.put_rule(rule("r", pool="gamma", taint="x:None")).tolist() == [2]
    shared = {"slice": "network", "pool": "gpu/network", "at": "all", "devices": ["dev-0"]}
    assert world.put_slice(shared) is None
    device = DeviceID("gpu", "delta", "dev-0")
    found = world.catalogue.rows_of([device])
    assert found is not None
    assert found.tolist() == [3]
    assert world.catalogue.rows_of([device, DeviceID("gpu", "network", "dev-0")]) is None
    assert world.catalogue.remove_slice("none") is not None


def test_a_shared_slice_is_replaced_for_nodes_without_slices_of_their_own() -> None:
    world = World()
    world.put_node("alpha", "east")
    world.put_node("beta", "west")
    devices = [{"device": "dev-0", "attributes": {"size": 1}}]
    shared = {"slice": "network", "pool": "gpu/network", "at": {"region": ["east"]}}
    world.put_slice({**shared, "devices": devices})
    claim = CLAIMS[3]
    assert [code for code, _ in world.answers(claim).values()] == [1, 1]
    larger = [{"device": "dev-0", "attributes": {"size": 2}}]
    world.put_slice({**shared, "devices": larger})
    assert [code for code, _ in world.answers(claim).values()] == [0, 1]
    world.put_node("beta", "east")
    assert [code for code, _ in world.answers(claim).values()] == [0, 0]
    world.put_slice({**shared, "devices": [{"device": "dev-1", "attributes": {"size": 2}}]})
    assert world.answers(claim) == world.anew().answers(claim)


_SHARED = {"device": "dev-0", "shared": True, "capacity": {"memory": 2}}
_COUNTED = {"device": "dev-0", "consumes": {"chip": {"parts": 1}}}


@pytest.mark.parametrize(
    ("claim", "differences"),
    [
        (
            {"requests": {"main": {"class": "gpus", "capacity": {"memory": 2}}}},
            [{"devices": [_SHARED]}, {"devices": [_SHARED], "shares": {"memory": 1}}],
        ),
        (
            {"requests": {"main": "gpus", "side": "gpus"}},
            [{"devices": ["dev-0", "dev-1"]}, {"devices": ["dev-0", "dev-1"], "in_use": True}],
        ),
        (
            {"requests": {"main": "gpus"}, "match": ["gpu/size"]},
            [
                {"devices": [{"device": "dev-0", "attributes": {"size": 1}}]},
                {"devices": [{"device": "dev-0", "attributes": {"weight": 1}}]},
            ],
        ),
        (
            {"requests": {"main": "gpus x all"}},
            [{"devices": ["dev-0"]}, {"devices": ["dev-0"], "of": 2}],
        ),
        (
            {"requests": {"main": "gpus"}},
            [
                {"devices": [_COUNTED, {**_COUNTED, "device": "dev-1"}], "parts": 2, "in_use": True},
                {"devices": [_COUNTED, {**_COUNTED, "device": "dev-1"}], "parts": 1, "in_use": True},
            ],
        ),
        (
            {"requests": {"main": "gpus x all"}},
            [{"devices": ["dev-0"]}, {"devices": ["dev-0"], "updating": True}],
        ),
        (
            {"requests": {"main": [{"best": "gpus"}]}},
            [
                {"devices": [_COUNTED, {**_COUNTED, "device": "dev-1"}], "parts": 2, "in_use": True},
                {"devices": [_COUNTED, {**_COUNTED, "device": "dev-1"}], "parts": 1, "in_use": True},
            ],
        ),
        (
            {"requests": {"main": "gpus"}},
            [
                {"devices": [_COUNTED], "parts": 1},
                {"devices": [_COUNTED], "parts": 1, "elsewhere": True},
            ],
        ),
        (
            {"requests": {"main": [{"best": "gpus"}]}},
            [
                {"devices": [_COUNTED], "parts": 1},
                {"devices": [_COUNTED], "parts": 1, "elsewhere": True},
            ],
        ),
    ],
)
def test_nodes_that_differ_in_one_thing_have_answers_of_their_own(
    claim: Case, differences: list[Case]
) -> None:
    world = World()
    for name, difference in zip(NODES, differences, strict=False):
        _publish(world, name, dict(difference))
    codes = [code for code, _ in world.answers(claim).values()]
    assert codes[0] != codes[1]
    assert codes == [code for code, _ in world.anew().answers(claim).values()]
    for name in NODES[:2]:
        alone = World()
        _publish(alone, name, dict(differences[NODES.index(name)]))
        assert alone.answers(claim)[name] == world.answers(claim)[name]


def _publish(world: World, name: str, difference: Case) -> None:
    """A node with one pool, the counters of the pool, and what is in use of it."""
    world.put_node(name, "east")
    parts, shares = difference.pop("parts", 0), difference.pop("shares", None)
    in_use, elsewhere = difference.pop("in_use", False), difference.pop("elsewhere", False)
    if difference.pop("updating", False):
        half = {"pool": f"gpu/{name}-2", "of": 2, "at": name, "devices": ["dev-0"]}
        world.put_slice({"slice": f"{name}-half", **half})
    head: Case = {"pool": f"gpu/{name}", "at": name}
    if parts:
        head["of"] = 3 if elsewhere else 2
        counters = [{"chip": {"parts": parts}}]
        world.put_slice({"slice": f"{name}-counters", **head, "counters": counters})
    world.put_slice({"slice": f"{name}-devices", **head, **difference})
    if elsewhere:
        other = {**head, "at": "nowhere", "devices": [{**_COUNTED, "device": "dev-9"}]}
        world.put_slice({"slice": f"{name}-elsewhere", **other})
        world.claim(f"{name} elsewhere", [f"gpu/{name}/dev-9"])
    if in_use:
        world.claim(f"{name} in use", [f"gpu/{name}/dev-0"])
    if shares is not None:
        world.use.add(
            f"{name} share",
            [_use(f"gpu/{name}/dev-0", shareID="share", consumedCapacity=shares)],
        )


def test_columns_grow_with_the_devices() -> None:
    world = World()
    world.put_node("alpha", "east")
    devices = [{"device": f"dev-{n}", "attributes": {"size": n}} for n in range(300)]
    claim = {"requests": {"main": {"class": "gpus", "where": ['device.attributes["gpu"].size >= 2']}}}
    for length in (1, 2, 3, 100, 300, 2):
        world.put_slice(
            {"slice": "many", "pool": "gpu/alpha", "at": "alpha", "devices": devices[:length]}
        )
        world.claim("all but one", [f"gpu/alpha/dev-{n}" for n in range(length - 1)])
        ((code, _),) = world.answers(claim).values()
        assert code == (0 if length >= 3 else 1)


def test_a_rule_without_a_selector_taints_every_device() -> None:
    world = _world()
    claim = {"requests": {"main": "gpus"}}
    assert {code for code, _ in world.answers(claim).values()} == {0}
    world.put_rule(rule("everything"))
    assert {code for code, _ in world.answers(claim).values()} == {1}
    tolerant = {"requests": {"main": {"class": "gpus", "tolerates": ["health:NoSchedule"]}}}
    assert {code for code, _ in world.answers(tolerant).values()} == {0}
    request = world.allocator.request([claim_spec(claim)])
    (reason,) = explain(world.allocator, request, 0, world.use).devices
    assert (reason.reason, reason.detail) == ("taint", "health=bad:NoSchedule")


def test_a_changed_class_makes_another_request() -> None:
    world = _world()
    spec = claim_spec({"requests": {"main": "gpus"}})
    before = world.allocator.request([spec])
    assert world.allocator.request([spec]) is before
    world.catalogue.put_class(device_class("gpus", "nic"))
    after = world.allocator.request([spec])
    assert after is not before
    assert world.allocator.feasible(after, np.arange(4), world.use).feasible.tolist() == [False] * 4
    world.catalogue.remove_class("gpus")
    assert world.allocator.request([spec]).missing_class == ("main", "gpus")

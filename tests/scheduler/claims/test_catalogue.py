"""Slices, rules and nodes come and go: answers are those of a catalogue made anew."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
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
        len(each["devices"]) for each in world.slices.values()
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

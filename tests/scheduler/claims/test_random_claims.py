"""Random claims on random devices: the same choice as the plain allocator's, and no limit exceeded."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.strategies import examples
from holdfast.api.meta import ObjectMeta
from holdfast.api.node import Node
from holdfast.api.quantity import parse
from holdfast.scheduler.cluster.node_table import node_info
from holdfast.scheduler.managers.claims import (
    ClaimsAllocation,
    ClaimsRefusal,
)
from holdfast.scheduler.managers.claims.allocator import FEASIBLE, NO_DEVICES, PROBLEM
from scheduler.claims.plain_allocator import Failed, PlainAllocator
from scheduler.claims.table_format import Case, CaseCluster

SELECTORS = (
    'device.attributes["gpu"].size > 1',
    'device.attributes["gpu"].color == "red"',
    'device.attributes["gpu"].?color.orValue("red") == "red"',
    'device.capacity["gpu"].memory.compareTo(quantity("2")) >= 0',
    '"color" in device.attributes["gpu"] && !device.allowMultipleAllocations',
)
few = st.integers(1, 2)
maybe = st.booleans()


@st.composite
def devices(draw: st.DrawFn, name: str, counted: bool) -> Case:
    found: Case = {"device": name, "attributes": {"size": draw(st.integers(1, 2))}}
    if draw(st.integers(0, 3)):
        found["attributes"]["color"] = draw(st.sampled_from(["red", "blue"]))
    if draw(maybe):
        found["capacity"] = {"memory": draw(st.integers(1, 3))}
    if draw(st.integers(0, 2)) == 0:
        found["shared"] = True
    if draw(st.integers(0, 4)) == 0:
        found["taints"] = ["health=bad:NoSchedule"]
    if counted and draw(maybe):
        found["consumes"] = {"chip": {"parts": draw(few)}}
    return found


@st.composite
def slices(draw: st.DrawFn) -> list[Case]:
    found = []
    number = 0
    for pool in ("rack-1", "rack-2")[: draw(few)]:
        counted = draw(maybe)
        listed = []
        for _ in range(draw(st.integers(1, 3))):
            number += 1
            listed.append(draw(devices(f"dev-{number}", counted)))
        head = {"pool": f"gpu/{pool}", "of": 2 if counted else 1}
        found.append({"slice": f"{pool}-devices", **head, "devices": listed})
        if counted:
            counters = [{"chip": {"parts": draw(st.integers(1, 4))}}]
            found.append({"slice": f"{pool}-counters", **head, "counters": counters})
    return found


@st.composite
def demands(draw: st.DrawFn, exact: bool) -> Case:
    found: Case = {"class": "gpus", "count": draw(st.sampled_from([1, 1, 1, 2, 3, "all"]))}
    if draw(st.integers(0, 2)) == 0:
        found["where"] = [draw(st.sampled_from(SELECTORS))]
    if draw(maybe):
        found["tolerates"] = ["health:NoSchedule"]
    if draw(st.integers(0, 3)) == 0:
        found["capacity"] = {"memory": draw(few)}
    if exact and draw(st.integers(0, 5)) == 0:
        found["admin"] = True
    return found


@st.composite
def claims(draw: st.DrawFn, prefix: str) -> Case:
    requests: Case = {}
    for number in range(draw(few)):
        name = f"{prefix}-{number}"
        if draw(st.integers(0, 2)) == 0:
            requests[name] = [{"best": draw(demands(False))}, {"next": draw(demands(False))}]
        else:
            requests[name] = draw(demands(True))
    found: Case = {"requests": requests}
    for kind in ("match", "distinct"):
        if draw(st.integers(0, 4)) == 0:
            found[kind] = [draw(st.sampled_from(["gpu/color", "gpu/size"]))]
    return found


@st.composite
def situations(draw: st.DrawFn) -> Case:
    given = draw(slices())
    all_devices = [
        (f"{each['pool']}/{device['device']}", device)
        for each in given
        for device in each.get("devices", ())
    ]
    taken, shares = [], {}
    for id, device in all_devices:
        if draw(st.integers(0, 4)) == 0:
            if device.get("shared"):
                memory = device.get("capacity", {}).get("memory")
                shares[id] = {"memory": 1} if memory else {}
            else:
                taken.append(id)
    names = ("job", "aux")[: draw(few)]
    return {
        "case": "random",
        "slices": given,
        "in_use": taken,
        "shares": shares,
        "claims": {name: draw(claims(name)) for name in names},
    }


def _plain(cluster: CaseCluster) -> Any:
    asked: dict[str, Any] = {}
    for spec in cluster.claims.values():
        for request in spec.devices.requests:
            for name, part in [
                (request.name, request.exactly),
                *((f"{request.name}/{each.name}", each) for each in request.first_available),
            ]:
                if part is not None and part.capacity is not None:
                    asked[name] = part.capacity.requests
    in_use = [
        result
        for key in [*(f"user-{n}" for n in range(99)), *(f"sharer of {id}" for id in _ids(cluster))]
        for result in cluster.use.results(key)
    ]
    entries = {each.slice_name for each in cluster.catalogue.table.entries if each is not None}
    names = {each["slice"] for each in cluster.case["slices"]} | entries
    slices = [found for name in sorted(names) if (found := cluster.catalogue.slice(name)) is not None]
    plain = PlainAllocator(slices, cluster.catalogue.classes, in_use, asked=asked)
    return plain.allocate(list(cluster.claims.values()))


def _ids(cluster: CaseCluster) -> list[str]:
    return list(cluster.case["shares"])


@examples(150)
@given(situations())
def test_random_claims_get_what_an_exhaustive_search_finds_first(case: Case) -> None:
    cluster = CaseCluster(case)
    found = cluster.allocator.allocate(cluster.request, cluster.row, cluster.use, cluster.names)
    verdicts = cluster.allocator.feasible(cluster.request, np.array([cluster.row]), cluster.use)
    assert verdicts.feasible.all() == isinstance(found, ClaimsAllocation)
    try:
        wanted = _plain(cluster)
    except Failed:
        # How far a search gets before it meets the problem is the same in both, so both meet it.
        assert isinstance(found, ClaimsRefusal)
        assert found.fatal
        return
    if isinstance(found, ClaimsRefusal):
        if found.fatal:
            assert "constraint" in found.message
            return
        assert wanted is None
        return
    assert wanted == [
        (number, each.request, each.device_id)
        for number, result in enumerate(found.results)
        for each in result.devices.results
    ]
    _check_limits(cluster, found)


def _check_limits(cluster: CaseCluster, found: ClaimsAllocation) -> None:
    """No device twice, no more capacity or counters than there are."""
    for number, result in enumerate(found.results):
        cluster.use.add(f"new-{number}", result.devices.results)
    assert cluster.use.check() == []
    visible = cluster.catalogue.visible(cluster.row)
    exclusive = [entry for entry in visible.entries if not entry.device.allow_multiple_allocations]
    assert all(cluster.use.taken[entry.identity] <= 1 for entry in exclusive)
    for entry in visible.entries:
        for name, used in cluster.use.consumed(entry.identity).items():
            assert used <= parse(entry.device.capacity[name].value)
    before = CaseCluster(cluster.case)
    for pool, old in zip(visible.pools, before.catalogue.visible(before.row).pools, strict=True):
        for key, left in cluster.use.available(pool).items():
            assert left >= min(0, before.use.available(old)[key])


@examples(40)
@given(situations(), st.randoms(use_true_random=False))
def test_a_claim_considered_gone_leaves_what_there_is_without_it(case: Case, random: Any) -> None:
    cluster, empty = CaseCluster(case), CaseCluster({**case, "in_use": [], "shares": {}})
    keys = [f"user-{n}" for n in range(len(case["in_use"]))]
    keys += [f"sharer of {id}" for id in case["shares"]]
    random.shuffle(keys)
    use = cluster.use.without(keys)
    given = cluster.allocator.allocate(cluster.request, cluster.row, use, cluster.names)
    assert given == empty.allocator.allocate(empty.request, empty.row, empty.use, empty.names)
    rows = np.array([cluster.row])
    assert (
        cluster.allocator.feasible(cluster.request, rows, use).codes.tolist()
        == empty.allocator.feasible(empty.request, rows, empty.use).codes.tolist()
    )
    assert cluster.use.check() == []


@examples(60)
@given(st.lists(situations(), min_size=2, max_size=4))
def test_nodes_that_look_alike_do_not_get_the_answers_of_others(cases: list[Case]) -> None:
    """One cluster of several nodes, each with the slices and the use of one case, and the claims of the
    first."""
    joined: Case = {"case": "random", "slices": [], "in_use": [], "shares": {}}
    for number, case in enumerate(cases):
        for slice in case["slices"]:
            pool = f"{slice['pool']}-{number}"
            joined["slices"].append(
                {**slice, "slice": f"{slice['slice']}-{number}", "pool": pool, "at": f"node-{number}"}
            )
        joined["in_use"] += [_on_node(id, number) for id in case["in_use"]]
        joined["shares"] |= {_on_node(id, number): used for id, used in case["shares"].items()}
    cluster = CaseCluster({**joined, "claims": cases[0]["claims"], "node": "node-0"})
    for number in range(1, len(cases)):
        row = cluster.nodes.open_row(f"node-{number}")
        metadata = ObjectMeta(name=f"node-{number}")
        cluster.nodes.put(row, node_info(Node(metadata=metadata)))
        cluster.catalogue.node_changed(row)
    rows = np.arange(len(cases))
    for asked in (rows, np.tile(rows, 20)):
        verdicts = cluster.allocator.feasible(cluster.request, asked, cluster.use)
        for row, code, score in zip(asked, verdicts.codes, verdicts.scores, strict=True):
            found = cluster.allocator.allocate(cluster.request, int(row), cluster.use, cluster.names)
            if isinstance(found, ClaimsAllocation):
                assert (code, score) == (FEASIBLE, found.score)
            else:
                assert code == (PROBLEM if found.fatal else NO_DEVICES)


def _on_node(id: str, number: int) -> str:
    driver, pool, device = id.split("/")
    return f"{driver}/{pool}-{number}/{device}"

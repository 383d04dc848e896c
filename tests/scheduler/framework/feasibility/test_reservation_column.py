"""The column of a class that owns reservations remembers how rows fared, and says what one made from
scratch would say."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.objects import Raw, node, pod, reservation
from harness.world import World
from holdfast.plugin import Cells, Filter, Handle, Plugin, PodClass, Reason, Scope, View
from holdfast.scheduler.cluster.records import ReservationEntry
from holdfast.scheduler.framework.feasibility import rows
from holdfast.scheduler.framework.feasibility.reservation_column import ReservationColumn
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE

_ORDER = "scheduling.koordinator.sh/reservation-order"


def a_reservation(name: str, rng: random.Random, alike: bool) -> Raw:
    if alike:
        return reservation(name, requests={"cpu": "4", "memory": "8G"}, allocateOnce=False)
    requests = {"cpu": rng.choice(("1", "4", "4500m")), "memory": rng.choice(("1G", "8G"))}
    labels = {_ORDER: rng.choice("12")} if rng.random() < 0.2 else {}
    return reservation(
        name,
        requests=requests,
        allocateOnce=rng.random() < 0.3,
        allocatePolicy=rng.choice(("", "Aligned", "Restricted")),
        labels=labels,
    )


def an_owner(name: str, cpu: str = "1") -> Raw:
    return pod(name, app="a", requests={"cpu": cpu, "memory": "1G"})


def kept_column(world: World, name: str) -> ReservationColumn:
    scheduler = world.scheduler
    cls = scheduler.cluster.pods[f"pod-{name}"].cls
    column = scheduler.columns.column(scheduler.profiles[0], cls)
    assert isinstance(column, ReservationColumn)
    return column


def check(world: World, column: ReservationColumn) -> None:
    """What is kept of every row against a column that never saw a row before."""
    column.refresh()
    fresh = ReservationColumn(world.scheduler.cluster, world.scheduler.profiles[0], column.cls)
    fresh.refresh()
    assert column.fits.tolist() == fresh.fits.tolist()
    assert column.totals()[column.fits].tolist() == fresh.totals()[fresh.fits].tolist()
    assert (column.totals()[~column.fits] <= INFEASIBLE // 2).all()
    assert column.best() == fresh.best()
    for row in range(len(column.fits)):
        if column.fits_row(row):
            assert column.reservation_uid(row) == fresh.reservation_uid(row)


def live(world: World, rng: random.Random, steps: int) -> ReservationColumn:
    """Owners of two sizes and strangers come and go, reservations too, and nodes change."""
    world.put(an_owner("first"))
    column = kept_column(world, "first")
    there: list[str] = []
    for number in range(steps):
        what = rng.random()
        if what < 0.7 or not there:
            made = rng.choice((an_owner, an_owner, lambda name: an_owner(name, "1500m"), pod))
            there.append(f"p{number}")
            world.put(made(there[-1]))
        elif what < 0.85:
            world.delete("Pod", there.pop(rng.randrange(len(there))))
        elif what < 0.95:
            name = f"n{rng.randrange(6)}"
            world.put(node(name, cpu=rng.choice(("16", "24"))))
        else:
            world.put(a_reservation(f"late-{number}", rng, alike=False))
        check(world, column)
    return column


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "of all sorts"])
@pytest.mark.parametrize("seed", range(8))
def test_rows_fare_as_if_looked_at_for_the_first_time(seed: int, alike: bool) -> None:
    rng = random.Random(seed)
    nodes = [node(f"n{i}", cpu="16" if alike else rng.choice(("8", "16"))) for i in range(6)]
    world = World(*nodes, *(a_reservation(f"r{i}", rng, alike) for i in range(6)))
    world.shrinking = True
    live(world, rng, 30)


@pytest.mark.parametrize("seed", range(4))
def test_it_makes_no_difference_when_the_memory_is_full(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_MEMO_ENTRIES", 3)
    rng = random.Random(seed)
    world = World(
        *(node(f"n{i}") for i in range(6)),
        *(a_reservation(f"r{i}", rng, alike=False) for i in range(6)),
    )
    world.shrinking = True
    live(world, rng, 20)


@pytest.mark.parametrize("seed", range(8))
def test_last_slots_fare_as_if_looked_at_for_the_first_time(seed: int) -> None:
    rng = random.Random(seed)
    world = World(
        *(node(f"n{i}", allocatable={"pods": rng.choice("123")}) for i in range(8)),
        *(a_reservation(f"r{i}", rng, alike=False) for i in range(8)),
        *(reservation(f"s{i}", "") for i in range(2)),
    )
    world.put(pod("idle", "", "a"), pod("first", "1", "a"))
    columns = [kept_column(world, name) for name in ("idle", "first")]
    for number in range(12):
        world.put(pod(f"p{number}", rng.choice(("", "", "1")), rng.choice("aab")))
        if number % 3 == 2:
            world.delete("Pod", f"p{number - rng.randrange(3)}")
        for column in columns:
            check(world, column)


def test_rows_that_are_alike_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight nodes with a reservation for four: the ninth owner finds a row in a state known already,
    and so do all that follow."""
    world = World(
        *(node(f"n{i}") for i in range(8)),
        *(
            reservation(f"r{i}", requests={"cpu": "4", "memory": "4G"}, allocateOnce=False)
            for i in range(8)
        ),
    )
    looked = []
    whole = ReservationColumn._evaluate

    def evaluate(self: ReservationColumn, entry: ReservationEntry) -> object:
        looked.append(entry.row)
        return whole(self, entry)

    monkeypatch.setattr(ReservationColumn, "_evaluate", evaluate)
    for number in range(8):
        world.put(an_owner(f"early-{number}"))
    assert looked, "the first row's states are not known yet"
    looked.clear()
    for number in range(16):
        world.put(an_owner(f"late-{number}"))
        assert world.reservation_of(f"late-{number}")
    assert not looked


def test_a_state_known_from_elsewhere_is_not_mistaken_where_more_than_amounts_matters() -> None:
    """What is kept back inside a restricted reservation is no part of what is remembered."""
    kept_back = '{"resources": {"cpu": "3"}}'
    alike: Raw = {"requests": {"cpu": "4"}, "allocateOnce": False, "allocatePolicy": "Restricted"}
    world = World(
        node("n0"),
        node("n1"),
        reservation("free", **alike),
        reservation(
            "tight",
            annotations={"node.koordinator.sh/reservation": kept_back},
            **alike,
        ),
    )
    for number in range(6):
        world.put(pod(f"p{number}", app="a"))
        check(world, kept_column(world, "p0"))
    drawn = [world.reservation_of(f"p{number}") for number in range(6)]
    assert (drawn.count("free"), drawn.count("tight")) == (4, 1)


class FreeAfter(Plugin):
    """Keeps as much cpu free on a node as its annotation says."""

    name = "FreeAfter"

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self._cpu = handle.slot("cpu")
        self._kept = handle.nodes.annotation("kept", int, missing=0)

    def filter(self, cls: PodClass) -> Filter:
        def passes(view: View) -> Cells:
            return view.free(self._cpu) >= view.take(self._kept)

        def reasons(view: View) -> list[Reason]:
            return [Reason("node(s) had too little left", view.negate(passes(view)))]

        return Filter(passes, reasons, Scope.USAGE, kind=lambda row: int(self._kept.cells[row]))


def test_rows_with_equal_amounts_and_another_kind_are_evaluated_apart() -> None:
    kept = {"n0": "0", "n1": "20000", "n2": "0", "n3": "20000"}

    def offering(name: str, cpu: str) -> Raw:
        raw = node(name, cpu=cpu)
        return {**raw, "metadata": {**raw["metadata"], "annotations": {"kept": kept[name]}}}

    world = World(*(offering(name, "16") for name in kept), plugins=(FreeAfter,))
    world.put(reservation("r", requests={"cpu": "1"}, allocateOnce=False))
    world.put(an_owner("first"))
    column = kept_column(world, "first")
    assert column._score_memo is not None, "rows are memoized"
    for name in kept:
        world.put(offering(name, "17"))
        column.refresh()
    check(world, column)

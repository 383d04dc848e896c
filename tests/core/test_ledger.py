"""Transactions nest, and undoing one leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import make_node, make_pod
from holdfast.core.cluster import Cluster
from holdfast.core.events import Added
from holdfast.core.ledger import Ledger
from holdfast.core.slots import CPU, PODS
from holdfast.core.validate import validate_state
from reference.choices import Chooser, choosing, seeded
from strategies import examples

_ZONE = "topology.kubernetes.io/zone"


def make_cluster() -> Cluster:
    cluster = Cluster()
    for i in range(3):
        node = make_node(f"n{i}").allocatable(cpu="8", memory="16Gi").zone(f"z{i % 2}").obj()
        cluster.feed(Added(node), 0.0)
    zones = cluster.nodes.labels.column(_ZONE)
    cluster.topology.counter("all", lambda cls: True).domains(zones)
    cluster.topology.counter("web", lambda cls: cls.labels.get("app") == "web").domains(zones)
    for i in range(6):
        pod = make_pod(f"p{i}").cpu(f"{i}00m").label("app", "web" if i % 2 else "db")
        if i in (1, 4):
            pod.host_port(80, host_ip="10.0.0.1" if i == 1 else "")
        if i < 2:
            pod.on("n0")
        cluster.feed(Added(pod.obj()), 0.0)
    cluster.ledger.hold("kept", 1, {0: 500, 3: 1})
    return cluster


def snapshot(cluster: Cluster) -> dict[str, Any]:
    """Every number the ledger is answerable for, copied."""
    table, ledger = cluster.nodes, cluster.ledger
    return {
        "claimed": table.claimed.tolist(),
        "held": table.held.tolist(),
        "allocatable": table.allocatable.tolist(),
        "ports": [table.ports.in_use(row) for row in range(table.size)],
        "pods": {row: set(pods) for row, pods in ledger.pods.items()},
        "rows": {uid: pod.row for uid, pod in cluster.pods.items()},
        "holds": {uid: (hold.row, dict(hold.amounts)) for uid, hold in ledger.holds.items()},
        "placed": {cls.id: dict(cls.placed) for cls in cluster.classes},
        "counters": {
            key: (counter.rows.tolist(), counter.domains(table.labels.column(_ZONE)).tolist())
            for key, counter in cluster.topology.counters().items()
        },
    }


def move_something(cluster: Cluster, choose: Chooser) -> None:
    ledger = cluster.ledger
    if choose((True, True, False)):
        pod = cluster.pods[choose(sorted(cluster.pods))]
        if pod.row < 0:
            ledger.place(pod, choose((0, 1, 2)))
        else:
            ledger.remove(pod)
        return
    uid = choose(("kept", "h1", "h2"))
    if uid in ledger.holds:
        ledger.release(uid)
    else:
        ledger.hold(uid, choose((0, 1, 2)), {0: choose((0, 100, 900)), 1: 2**30})


class InterruptedPlayError(Exception):
    pass


def play(cluster: Cluster, choose: Chooser, depth: int = 0) -> None:
    """Moves inside nested transactions; each that is not committed leaves no trace."""
    for _ in range(choose((1, 2, 4))):
        move_something(cluster, choose)
        if depth < 3 and choose((True, False)):
            before = snapshot(cluster)
            end = choose(("commit", "undo", "raise"))
            try:
                with cluster.ledger.transaction() as transaction:
                    play(cluster, choose, depth + 1)
                    if end == "commit":
                        transaction.commit()
                    elif end == "raise":
                        raise InterruptedPlayError
            except InterruptedPlayError:
                pass
            if end != "commit":
                assert snapshot(cluster) == before


def assert_all_undone(choose: Chooser) -> None:
    cluster = make_cluster()
    before = snapshot(cluster)
    with cluster.ledger.transaction():
        play(cluster, choose)
    assert snapshot(cluster) == before
    assert not validate_state(cluster)


@examples(50)
@given(st.data())
def test_what_is_not_committed_leaves_no_trace(data: st.DataObject) -> None:
    assert_all_undone(choosing(data.draw))


def test_what_is_not_committed_leaves_no_trace_in_many_plays() -> None:
    for seed in range(examples(200).max_examples):
        assert_all_undone(seeded(seed))


def outer_and_inner(ledger: Ledger, commit_outer: bool, commit_inner: bool) -> None:
    with ledger.transaction() as outer:
        ledger.hold("outer", 0, {0: 1})
        with ledger.transaction() as inner:
            ledger.hold("inner", 0, {0: 10})
            if commit_inner:
                inner.commit()
        ledger.hold("after", 0, {0: 100})
        if commit_outer:
            outer.commit()


@pytest.mark.parametrize(
    ("commit_outer", "commit_inner", "left"),
    [
        (True, True, {"kept", "outer", "inner", "after"}),
        (True, False, {"kept", "outer", "after"}),
        (False, True, {"kept"}),
        (False, False, {"kept"}),
    ],
)
def test_an_inner_commit_stands_only_with_the_outer(
    commit_outer: bool, commit_inner: bool, left: set[str]
) -> None:
    cluster = make_cluster()
    outer_and_inner(cluster.ledger, commit_outer, commit_inner)
    assert set(cluster.ledger.holds) == left
    assert not validate_state(cluster)


def test_rows_touched_by_what_was_undone_are_in_the_log() -> None:
    """A cache may have read them in between."""
    cluster = make_cluster()
    position = cluster.ledger.changed.end
    with cluster.ledger.transaction():
        cluster.ledger.hold("h", 2, {0: 1})
    changed = cluster.ledger.changed.since(position)
    assert changed is not None and changed.tolist() == [2, 2]


def test_changes_outside_a_transaction_stand_at_once() -> None:
    cluster = make_cluster()
    cluster.ledger.hold("h", 0, {0: 7})
    with cluster.ledger.transaction():
        cluster.ledger.release("h")
    assert cluster.nodes.held[0, 0] == 7


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda ledger: ledger.hold("kept", 0, {0: 1}), "kept already holds room"),
        (
            lambda ledger: ledger.place(ledger.pods[0]["uid-p0"], 0),
            "<Pod/default/p0 assigned> is already on row 0",
        ),
    ],
)
def test_claiming_twice_is_a_mistake(what: Callable[[Ledger], None], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        what(make_cluster().ledger)


def test_free_is_what_is_left_and_may_be_negative() -> None:
    cluster = make_cluster()
    cluster.ledger.hold("much", 0, {CPU: 8000})
    free = cluster.ledger.free(0)
    assert (free[CPU], free[PODS]) == (-100, 108)

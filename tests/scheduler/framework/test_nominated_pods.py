"""Rejections by nodes with nominated pods: kept up to date for a class, and right at any time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from harness.builders import make_node, make_pod
from harness.driver import Driver, profile_of
from harness.strategies import examples
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.events import Added, Deleted, Updated
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.framework.diagnosis import FITS, NodeRejection
from holdfast.scheduler.framework.dry_run import DryRun
from reference.setup import Setup

SETUP = Setup(preempts=True)
NODES = ("n0", "n1", "n2", "n3")


def nominated(number: int, node: str, cpu: int, priority: int, port: int = 0) -> Pod:
    pod = make_pod(f"rival{number}").cpu(str(cpu)).priority(priority)
    if port:
        pod.host_port(port)
    return pod.nominated(node).obj()


def occupant(number: int, node: str, cpu: int, port: int = 0) -> Pod:
    pod = make_pod(f"there{number}").cpu(str(cpu)).priority(1000).on(node)
    if port:
        pod.host_port(port)
    return pod.obj()


moves = st.one_of(
    st.tuples(
        st.just("nominate"),
        st.integers(0, 3),
        st.sampled_from(NODES),
        st.integers(1, 4),
        st.sampled_from((0, 10, 20)),
        st.sampled_from((0, 80)),
    ),
    st.tuples(
        st.just("place"),
        st.integers(0, 3),
        st.sampled_from(NODES),
        st.integers(1, 3),
        st.sampled_from((0, 80)),
    ),
    st.tuples(st.just("forget"), st.sampled_from(("rival", "there")), st.integers(0, 3)),
    st.tuples(st.just("shrink"), st.sampled_from(NODES), st.integers(2, 5)),
    st.tuples(st.just("cordon"), st.sampled_from(NODES), st.booleans()),
)


def move(driver: Driver, what: tuple[Any, ...]) -> None:
    cluster = driver.scheduler.cluster
    match what:
        case ("nominate", number, node, cpu, priority, port):
            known = cluster.pod("default", f"rival{number}")
            if known is None or known.phase is Phase.PENDING:
                driver.scheduler.feed(Updated(nominated(number, node, cpu, priority, port)), 0.0)
        case ("place", number, node, cpu, port):
            if cluster.pod("default", f"there{number}") is None:
                driver.scheduler.feed(Added(occupant(number, node, cpu, port)), 0.0)
        case ("forget", kind, number):
            pod = nominated(number, "n0", 1, 0) if kind == "rival" else occupant(number, "n0", 1)
            driver.scheduler.feed(Deleted(pod), 0.0)
        case ("shrink", node, cpu):
            made = make_node(node).allocatable(cpu=str(cpu), memory="8Gi").obj()
            driver.scheduler.feed(Updated(made), 0.0)
        case ("cordon", node, unschedulable):
            builder = make_node(node).allocatable(cpu="4", memory="8Gi")
            builder.raw_spec["unschedulable"] = unschedulable
            driver.scheduler.feed(Updated(builder.obj()), 0.0)


@examples(150)
@given(st.lists(st.lists(moves, max_size=4), max_size=6), st.sampled_from((0, 80)))
def test_what_is_kept_is_what_a_trial_of_every_row_finds(
    turns: list[list[tuple[Any, ...]]], port: int
) -> None:
    driver = Driver((SETUP,))
    for name in NODES:
        driver.scheduler.feed(Added(make_node(name).allocatable(cpu="4", memory="8Gi").obj()), 0.0)
    wanting = make_pod("wanting").cpu("2").priority(10)
    if port:
        wanting.host_port(port)
    driver.scheduler.feed(Added(wanting.obj()), 0.0)
    cluster, scheduler = driver.scheduler.cluster, driver.scheduler
    pod = driver.record(wanting.obj())
    profile = profile_of(driver.scheduler, "default-scheduler")
    for turn in turns:
        for what in turn:
            move(driver, what)
        column = scheduler.columns.column(profile, pod.cls)
        kept = column.diagnosis
        trial = DryRun(cluster, column, pod, pinned=False)
        rows = [row for row in range(cluster.nodes.size) if cluster.nodes.alive[row]]
        rejections: Counter[NodeRejection] = Counter()
        for row in rows:
            rejections[kept.known_rejection(row)] += 1
            assert kept.known_rejection(row) == trial.rejection(row), cluster.nodes.name(row)
            assert kept.feasible()[row] == trial.fits(row)
            assert kept.resolvable()[row] == trial.rejection(row).resolvable
        del rejections[FITS]
        assert kept.histogram() == rejections
        # Trials leave traces in the log; what is kept must not mind them.
        found = scheduler.search.find_row(profile, pod, scheduler.columns.column(profile, pod.cls))
        assert found < 0 or trial.fits(found)
        assert found >= 0 or not any(trial.fits(row) for row in rows)


def count_trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    tried: list[int] = []
    rejection = DryRun.rejection

    def counted(trial: DryRun, row: int) -> NodeRejection:
        tried.append(row)
        return rejection(trial, row)

    monkeypatch.setattr(DryRun, "rejection", counted)
    return tried


def test_where_rows_depend_on_each_other_siblings_share_what_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zone = "topology.kubernetes.io/zone"
    driver = Driver((SETUP,))
    for i, name in enumerate(NODES):
        driver.add(make_node(name).label(zone, f"z{i % 2}").allocatable(cpu="4", memory="8Gi").obj())
        driver.add(make_pod(f"there{i}").cpu("2").priority(-1).on(name).obj())
    urgent = [make_pod(f"urgent{i}").cpu("3").priority(10).obj() for i in range(len(NODES))]
    driver.add(*urgent).round()
    assert driver.scheduler.cluster.nominator.keys() == set(NODES)
    tried = count_trials(monkeypatch)
    crowd = [make_pod(f"p{i}").cpu("1").spread(zone, 1, {"app": "a"}) for i in range(20)]
    driver.add(*(pod.preemption_policy("Never").obj() for pod in crowd))
    driver.round()
    text = "0/4 nodes are available: 4 Insufficient cpu."
    told = {driver.record(pod.obj()).condition_message.partition(" preemption")[0] for pod in crowd}
    assert told == {text}
    assert len(tried) <= 2 * len(NODES)
    assert list(driver.delete(urgent[0]).binds(20.0).values()) == ["n0", "n0"]

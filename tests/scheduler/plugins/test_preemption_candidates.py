"""What preemption remembers of the nodes it tried is what trying them again would show."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from harness.builders import PodBuilder, make_budget, make_node, make_pod
from harness.driver import Driver, profile_of
from harness.strategies import examples
from holdfast.scheduler.cluster.decisions import Preempt
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.framework.interface import Nomination
from holdfast.scheduler.plugins.default_preemption import DefaultPreemption
from holdfast.scheduler.plugins.preemption_candidates import Ranks
from reference.setup import Setup

SETUP = Setup(preempts=True)
NODES = tuple(f"n{i}" for i in range(6))
numbers, names = st.integers(0, 9), st.sampled_from(NODES)

costs = st.tuples(st.integers(0, 2), st.integers(-5, 5), st.sampled_from((0.0, -1.5, -float("inf"))))


@given(st.lists(costs, max_size=60), st.sampled_from((1, 7, 100)))
def test_ranks_sort_as_costs_do(given_costs: list[Any], renumber_every: int) -> None:
    ranks, of = Ranks(), np.zeros(len(given_costs))
    for i, cost in enumerate(given_costs):
        if i % renumber_every == 0:
            ranks.renumber(of[:i])
        rank = ranks.of(cost)
        assert rank is not None
        of[i] = rank
    assert len(ranks) == len(set(given_costs))
    by_rank = [given_costs[i] for i in np.argsort(of, kind="stable")]
    assert by_rank == sorted(given_costs)
    assert len(set(of.tolist())) == len(set(given_costs))


def test_ranks_run_out_of_room_and_are_numbered_anew() -> None:
    ranks = Ranks()
    assert ranks.of((0.0,)) is not None
    assert ranks.of((1.0,)) is not None
    tight = 0.5
    while ranks.of((tight,)) is not None:
        tight /= 2
    given = np.array([r for r in (ranks.of((0.0,)), ranks.of((1.0,))) if r is not None])
    ranks.renumber(given)
    number = ranks.of((tight,))
    assert number is not None
    assert given[0] < number < given[1]


moves = st.one_of(
    st.tuples(
        st.just("place"),
        numbers,
        names,
        st.integers(1, 3),
        st.sampled_from((0, 0, 5, 100)),
        st.sampled_from((None, 1, 2)),
        st.sampled_from((0, 80)),
    ),
    st.tuples(st.just("start"), numbers, st.integers(1, 3)),
    st.tuples(st.just("delete"), numbers),
    st.tuples(st.just("nominate"), st.integers(0, 2), names, st.sampled_from((10, 50, 90))),
    st.tuples(st.just("node"), names, st.integers(2, 5)),
    st.tuples(st.just("budget"), st.integers(0, 2)),
)


class Walk:
    def __init__(self) -> None:
        self.driver = Driver((SETUP,))
        self.there: dict[int, PodBuilder] = {}
        for name in NODES:
            self.driver.add(make_node(name).allocatable(cpu="4", memory="8Gi").obj())

    def move(self, what: tuple[Any, ...]) -> None:
        match what:
            case ("place", number, node, cpu, priority, start, port) if number not in self.there:
                pod = make_pod(f"v{number}").cpu(str(cpu)).priority(priority).on(node)
                pod.label("app", "ab"[number % 2])
                if start:
                    pod.status(startTime=f"2026-01-0{start}T00:00:00Z")
                if port:
                    pod.host_port(port)
                self.there[number] = pod
                self.driver.add(pod.obj())
            case ("start", number, start) if number in self.there:
                pod = self.there[number].status(startTime=f"2026-01-0{start}T00:00:00Z")
                self.driver.update(pod.obj())
            case ("delete", number) if number in self.there:
                self.driver.delete(self.there.pop(number).obj())
            case ("nominate", number, node, priority):
                nominated = make_pod(f"r{number}").cpu("2").priority(priority).nominated(node)
                self.driver.update(nominated.obj())
            case ("node", name, cpu):
                self.driver.update(make_node(name).allocatable(cpu=str(cpu), memory="8Gi").obj())
            case ("budget", allowed):
                self.driver.add(make_budget("b", {"app": "a"}, allowed))

    def asked(self, plugin: DefaultPreemption, pod: PodBuilder) -> tuple[Any, ...]:
        scheduler, record = self.driver.scheduler, self.driver.record(pod.obj())
        column = scheduler.columns.column(profile_of(scheduler, "default-scheduler"), record.cls)
        trial = DryRun(scheduler.cluster, column, record, pinned=False)
        found: Nomination = plugin.post_filter(record, trial)
        victims = [d.pod.name for d in found.decisions if isinstance(d, Preempt)]
        return found.node, found.message, victims


@examples(150)
@given(st.lists(st.lists(moves, max_size=5), max_size=6), st.sampled_from((0, 80)), st.booleans())
def test_what_is_remembered_is_what_trying_again_would_show(
    turns: list[list[tuple[Any, ...]]], port: int, nominated: bool
) -> None:
    walk = Walk()
    scheduler = walk.driver.scheduler
    pods = [make_pod(name).cpu("3").priority(50) for name in ("one", "two")]
    for pod in pods:
        if port:
            pod.host_port(port)
    if nominated:
        pods[0].nominated("n1")
    walk.driver.add(*(pod.obj() for pod in pods))
    (plugin,) = profile_of(scheduler, "default-scheduler").post_filters
    assert isinstance(plugin, DefaultPreemption)
    for turn in turns:
        for what in turn:
            walk.move(what)
        for pod in pods:
            remembered = walk.asked(plugin, pod)
            for known in scheduler.cluster.pods.values():
                known.being_preempted = False
            kept, plugin._known = plugin._known, {}
            assert remembered == walk.asked(plugin, pod)
            plugin._known = kept
            for known in scheduler.cluster.pods.values():
                known.being_preempted = False

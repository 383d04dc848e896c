"""Victims, the chosen node and the message, side by side over random clusters."""

from __future__ import annotations

import pytest

from harness import choices, storage_choices
from harness.builders import PodBuilder, make_budget
from harness.choices import NODE_NAMES, Chooser, rarely, sometimes
from harness.driver import Driver, profile_of
from harness.strategies import ZONES, examples
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import Nominate, Preempt, SetPodScheduled
from holdfast.scheduler.framework.interface import Nomination
from reference.preemption import preempt
from reference.scheduler import judge
from reference.setup import Setup
from reference.state import ReferenceState

SETUP = Setup(preempts=True)
_TIMES = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z")


class Crowd:
    """Nodes full of pods, most of them unimportant, and a pod that wants in."""

    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.driver, self.world = Driver((SETUP,)), ReferenceState()
        for name in NODE_NAMES[: choose((1, 2, 3, 5))]:
            node = choices.node_builder(choose, name)
            if not rarely(choose):
                node.raw_spec.pop("taints", None)
                node.raw_spec.pop("unschedulable", None)
                node.allocatable(cpu="2", memory="2Gi", pods=choose((3, 5, 110)))
                node.zone(choose(ZONES))
            self.driver.add(made := node.obj())
            self.world.put_node(made)
        self.with_volumes = choose((True, False))
        if self.with_volumes:
            for obj in storage_choices.base(choose):
                self.driver.update(obj)
                self.world.put(obj)
        for i in range(choose((0, 1, 2))):
            app = choose(("a", "b", ""))
            match_labels = {"app": app} if app else {}
            allowed = choose((0, 1, 2, -1))
            disrupted = ["placed0"] if rarely(choose) else []
            budget = make_budget(f"b{i}", match_labels, allowed, disrupted=disrupted)
            self.driver.add(budget)
            self.world.put(budget)
        for i in range(choose((1, 4, 8, 12))):
            self._place(f"placed{i}")
        for i in range(choose((0, 0, 1, 2))):
            self._nominate(f"rival{i}")
        self.pod = self._preemptor()
        self.driver.add(self.pod)

    def _pod(self, name: str) -> PodBuilder:
        choose = self.choose
        pod = choices.pod_builder(choose, name)
        for key in () if sometimes(choose) else ("affinity", "nodeSelector"):
            pod.raw_spec.pop(key, None)
        if self.with_volumes and not rarely(choose):
            if not rarely(choose):
                choices.make_easy(pod)
            storage_choices.use_volumes(choose, pod)
        if choose((True, False)):
            pod.requests({"cpu": choose(("500m", "1", "2")), "memory": choose(("128Mi", "1Gi"))})
        return pod

    def _place(self, name: str) -> None:
        choose = self.choose
        pod = self._pod(name).priority(choose((-10, 0, 0, 5, 5, 50, 200)))
        pod.namespace("other" if name.endswith("1") else "default")
        pod.on(choose(tuple(self.world.nodes) if self.with_volumes else NODE_NAMES))
        if not rarely(choose):
            pod.status(startTime=choose(_TIMES))
        if rarely(choose) and not pod.raw_spec.get("topologySpreadConstraints"):
            pod.deleted()
            if choose((True, False)):
                pod.condition("DisruptionTarget", "True", "PreemptionByScheduler")
        self.driver.add(made := pod.obj())
        self.world.put_pod(made)

    def _nominate(self, name: str) -> None:
        choose = self.choose
        pod = self._pod(name).priority(choose((5, 100, 100, 200))).namespace("default")
        self.driver.add(made := pod.nominated(choose(sorted(self.world.nodes))).obj())
        self.world.nominated[made.metadata.uid] = made

    def _preemptor(self) -> Pod:
        choose = self.choose
        pod = self._pod("preemptor").priority(100)
        if rarely(choose):
            pod.preemption_policy(choose(("Never", "PreemptLowerPriority")))
        if rarely(choose):
            pod.nominated(choose(NODE_NAMES))
        made = pod.obj()
        if made.status.nominated_node_name:
            self.world.nominated[made.metadata.uid] = made
        return made

    def compare(self) -> str:
        """What came of it, for a count."""
        scheduler, pod = self.driver.scheduler, self.pod
        judgement = judge(pod, self.world, SETUP.plugins())
        got = self.driver.answer(pod)
        if judgement.totals:
            own = pod.status.nominated_node_name
            chosen = {own} if own in judgement.totals else judgement.best
            assert got.node in chosen, (got, judgement)
            return "fits"
        assert got.node == ""
        assert got.message == judgement.message
        expected = preempt(pod, self.world, SETUP.plugins(), judgement)
        profile, record = profile_of(scheduler, SETUP.name), self.driver.record(pod)
        column = scheduler.columns.column(profile, record.cls)
        if self.world.nominated:
            nomination = scheduler.preemption.post_filter(profile, record, column)
            victims = [d.pod.name for d in nomination.decisions if isinstance(d, Preempt)]
        else:
            nomination, victims = self._by_a_round(judgement.message)
        if not expected.best:
            assert nomination.message == expected.message, (judgement, expected)
            assert not nomination.node and not victims
            assert (nomination.node is None) == expected.keeps_nomination or not record.nominated
            return expected.message.rpartition(":")[0]
        by_node = {candidate.node: candidate for candidate in expected.best}
        assert nomination.node in by_node, (nomination, expected)
        assert nomination.message == by_node[nomination.node].message
        gone = {p.metadata.name for p in self.world.pods.values() if p.metadata.deletion_timestamp}
        assert victims == [v for v in by_node[nomination.node].victims if v not in gone]
        return "preempts with volumes" if pod.spec.volumes else "preempts"

    def _by_a_round(self, why: str) -> tuple[Nomination, list[str]]:
        decisions = self.driver.round()
        whole = next(d.message for d in decisions if isinstance(d, SetPodScheduled))
        node = next((d.node for d in decisions if isinstance(d, Nominate)), "")
        assert whole.startswith(why)
        message = whole.removeprefix(why).removeprefix(" ")
        assert self.driver.record(self.pod).nominated == node
        return Nomination(node, message), [d.pod.name for d in decisions if isinstance(d, Preempt)]


@pytest.mark.parametrize("start", range(0, examples(2000).max_examples, 250))
def test_same_victims_node_and_message(start: int) -> None:
    outcomes: dict[str, int] = {}
    for seed in range(start, start + 250):
        try:
            outcome = Crowd(choices.seeded(seed)).compare()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes.get("preempts", 0) > 8, outcomes
    assert outcomes.get("preempts with volumes", 0) > 2, outcomes

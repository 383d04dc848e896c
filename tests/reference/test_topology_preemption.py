"""Preemptors that mind where others are, one after the other, while things change between them.

What is found out for one of them is kept for the next, as far as it holds.
"""

from __future__ import annotations

import msgspec
import pytest

from harness import choices
from harness.builders import PodBuilder, Raw, make_pod
from harness.choices import Chooser, sometimes
from harness.driver import profile_of
from harness.strategies import ZONES, examples
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import Preempt
from holdfast.scheduler.framework.interface import Nomination
from reference.test_preemption import SETUP, Crowd

_TOPOLOGY = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")


class Neighbours(Crowd):
    def __init__(self, choose: Chooser) -> None:
        super().__init__(choose)
        self.came = 0

    def _pod(self, name: str) -> PodBuilder:
        choose = self.choose
        pod = make_pod(name).label("app", choose(("a", "b", "c")))
        pod.requests({"cpu": choose(("500m", "500m", "1")), "memory": "128Mi"})
        if sometimes(choose):
            self._with_terms(pod)
        return pod

    def _preemptor(self) -> Pod:
        pod = make_pod("preemptor").label("app", self.choose(("a", "b"))).priority(100)
        pod.requests({"cpu": self.choose(("1", "2")), "memory": "128Mi"})
        for _ in range(self.choose((1, 1, 2))):
            self._with_terms(pod)
        return pod.obj()

    def _with_terms(self, pod: PodBuilder) -> None:
        choose, key = self.choose, self.choose(_TOPOLOGY)
        selector: Raw = {"matchLabels": {"app": choose(("a", "b", "b", "c", "c"))}}
        match choose(("spread", "away", "away", "near", "soft")):
            case "spread":
                pod.spread(key, choose((1, 2)), when="DoNotSchedule", labelSelector=selector)
            case "soft":
                pod.spread(key, 1, when="ScheduleAnyway", labelSelector=selector)
            case "away":
                pod.pod_anti_affinity(key, weight=None, labelSelector=selector)
            case _:
                pod.pod_affinity(key, weight=None, labelSelector=selector)

    def _by_a_round(self, why: str) -> tuple[Nomination, list[str]]:
        """Nothing comes of it, so that others can be tried on the same cluster."""
        scheduler, record = self.driver.scheduler, self.driver.record(self.pod)
        profile = profile_of(scheduler, SETUP.name)
        column = scheduler.columns.column(profile, record.cls)
        nomination = scheduler.preemption.post_filter(profile, record, column)
        return nomination, [d.pod.name for d in nomination.decisions if isinstance(d, Preempt)]

    def follow(self) -> None:
        """Another of the same kind comes, after something happened."""
        self.came += 1
        for record in self.driver.scheduler.cluster.pods.values():
            record.being_preempted = record.cls.terminating
        self._change()
        name = f"preemptor{self.came}"
        own = msgspec.structs.replace(self.pod.metadata, name=name, uid=name)
        self.pod = msgspec.structs.replace(self.pod, metadata=own)
        self.driver.add(self.pod)

    def _change(self) -> None:
        choose, there = self.choose, sorted(self.world.pods)
        match choose(("none", "come", "come", "go", "move", "nominate", "sibling")):
            case "come":
                self._place(f"late{self.came}")
            case "go" if there:
                gone = self.world.pods[choose(there)]
                self.driver.delete(gone)
                self.world.delete_pod(gone.metadata.uid)
            case "move":
                node = choices.node_builder(choose, choose(sorted(self.world.nodes)))
                node.raw_spec.clear()
                node.allocatable(cpu="2", memory="2Gi", pods=110).zone(choose(ZONES))
                self.driver.update(made := node.obj())
                self.world.put_node(made)
            case "nominate":
                self._nominate(f"rival-late{self.came}")
            case "sibling":
                own = msgspec.structs.replace(
                    self.pod.metadata, name=f"sibling{self.came}", uid=f"sibling{self.came}"
                )
                on = msgspec.structs.replace(
                    self.pod.spec, node_name=choose(sorted(self.world.nodes)), priority=choose((5, 100))
                )
                placed = msgspec.structs.replace(self.pod, metadata=own, spec=on)
                self.driver.add(placed)
                self.world.put_pod(placed)


@pytest.mark.parametrize("start", range(0, examples(600).max_examples, 150))
def test_same_victims_for_pods_that_mind_others(start: int) -> None:
    outcomes: dict[str, int] = {}
    for seed in range(start, start + 150):
        crowd = Neighbours(choices.seeded(seed))
        for _ in range(4):
            try:
                outcome = crowd.compare()
            except Exception as error:
                raise AssertionError(f"seed {seed}, after {crowd.came}") from error
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            crowd.follow()
    assert outcomes.get("preempts", 0) > 8, outcomes

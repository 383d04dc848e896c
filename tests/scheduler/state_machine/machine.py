"""The life of a cluster: an API server that remembers what it said, next to the scheduler it feeds.

Every method is something that can happen. After each, `check` compares what the scheduler holds to
be true with what was said; after a round, also with what the reference scheduler finds.
"""

from __future__ import annotations

import copy
from collections import Counter

from harness.builders import make_pod
from harness.choices import Chooser
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import Bind, BindVolume, Nominate, Preempt, SelectNode
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.state.recount import validate_state
from reference.scheduler import judge
from scheduler.state_machine.bind_results import Answers
from scheduler.state_machine.node_events import NodeLife
from scheduler.state_machine.observer import FORBIDDEN, OURS, Witness
from scheduler.state_machine.storage_events import StorageLife


def leaving() -> Pod:
    """A pod that is going to make room for another."""
    return make_pod("x").condition("DisruptionTarget", "True", "PreemptionByScheduler").obj()


class Life(Answers, StorageLife, NodeLife):
    def round(self, choose: Chooser) -> None:
        self.driver.now += choose((0.0, 0.1, 1.0, 3.0, 10.0, 60.0))
        decisions = self.driver.round()
        self._witness()
        for decision in decisions:
            if isinstance(decision, Bind):
                uid = decision.pod.uid
                assert self.reserved[uid] == decision.node and uid not in self.in_flight
                self.in_flight[uid] = decision.node
            elif isinstance(decision, BindVolume | SelectNode):
                self.to_write.append(decision)
            elif isinstance(decision, Preempt):
                self._preempt(decision)
            elif isinstance(decision, Nominate) and decision.pod.uid in self.pods:
                self.pods[decision.pod.uid].status.nominated_node_name = decision.node
        scheduler = self.driver.scheduler
        self.waiting = {
            uid: scheduler.cluster.nodes.name(waiting.row)
            for uid, waiting in scheduler.binding.waiting.items()
        }
        self._check_nothing_was_missed()

    def _preempt(self, decision: Preempt) -> None:
        """The victim begins to go."""
        victim = copy.deepcopy(self.pods[decision.pod.uid])
        preemptor = self.pods[decision.preemptor.uid]
        assert (victim.spec.priority or 0) < (preemptor.spec.priority or 0)
        assert decision.node in (victim.spec.node_name, self.reserved.get(decision.pod.uid))
        victim.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
        victim.status.conditions = leaving().status.conditions
        self._put(victim)

    def settle(self, choose: Chooser) -> None:
        """All binds are answered, all that wait are allowed: nobody is in between any more."""
        Witness.refused.clear()
        while self.waiting or self.in_flight:
            if self.in_flight:
                self.confirm(choose)
            else:
                Witness.allowed.update(self.waiting)
                self.round(choose)
        assumed = [p for p in self.driver.scheduler.cluster.pods.values() if p.phase is Phase.ASSUMED]
        assert not assumed

    def count_more(self, choose: Chooser) -> None:
        """A counter is asked for in the middle of everything."""
        value, key = choose(("a", "b")), choose(("app", "kubernetes.io/hostname", "tier"))
        cluster = self.driver.scheduler.cluster
        counter = cluster.topology.counter(value, lambda cls: cls.labels.get("app") == value)
        counter.domains(cluster.nodes.labels.column(key))

    # What must hold

    def check(self) -> None:
        scheduler = self.driver.scheduler
        self._witness()
        problems = validate_state(scheduler.cluster)
        assert not problems, problems
        waiting = 0
        for uid, pod in self.pods.items():
            place, expected = scheduler.queue.place(uid), self._expected(pod)
            assert place in expected, (place, expected, self.driver.story(pod))
            waiting += expected != (None,)
            record = scheduler.cluster.pods[uid]
            assert (record.phase is Phase.ASSUMED) == (uid in self.reserved), self.driver.story(pod)
            assert (record.phase is Phase.ASSIGNED) == bool(pod.spec.node_name)
        assert len(scheduler.queue) == waiting
        assumed = scheduler.cluster.volumes.assumed
        assert assumed.volumes.keys() == self.world.assumed.keys()
        selecting = {tuple(key): reservation.node for key, reservation in assumed.claims.items()}
        assert selecting == self.world.selecting
        assert self.reserved == self.in_flight | self.waiting
        assert scheduler.cluster.pods.keys() == self.pods.keys()
        held = Counter(pod.spec.node_name for pod in self.world.pods.values())
        for name, count in held.items():
            row = scheduler.cluster.nodes.row(name)
            assert row is not None
            assert len(scheduler.cluster.ledger.pods[row]) == count

    def _expected(self, pod: Pod) -> tuple[str | None, ...]:
        """Where in the queue a pod may be."""
        ours = pod.spec.scheduler_name in OURS
        settled = pod.spec.node_name or pod.metadata.uid in self.reserved
        if not ours or settled or pod.metadata.deletion_timestamp is not None:
            return (None,)
        if pod.spec.scheduling_gates:
            return ("gated",)
        return ("active", "backoff", "unschedulable")

    def _check_nothing_was_missed(self) -> None:
        """After a round a pod still waits only if no node is feasible, a bind of it was refused, or it
        waited in Permit when its node was deleted or it was preempted."""
        for uid, pod in self.pods.items():
            place = self.driver.scheduler.queue.place(uid)
            story = self.driver.story(pod)
            assert place != "active", story
            told = self.driver.scheduler.cluster.pods[uid].condition_message
            if place == "unschedulable" and told != FORBIDDEN:
                judgement = judge(pod, self.world, OURS[pod.spec.scheduler_name].plugins())
                assert not judgement.totals, (judgement.totals, story)
            elif place == "backoff":
                expected = ("was deleted while the pod waited", " preempted.")
                assert "bind refused" in story or any(text in told for text in expected), (told, story)
                due = self.driver.scheduler.next_timer()
                assert due is not None and due > self.driver.now


EVENTS = tuple(
    name
    for part in reversed(Life.__mro__)
    for name in vars(part)
    if not name.startswith("_") and name != "check"
)
"""Everything that can happen, by name."""

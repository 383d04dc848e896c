"""What explain says of pods and gangs in small random clusters is what the scheduler then does in a
hypothetical one."""

import copy
import random
from typing import Any

import pytest

from explanation.test_situations import changed, full, in_default, snapshot_with
from harness.objects import node, pod, pod_group, queue
from harness.world import START
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster
from sim.what_if.clusters import SETUP

Raw = dict[str, Any]
QUEUE = "scheduling.volcano.sh/queue-name"
GROUP = "scheduling.k8s.io/group-name"


def _metadata(name: str, created: str, **annotations: str) -> Raw:
    return {
        "name": name,
        "namespace": "default",
        "uid": name,
        "resourceVersion": "1",
        "creationTimestamp": f"2025-12-31T{created}:00Z",
        "annotations": {key: value for key, value in annotations.items() if value},
    }


class _RandomCluster:
    """One or two nodes with running pods, and pending pods and gangs, with or without queues."""

    def __init__(self, seed: int) -> None:
        self._choice = random.Random(seed).choice
        sizes = {f"n{at}": self._choice((4, 6, 8)) for at in range(self._choice((1, 2)))}
        self.objects = [node(name, cpu=str(cpu), uid=name) for name, cpu in sizes.items()]
        self._queues = self._choice(([""], ["a", "b"]))
        for name in filter(None, self._queues):
            self.objects.append(queue(name, weight=self._choice((1, 1, 2))))
        for at in range(self._choice(range(7))):
            self._run(f"run{at}", sizes)
        minutes = iter(random.Random(seed).sample(range(60), 4))
        for at in range(self._choice((1, 2, 3, 4))):
            self._wait(f"{self._choice('gkxz')}{at}", f"23:{next(minutes):02d}")
        for raw in self.objects:
            raw["metadata"].setdefault("resourceVersion", "1")
            raw["metadata"].setdefault("creationTimestamp", "2025-12-31T22:00:00Z")
            raw["metadata"].setdefault("uid", raw["metadata"]["name"])
            if raw["kind"] == "Pod":
                raw["spec"].setdefault("schedulerName", "default-scheduler")

    def _run(self, name: str, free: dict[str, int]) -> None:
        where, cpu = self._choice(list(free)), self._choice((1, 2, 3))
        metadata = _metadata(name, "23:00", **{QUEUE: self._choice(self._queues)})
        if free[where] >= cpu:
            free[where] -= cpu
            priority = self._choice((0, 0, 5))
            self.objects.append(full(name, str(cpu), where, priority=priority, metadata=metadata))

    def _wait(self, name: str, created: str) -> None:
        of, priority = self._choice(self._queues), self._choice((0, 0, 0, 5, 10))
        size = self._choice((0, 1, 2, 3, 4))
        if size:
            group = in_default(pod_group(name, self._choice(range(size)) + 1))
            group["spec"] |= {"queue": of} if of else {}
            group["metadata"] |= _metadata(name, created)
            self.objects.append(group)
        for member in [f"{name}-{at}" for at in range(size)] or [name]:
            metadata = _metadata(member, created, **{QUEUE: of, GROUP: name if size else ""})
            cpu = str(self._choice((1, 2, 2, 3)))
            made = pod(member, cpu, priority=priority, metadata=metadata)
            self.objects.append({**made, "status": {"phase": "Pending"}})


def _starts(objects: list[Raw], raw: Raw) -> bool:
    """Whether the pod is bound, or as many members as the gang needs."""
    cluster = HypotheticalCluster(SETUP, START, copy.deepcopy(objects))
    bound = [each.object.rpartition("/")[2] for each in cluster.rest() if each.event == "Bound"]
    name = raw["metadata"]["name"]
    if raw["kind"] == "Pod":
        return name in bound
    (group,) = [
        each for each in objects if each["kind"] == "PodGroup" and each["metadata"]["name"] == name
    ]
    return sum(each.startswith(f"{name}-") for each in bound) >= int(group["spec"]["minMember"])


def _says_start(report: Report) -> bool:
    said = (
        "fits now: ",
        "fit now; it is queued",
        "fits now; it is queued",
        "; then it preempts",
        "; then it reclaims",
        "will if it is tried",
        "will in the next round",
        " has preempted ",
        " has reclaimed ",
        " started, it fits ",
    )
    text = f"{report.summary} {' '.join(report.details)}"
    is_taken = " tried before it and take" in report.summary and "; " not in report.summary
    is_taken |= "but does not start then" in report.summary
    return not is_taken and any(each in text for each in said)


_CONTENDED = (42, 43, 101, 321, 379, 425, 665, 707, 723, 1041, 1160, 1188)
"""Clusters in which several of those that are pending want the same pods evicted, or start with what
others leave."""


@pytest.mark.parametrize("seed", [*range(24), *_CONTENDED], ids=str)
def test_what_is_said_to_start_starts_and_advice_helps(seed: int) -> None:
    objects = _RandomCluster(seed).objects
    for raw in objects:
        is_gang = raw["kind"] == "PodGroup"
        is_single = raw["kind"] == "Pod" and GROUP not in raw["metadata"]["annotations"]
        if not is_gang and (not is_single or raw["spec"].get("nodeName")):
            continue
        report = explain(snapshot_with(objects, START), raw)
        assert _says_start(report) == _starts(objects, raw), report
        for each in report.advice:
            if _says_start(report) or each.change.get("until"):
                continue
            assert _starts(changed(objects, each.change), raw), each.text


def test_a_pending_pod_that_preempts_before_it_is_no_victim() -> None:
    """z0 is tried first and preempts; g2 cannot preempt z0, which is on no node, and reclaims."""
    objects = _RandomCluster(8).objects
    (group,) = [raw for raw in objects if raw["metadata"]["name"] == "g2"]
    summary = explain(snapshot_with(objects, START), group).summary
    assert summary.endswith(
        "once default/z0 has preempted default/run2, it reclaims 2 cpu from queue a (default/run1) on "
        "n0."
    )

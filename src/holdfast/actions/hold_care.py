"""Looks after what is held for starving jobs, whether or not any more is going to be.

A hold is dropped when it is pointless: its pod is gone or has another place, its job is ready without
it or cannot be any more, or its node will never do. Of those that stand, it is worked out when they
will be served; each says so.
"""

from holdfast.api.names import HOLD_EXPECTED_START, HOLD_JOB
from holdfast.api.timestamps import format_time
from holdfast.core.cluster import Cluster
from holdfast.core.decisions import AnnotateReservation, Decision, DeleteReservation, Emit
from holdfast.core.jobs.holds import pod_of
from holdfast.core.jobs.outlook import job_start
from holdfast.core.pods import PodRecord
from holdfast.core.promises import Promise
from holdfast.framework.reserving import Reserving

RELEASED = "Released"


class HoldCare:
    def __init__(self, cluster: Cluster, reserving: Reserving) -> None:
        self._cluster = cluster
        self._holds = cluster.jobs.holds
        self._reserving = reserving
        self.starts: dict[str, float | None] = {}
        """When each is expected to be served, by its uid."""
        self._annotated: dict[str, str] = {}
        self._suited: dict[str, int] = {}
        """What had changed of nodes when they were last found to do, by the hold's uid."""

    def run(self, now: float) -> list[Decision]:
        decisions: list[Decision] = []
        for promise in self._holds:
            if promise.uid in self._holds.dropped:
                continue
            pod = self._cluster.pods.get(pod_of(promise))
            why = self._pointless(promise, pod)
            if why:
                decisions += self._drop(promise, pod, why)
        self._look_ahead()
        if self.starts or self._annotated:
            decisions += self._annotations()
        return decisions

    def _drop(self, promise: Promise, pod: PodRecord | None, why: str) -> list[Decision]:
        self._holds.dropped.add(promise.uid)
        about = promise.ref
        if pod is not None:
            about = pod.ref if pod.job is None else pod.job.ref
        job = promise.object.metadata.annotations.get(HOLD_JOB, "")
        text = f"what {promise.name} holds for {job} is released: {why}"
        return [DeleteReservation(promise.ref, why), Emit(about, "Normal", RELEASED, text, "Reserving")]

    def _pointless(self, promise: Promise, pod: PodRecord | None) -> str:
        """Why the hold is no use any more; empty if it is."""
        if pod is None or pod.leaving:
            return "its pod is gone"
        if pod.row >= 0:
            return "" if pod.draws_on == promise.uid else "its pod has another place"
        if self._holds.of(pod) is not promise:
            return "another one is there for its pod"
        job = pod.job
        if job is not None:
            if not job.is_known or job.lacks(job.waiting()):
                return "its job cannot be ready"
            if job.is_ready:
                return "its job is ready"
        if closed := self._cluster.jobs.queues.closed(pod):
            return closed
        reserve = promise.pod
        if reserve is None:
            return promise.error or "it makes no sense"
        if reserve.row < 0:
            if not promise.message:
                return ""
            self._holds.refused(pod, promise.wants_node)
            return f"it finds no room: {promise.message}"
        return self._never_there(promise, pod, reserve.row)

    def _never_there(self, promise: Promise, pod: PodRecord, row: int) -> str:
        nodes, name = self._cluster.nodes, self._cluster.nodes.name(row)
        if not nodes.alive[row]:
            return f"node {name} is gone"
        for slot, amount in promise.amounts.items():
            if not nodes.slots.name(slot):
                continue
            others = nodes.held.item(slot, row) - self._holds.left(promise, slot)
            younger = sum(
                self._holds.left(other, slot)
                for other in self._holds.on(row)
                if promise.is_before(other)
            )
            kept = others - younger + nodes.permanent.item(slot, row)
            if kept + amount > nodes.allocatable.item(slot, row):
                return f"node {name} will never have the room"
        changes = self._cluster.nodes_changed.end
        if self._suited.get(promise.uid) != changes:
            if not self._reserving.suits(pod, row):
                return f"node {name} does not suit its pod any more"
            self._suited[promise.uid] = changes
        return ""

    # When they will be served

    def _look_ahead(self) -> None:
        of_job: dict[object, list[Promise]] = {}
        for promise in self._holds:
            pod = self._cluster.pods.get(pod_of(promise))
            if pod is not None and promise.pod is not None and promise.pod.row >= 0:
                key = pod.uid if pod.job is None else pod.job.name
                of_job.setdefault(key, []).append(promise)
        self.starts = {}
        for promises in of_job.values():
            start = job_start(self._cluster, promises)
            self.starts |= {promise.uid: start for promise in promises}

    def _annotations(self) -> list[Decision]:
        decisions: list[Decision] = []
        said = {}
        for promise in self._holds:
            start = self.starts.get(promise.uid)
            text = format_time(start) if start is not None and promise.waiting else ""
            before = self._annotated.get(
                promise.uid, promise.object.metadata.annotations.get(HOLD_EXPECTED_START, "")
            )
            if text != before:
                decisions.append(AnnotateReservation(promise.ref, {HOLD_EXPECTED_START: text}))
            said[promise.uid] = text
        self._annotated = said
        self._suited = {uid: seen for uid, seen in self._suited.items() if uid in said}
        return decisions

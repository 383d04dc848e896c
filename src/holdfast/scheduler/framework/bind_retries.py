"""Bind retries: a pod that its job needs keeps its place while its bind fails.

    bind failed ──► assumed, in back-off ──► bind decided again ──► bound
                        │                          └──► failed again: a longer back-off
                        └──► its place is released: the job can do without the pod, its node or its
                             reservation is gone, or its binds failed for too long

Other members are bound by then, or may be. If the capacity were released after the first failure, pods
of a higher priority could take it, and the job would be started in part for as long as they run. Only
failures that may pass are retried (`BindRefused.transient`).
"""

from collections.abc import Callable, Mapping

from holdfast.scheduler.cluster.decisions import Decision, Nominate
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.binding_cycle import NOT_ACTIVE, BindingCycle
from holdfast.scheduler.framework.failure_handler import FailureHandler
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.state.cluster import Cluster

RETRY_SECONDS = 120.0
"""For this long after the first failure a bind is retried."""
_FIRST_BACK_OFF = 1.0
_MAX_BACK_OFF = 10.0

RETRYING = "{error}: binding to node {node} is retried, because {job} needs this pod"
GIVEN_UP = "{error}: binding to node {node} failed {failures} times within {seconds:.0f} s"


class BindRetry:
    """An assumed pod whose bind failed."""

    __slots__ = ("due", "failures", "node_gone", "pod", "row", "since")

    def __init__(self, pod: PodRecord, now: float) -> None:
        self.pod = pod
        self.row = pod.row
        self.since = now
        self.failures = 0
        self.due: float | None = None
        """When its bind is decided again; None while the outcome of its bind is open."""
        self.node_gone = False
        """Whether its node was deleted, even if it was recreated since."""


class BindRetries:
    """Keeps the places of pods whose binds failed, and decides these binds again."""

    def __init__(
        self,
        cluster: Cluster,
        profiles: Mapping[str, Profile],
        binding: BindingCycle,
        failures: FailureHandler,
        decisions: list[Decision],
        lost_place: Callable[[Job], None],
    ) -> None:
        """`lost_place` is called with the job of a pod whose bind a plugin refuses."""
        self._cluster = cluster
        self._profiles = profiles
        self._binding = binding
        self._failures = failures
        self._decisions = decisions
        self._lost_place = lost_place
        self._retries: dict[str, BindRetry] = {}
        """By uid."""
        cluster.node_listeners.append(self._node_changed)

    def keep(self, pod: PodRecord, error: str, now: float) -> bool:
        """Has the pod keep its place after a failed bind; False if it is to be released."""
        job = self._needing(pod)
        if job is None:
            return False
        retry = self._retries.get(pod.uid)
        if retry is None or retry.row != pod.row:
            retry = self._retries[pod.uid] = BindRetry(pod, now)
        retry.failures += 1
        if retry.node_gone or now - retry.since >= RETRY_SECONDS:
            return False
        back_off = _FIRST_BACK_OFF * 2.0 ** min(retry.failures - 1, 30)
        retry.due = now + min(back_off, _MAX_BACK_OFF)
        pod.bind_decided, pod.bind_retried = False, True
        node = self._cluster.nodes.name(pod.row)
        text = RETRYING.format(error=error, node=node, job=job.name)
        self._failures.set_condition(pod, text, now, "SchedulerError")
        self._decisions.append(Nominate(pod.ref, node))
        return True

    def released(self, pod: PodRecord, node: str, error: str, now: float) -> str:
        """The pod's place was released after this error: forgets it, and returns the message of its
        condition."""
        retry = self._retries.pop(pod.uid, None)
        if pod.job is not None and not pod.nominated and pod.reservation is None:
            self._decisions.append(Nominate(pod.ref, ""))
        if retry is None or retry.failures == 1:
            return error
        seconds = now - retry.since
        return GIVEN_UP.format(error=error, node=node, failures=retry.failures, seconds=seconds)

    def forget(self, pod: PodRecord) -> None:
        """The pod is bound, deleted or about to be."""
        self._retries.pop(pod.uid, None)

    def run(self, now: float) -> None:
        """Decides the binds that are due again, and releases places that are lost."""
        for retry in list(self._retries.values()) if self._retries else ():
            if retry.due is None:
                continue
            pod = retry.pod
            if pod.phase is not Phase.ASSUMED or pod.row != retry.row:
                self.forget(pod)
            elif lost := self._loss(retry):
                self._cluster.not_bound(pod, lost)
            elif retry.due <= now:
                retry.due = None
                job = self._cluster.jobs.of(pod)
                if not self._binding.bind(self._profiles[pod.scheduler], pod, now):
                    self.forget(pod)  # a plugin refuses it now
                    if job is not None:
                        self._lost_place(job)

    def next_due(self) -> float | None:
        """When the next bind is to be decided again."""
        times = [retry.due for retry in self._retries.values() if retry.due is not None]
        return min(times, default=None)

    def _needing(self, pod: PodRecord) -> Job | None:
        """The pod's job if it is ready with the pod and not without it."""
        job = self._cluster.jobs.of(pod)
        if job is None or pod.reservation is not None or pod.deletion_pending:
            return None
        if len(self._cluster.jobs.partners(job)) == 1 and len(job.members) == 1:
            return None
        if not self._cluster.nodes.alive[pod.row] or not job.is_ready:
            return None
        return None if job.stays_ready_without((pod.uid,)) else job

    def _loss(self, retry: BindRetry) -> str:
        """Why a pod in back-off cannot have its place any more; empty if it can."""
        pod, node = retry.pod, self._cluster.nodes.name(retry.row)
        if retry.node_gone:
            return f"node {node} was deleted before the pod was bound"
        if not self._cluster.reservations.can_be_bound(pod):
            return NOT_ACTIVE
        if self._needing(pod) is None:
            return f"binding to node {node} failed, and its group no longer needs the pod"
        claims = self._cluster.claims
        if claims.active and (lost := claims.gone(pod) or claims.lost_devices(pod, retry.row)):
            return lost
        short = self._binding.short_of(self._profiles[pod.scheduler], pod, retry.row)
        return f"node {node}: {short} before the pod was bound" if short else ""

    def _node_changed(self, row: int) -> None:
        if self._retries and not self._cluster.nodes.alive[row]:
            for retry in self._retries.values():
                retry.node_gone = retry.node_gone or retry.row == row

"""Run-time estimates of pods, and when they are expected to end.

With `learnRunTimes` of the backfill action, a pod whose job often exceeds its estimates is expected to
run as long as the longest of the job's last runs (`finished_runs`).
"""

from collections.abc import Mapping

from holdfast.api.errors import DurationError
from holdfast.api.jobs import VolcanoJob
from holdfast.api.names import RUN_ESTIMATE, VOLCANO_JOB_NAME
from holdfast.api.pod import Pod
from holdfast.api.similar_names import did_you_mean
from holdfast.api.times import parse_duration
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.class_key import is_daemon_pod
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.jobs.finished_runs import FinishedRuns

INVALID_ESTIMATE = "InvalidRunEstimate"
"""The reason of the event of a pod whose estimate is ignored."""
ENDLESS_OWNERS = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node"})
"""Controllers whose pods run until they are deleted: one that ends is created again, or its containers
are restarted; Node is that of mirror pods."""
_DOMAIN = f"{RUN_ESTIMATE.partition('/')[0]}/"
_NAMES = (RUN_ESTIMATE,)
_SIMILAR = 0.85
"""Names of one domain are alike by that alone."""


def estimate_in(pod: Pod) -> float | None:
    """The pod's own run-time estimate: the shorter of its annotation and activeDeadlineSeconds. Daemon
    and mirror pods have none, since another takes their place when they end."""
    text = pod.metadata.annotations.get(RUN_ESTIMATE)
    if text is None and pod.spec.active_deadline_seconds is None:
        return None
    if is_daemon_pod(pod):
        return None
    found = []
    if pod.spec.active_deadline_seconds is not None:
        found.append(float(pod.spec.active_deadline_seconds))
    if text is not None and (seconds := duration_or_none(text)) is not None:
        found.append(seconds)
    return min(found, default=None)


def estimate_problem(annotations: Mapping[str, str]) -> str:
    """Why the run-time estimate of a pod is ignored: it is malformed, or its name is misspelt. Empty if
    there is none, or it counts."""
    text = annotations.get(RUN_ESTIMATE)
    if text is not None:
        try:
            parse_duration(text)
        except DurationError as error:
            return f"metadata.annotations[{RUN_ESTIMATE}]: {error}"
        return ""
    for name in annotations:
        if name.startswith(_DOMAIN) and (hint := did_you_mean(name, _NAMES, similar=_SIMILAR)):
            return f"metadata.annotations[{name}]: unknown annotation{hint}"
    return ""


def duration_or_none(text: str | None) -> float | None:
    """The duration in seconds; None if the text is not a valid duration."""
    try:
        return max(0.0, parse_duration(text or ""))
    except DurationError:
        return None


class RunEstimates:
    """The run-time estimates of pods, by their own metadata or their Volcano job."""

    def __init__(self, cluster: ClusterBase) -> None:
        self._cluster = cluster
        self._of_job: dict[tuple[str, str], float] = {}
        """The estimates of Volcano jobs, by (namespace, name)."""
        self.any_given = False
        """Whether any pod or job ever had a run-time estimate."""
        self.history = FinishedRuns()
        self.ignored: dict[str, tuple[ObjectRef, str]] = {}
        """The pods whose estimates are ignored, and why, by uid."""

    def read(self, pod: Pod, ref: ObjectRef) -> float | None:
        """The pod's own run-time estimate. An estimate that is ignored is reported by an event."""
        problem = estimate_problem(pod.metadata.annotations)
        if problem:
            self.ignored[ref.uid] = ref, problem
            self._cluster.warn_once(
                ref, INVALID_ESTIMATE, f"the run-time estimate is ignored: {problem}"
            )
        elif self.ignored:
            self.forget(ref.uid)
        estimate = estimate_in(pod)
        if estimate is not None:
            self.any_given = True
            self.history.read(pod)
        return estimate

    def pod_ended(self, pod: Pod) -> None:
        """Notes how long a pod that has ended ran."""
        estimate = estimate_in(pod)
        if estimate is None and self._of_job:
            meta = pod.metadata
            name = meta.annotations.get(VOLCANO_JOB_NAME) or meta.labels.get(VOLCANO_JOB_NAME, "")
            estimate = self._of_job.get((meta.namespace, name))
        if self.history.ended(pod, estimate) and self._learns:
            self._cluster.epoch.run_estimates += 1

    def forget(self, uid: str) -> None:
        """Ends the warning about a pod's estimate."""
        if uid in self.ignored:
            ref, _ = self.ignored.pop(uid)
            self._cluster.warn_once(ref, INVALID_ESTIMATE, "")

    def pod_gone(self, uid: str) -> None:
        """Forgets a pod that has ended, after its object was deleted."""
        if self.history.gone(uid) and self._learns:
            self._cluster.epoch.run_estimates += 1

    def put_volcano_job(self, job: VolcanoJob) -> None:
        meta, estimate = job.metadata, duration_or_none(job.spec.running_estimate)
        if estimate is not None:
            self._of_job[meta.namespace, meta.name] = estimate
            self._cluster.epoch.run_estimates += 1
            self.any_given = True
        else:
            self.drop_volcano_job(job)

    def drop_volcano_job(self, job: VolcanoJob) -> None:
        self._cluster.epoch.run_estimates += 1
        self._of_job.pop((job.metadata.namespace, job.metadata.name), None)

    @property
    def _learns(self) -> bool:
        return self._cluster.settings.learns_run_times

    def of(self, pod: PodRecord) -> float | None:
        """The run-time estimate of a pod in seconds: its own, otherwise that of its Volcano job; more
        if that is learned."""
        stated = self._stated(pod)
        if stated is None or not self._learns:
            return stated
        return max(stated, self.history.real_length(pod) or 0.0)

    def is_trusted(self, pod: PodRecord) -> bool:
        """Whether the estimate of a pod is one to backfill it by: no pod of its job overran where
        capacity was held, or its real length is known."""
        if not self.history.has_overrun(pod):
            return True
        return self._learns and self.history.real_length(pod) is not None

    def _stated(self, pod: PodRecord) -> float | None:
        if pod.estimate is not None or not self._of_job:
            return pod.estimate
        cls = pod.cls
        name = cls.annotations.get(VOLCANO_JOB_NAME) or cls.labels.get(VOLCANO_JOB_NAME, "")
        return self._of_job.get((pod.namespace, name))

    def expected_end(self, pod: PodRecord) -> float | None:
        """When a pod on a node is expected to end; None without an estimate, or if that is past."""
        estimate = self.of(pod) if self._of_job or self._learns else pod.estimate
        if estimate is None:
            return None
        end = self.start(pod) + estimate
        return end if end > self._cluster.now else None

    def start(self, pod: PodRecord) -> float:
        """When the run of a pod on a node began; as long as its kubelet has not said so, when it was
        bound, since an end that is later with every moment would be expected for ever."""
        if pod.started is not None:
            return pod.started
        return self._cluster.now if pod.bound_at is None else pod.bound_at

    def overruns(self, pod: PodRecord) -> bool:
        """Whether the pod has exceeded its run-time estimate."""
        estimate = self.of(pod)
        if estimate is None or pod.started is None:
            return False
        return pod.started + estimate < self._cluster.now

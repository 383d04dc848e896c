"""Workload controllers in scenarios and dumps: Deployments, ReplicaSets, StatefulSets, DaemonSets,
(Cron)Jobs.

The controllers are those of `holdfast up`. A scenario may be partial: an owner that is not in it counts
as existing, so pods that refer to it stay; an owner without a pod template is only referred to. For a
dump, `DumpCompletion` adds what controllers need to recognise existing pods: the ReplicaSet between a
Deployment and its pods, and the revision of the pods of a StatefulSet or DaemonSet. Pods run until they
are deleted, whatever end they state; those of Jobs end.
"""

from collections.abc import Iterable

from holdfast.api import names
from holdfast.local.clock import ComponentTimers, LocalClock
from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.kubelet import Kubelets
from holdfast.local.store.objects import Key, Raw, StoreChange
from holdfast.local.stored_events import StoredEvents
from holdfast.local.workloads.completion import REVISED, DumpCompletion
from holdfast.local.workloads.component import WorkloadControllers
from holdfast.local.workloads.lister import controller_of

_REPLICA_SET, _CRON_JOB = ("apps", "ReplicaSet"), ("batch", "CronJob")
_MAKERS = (("apps", "Deployment"), _REPLICA_SET, *REVISED, ("batch", "Job"), _CRON_JOB)
"""Kinds whose controllers make pods, or Jobs, which do."""


def makes_pods(group: str, raw: Raw) -> bool:
    spec = raw.get("spec") or {}
    return (group, raw["kind"]) in _MAKERS and bool(spec.get("template") or spec.get("jobTemplate"))


class ScenarioWorkloads(WorkloadControllers):
    def __init__(
        self,
        objects: ObjectWriter,
        clock: LocalClock,
        timers: ComponentTimers,
        kubelets: Kubelets,
        recorder: StoredEvents,
        waits: bool = True,
    ) -> None:
        super().__init__(objects, clock, timers, kubelets, recorder, partial=True, waits=waits)
        self._active = False
        """Whether there ever was an owner that makes pods; until then nothing is taken note of."""
        self._completion = DumpCompletion(objects)

    def changed(self, change: StoreChange) -> None:
        key, after = change.key, change.after
        raw = after if after is not None else change.before
        assert raw is not None
        if key[:2] in _MAKERS and not makes_pods(key.group, raw):
            return
        if not self._active:
            if key[:2] not in _MAKERS:
                return
            self._active = True
            self._catch_up(key)
        if after is not None and change.before is None:
            self._completion.note(key)
        super().changed(change)

    def adopt(self, objects: Iterable[tuple[Key, Raw]]) -> None:
        """The objects of a cluster with controllers of its own."""
        found = [*objects]
        makers = {key for key, raw in found if key[:2] in _MAKERS and makes_pods(key.group, raw)}
        self._active = bool(makers)
        owners = {
            owner.get("uid", "")
            for key, raw in found
            if key[:2] == _REPLICA_SET and (owner := controller_of(raw)) is not None
        }
        for key, raw in found if makers else ():
            if key in makers:
                if raw["metadata"]["uid"] not in owners:
                    self._completion.note(key)
                self._workloads.adopt(key, raw)
            elif key[:2] not in _MAKERS:
                self._workloads.adopt(key, raw)

    def _catch_up(self, but: Key) -> None:
        """Takes note of everything that was there before the first owner."""
        for raw in self._objects.all():
            metadata = raw["metadata"]
            group = raw["apiVersion"].rpartition("/")[0]
            key = Key(group, raw["kind"], metadata.get("namespace", ""), metadata["name"])
            if key != but and key[:2] not in _MAKERS:
                super().changed(StoreChange(self._objects.store.revision, key, None, raw))

    def settle(self) -> Steps:
        if self._active:
            self._completion.complete()
            yield from super().settle()

    def next_due(self) -> float | None:
        """When a controller is due again, in seconds since the epoch."""
        return self._workloads.next_due() if self._active else None

    def _plan(self, due: float | None) -> None:
        """Nothing: the simulation reads `next_due`, since timers do not prolong a run."""

    def _put(self, raw: Raw) -> Raw:
        if raw["kind"] == "Pod":
            owner = controller_of(raw)
            if owner is None or owner["kind"] != "Job":
                raw = _without_end(raw)
        return super()._put(raw)


class HypotheticalWorkloads(ScenarioWorkloads):
    """The workload controllers, without waits and without that of CronJobs."""

    def changed(self, change: StoreChange) -> None:
        if change.key[:2] != _CRON_JOB:
            super().changed(change)

    def adopt(self, objects: Iterable[tuple[Key, Raw]]) -> None:
        super().adopt((key, raw) for key, raw in objects if key[:2] != _CRON_JOB)

    def retry(self) -> None:
        """Tries again to create what was refused."""
        self._workloads.retry()


def _without_end(pod: Raw) -> Raw:
    metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(names.SIM_RUNS_FOR, None)
    spec.pop("activeDeadlineSeconds", None)
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": spec}

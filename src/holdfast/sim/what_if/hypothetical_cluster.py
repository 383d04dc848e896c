"""The objects of a cluster at one moment, around the scheduler that decides.

Components and controllers are those of a local cluster. Objects come as an API server had them: they
are loaded as they are, neither copied nor checked, since checks of 50,000 pods take longer than all
the rest.

The clock stands still, so nothing happens that would only happen later: no pod ends, no reservation
expires or starts, no job begins to starve, no deadline is reached, and CronJobs start no Jobs. What
only delays a reaction takes no time: back-offs, `minReadySeconds`, and the time that pods take to stop.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.api.errors import HoldfastError, InvalidObject
from holdfast.api.kinds import KINDS
from holdfast.local.cluster_parts import FED, ClusterParts
from holdfast.local.executor import DecisionExecutor
from holdfast.local.kubelet import BareReports, Lifetimes
from holdfast.local.namespace_controller import Namespaces
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import POD, Identity, Key, Raw, SeededNames, StoreChange
from holdfast.local.store.store import Store
from holdfast.local.timeline import UNSCHEDULABLE, Timeline, TimelineEntry
from holdfast.local.workloads.lister import controller_of, owner_ref
from holdfast.scheduler.cluster.events import Added
from holdfast.sim.action_runner import ActionRunner, Step
from holdfast.sim.clock import VirtualClock
from holdfast.sim.workloads import ScenarioWorkloads
from holdfast.snapshot.stripping import Stripper

_ORDER = {(info.group, info.kind): place for place, info in enumerate(KINDS.values())}
_CLAIMS = frozenset(("persistentVolumeClaim", "ephemeral"))
"""Sources of volumes that have objects of their own."""
_CRON_JOB = ("batch", "CronJob")
_RETRIES = 3
"""How often in a row pods are tried again whose attempts end in errors, while nothing else happens."""
_MOST_RETRIES = 2_000
_ROUNDS = 1_000


class NotSettled(HoldfastError):
    """The scheduler and the controllers keep changing things."""


class _EndlessRuns(Lifetimes):
    """Pods run on, and stop at once when they are deleted."""

    def run_time(self, pod: Raw, ran: float) -> float | None:
        return None

    def stop_time(self, pod: Raw, grace: float, passed: float) -> float:
        return 0.0


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


class HypotheticalCluster(ClusterParts):
    clock: VirtualClock

    def __init__(
        self,
        setup: SchedulerFactory,
        now: float,
        objects: Iterable[Raw] = (),
        *,
        stripped: bool = False,
        seed: int = 0,
    ) -> None:
        """`now` is the time of the objects, in seconds since the epoch. If they are stripped of what
        scheduling does not read, so is what is applied to them, and only the rest can differ. UIDs and
        names are generated from the seed: objects of another hypothetical cluster need another one."""
        clock = VirtualClock(0.0)
        clock.advance(now)
        self.time = now
        self.timeline = Timeline(clock)
        super().__init__(
            setup,
            Store(keep=0),
            Identity(SeededNames(seed), clock.stamp),
            clock,
            BareReports(),
            self.timeline.record,
            all_budgets=False,
        )
        self.kubelets.lifetimes = _EndlessRuns()
        self.workloads = HypotheticalWorkloads(
            self.objects, clock, self.timers, self.kubelets, self.recorder, waits=False
        )
        self.components += [
            self.workloads,
            Namespaces(self.objects, clock, self.timers, self.kubelets, self.timeline.record),
        ]
        self._actions = ActionRunner(self, Stripper(digests=False).strip if stripped else None)
        self._executor = DecisionExecutor(self)
        self._listeners: list[Callable[[StoreChange], None]] = []
        self._load(objects)

    def _load(self, objects: Iterable[Raw]) -> None:
        found = [(_key_of(raw), _versioned(raw)) for raw in objects]
        # Nodes before pods, and everything that pods refer to before them.
        found.sort(key=lambda item: _ORDER.get(item[0][:2], len(_ORDER)))
        self.store.load(found)
        for key, raw in found:
            if key[:2] == POD:
                self._feed_object(key, raw, Added)
                self._adopt_pod(key, raw)
                continue
            if key[:2] in FED:
                self._feed_object(key, raw, Added)
            self._note(key, raw)
            self.budgets.changed(key, None, raw)
            self._plugin_objects.changed(key, None, raw)
        self.workloads.adopt(found)
        self.timeline.entries.clear()

    def _adopt_pod(self, key: Key, raw: Raw) -> None:
        """Most pods have neither claims nor volumes of their own, and run until something ends them."""
        metadata, spec, status = raw["metadata"], raw["spec"], raw["status"]
        if (
            spec.get("resourceClaims")
            or "extendedResourceClaimStatus" in status
            or any(not _CLAIMS.isdisjoint(volume) for volume in spec.get("volumes") or ())
        ):
            self._note(key, raw)
        if (
            status.get("phase") == "Running"
            and not metadata.get("annotations")
            and spec.get("activeDeadlineSeconds") is None
            and "deletionTimestamp" not in metadata
        ):
            self.kubelets.adopt_endless(metadata["uid"])
        else:
            self.kubelets.adopt(key, raw)

    def _note(self, key: Key, raw: Raw) -> None:
        change = StoreChange(0, key, None, raw)
        for component in self.components:
            if component is not self.workloads:
                component.changed(change)
        self.volumes.changed(key, None, raw)

    def changed(self, change: StoreChange) -> None:
        super().changed(change)
        for listener in self._listeners:
            listener(change)

    @contextmanager
    def watching(self, listener: Callable[[StoreChange], None]) -> Iterator[None]:
        """Calls the listener with every change until the end of the block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def take(self, step: Step) -> None:
        """Does what a user would do with kubectl. Raises InvalidObject for what a server refuses."""
        self._actions.take(step, 0)

    def workload_of(self, pod: Raw) -> str:
        """The topmost controller of the pod, such as `Deployment/shop/web`; empty if it has none."""
        raw: Raw | None = pod
        name = ""
        while raw is not None and (owner := controller_of(raw)) is not None:
            key = Key(*owner_ref(owner, pod["metadata"]["namespace"]))
            name = str(key)
            raw = self.objects.get(key)
        return name

    # Coming to rest

    def rest(self) -> list[TimelineEntry]:
        """Lets scheduler and controllers work until nothing changes any more, and returns what
        happened to objects. Raises NotSettled."""
        self.workloads.retry()
        begin = len(self.timeline.entries)
        in_vain = 0
        for _ in range(_MOST_RETRIES):
            before = len(self.timeline.entries)
            self._settle()
            new = self.timeline.entries[before:]
            in_vain = in_vain + 1 if all(each.event == UNSCHEDULABLE for each in new) else 0
            if in_vain > _RETRIES or not self.scheduler.queue.end_backoffs():
                return self.timeline.entries[begin:]
        raise NotSettled(f"something still changes after {_MOST_RETRIES} retries")

    def _settle(self) -> None:
        """Everything that happens at this moment."""
        for _ in range(_ROUNDS):
            self.settle()
            self.fed = False
            decisions = self.scheduler.round(self.clock.epoch())
            for decision in decisions:
                self._executor.carry_out(decision)
            stated, queued = self.timers.next_time(), self.workloads.next_due()
            is_due = stated is not None and stated <= self.clock.t
            is_due |= queued is not None and queued <= self.clock.epoch()
            if not (decisions or self.fed or is_due):
                return
        raise NotSettled("the scheduler does not come to rest")


def _versioned(raw: Raw) -> Raw:
    """As a server has it, with a version, which tools that tidy a dump remove."""
    metadata = raw["metadata"]
    if metadata.get("resourceVersion"):
        return raw
    return {**raw, "metadata": {**metadata, "resourceVersion": "0"}}


def _key_of(raw: Raw) -> Key:
    metadata = raw["metadata"]
    try:
        group = raw["apiVersion"].rpartition("/")[0]
        return Key(group, raw["kind"], metadata.get("namespace") or "", metadata["name"])
    except KeyError as error:
        raise InvalidObject(str(raw.get("kind", "")), str(error.args[0]), "is required") from None

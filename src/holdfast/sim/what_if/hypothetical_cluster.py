"""The objects of a cluster on a virtual clock, around the scheduler that decides.

Components and controllers are those of a local cluster. Objects come as an API server had them: they
are loaded as they are, neither copied nor checked, since checks of 50,000 pods take longer than all
the rest. Time passes only as far as it takes everything to come to rest: back-offs of pods, waits of
controllers.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.api.errors import HoldfastError, InvalidObject
from holdfast.api.kinds import KINDS
from holdfast.local.cluster_parts import FED, ClusterParts
from holdfast.local.executor import DecisionExecutor
from holdfast.local.kubelet import BareReports
from holdfast.local.namespace_controller import Namespaces
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import POD, Identity, Key, Raw, SeededNames, StoreChange
from holdfast.local.store.store import Store
from holdfast.local.timeline import Timeline, TimelineEntry
from holdfast.local.workloads.lister import controller_of, owner_ref
from holdfast.scheduler.cluster.events import Added
from holdfast.sim.action_runner import ActionRunner, Step
from holdfast.sim.clock import VirtualClock
from holdfast.sim.workloads import ScenarioWorkloads
from holdfast.snapshot.stripping import Stripper

_ORDER = {(info.group, info.kind): place for place, info in enumerate(KINDS.values())}
_CLAIMS = frozenset(("persistentVolumeClaim", "ephemeral"))
"""Sources of volumes that have objects of their own."""
_HORIZON = 600.0
"""Seconds of virtual time within which everything comes to rest; less than a Deployment takes to report
that it makes no progress, since what is due by then would happen too."""
_MOMENTS = 2_000
_ROUNDS = 1_000


class NotSettled(HoldfastError):
    """The scheduler and the controllers keep changing things."""


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
        self.workloads = ScenarioWorkloads(
            self.objects, clock, self.timers, self.kubelets, self.recorder
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
        until = self.clock.t + _HORIZON
        before = len(self.timeline.entries)
        for _ in range(_MOMENTS):
            self._settle()
            due = self._next_due()
            if due is None or due >= until:
                return self.timeline.entries[before:]
            self.clock.advance_to_timer(due)
        raise NotSettled(f"something still changes after {_MOMENTS} steps of virtual time")

    def _next_due(self) -> float | None:
        """When something is due that has not come to rest. Timers of what rests, such as the expiry
        of a reservation or the end of a pod, are not among it."""
        scheduler = self.scheduler
        times = [scheduler.queue.next_due(), scheduler.bind_retries.next_due()]
        due = self.workloads.next_due()
        times.append(None if due is None else max(due, self.clock.epoch()))
        return min((each for each in times if each is not None), default=None)

    def _settle(self) -> None:
        """Everything that happens at this moment."""
        for _ in range(_ROUNDS):
            self.settle()
            self.fed = False
            decisions = self.scheduler.round(self.clock.epoch())
            for decision in decisions:
                self._executor.carry_out(decision)
            stated = self.timers.next_time()
            if not (decisions or self.fed or (stated is not None and stated <= self.clock.t)):
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

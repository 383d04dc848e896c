"""A cluster at one moment in which one may change things and see what comes of it: with the workload
controllers, and what a user does with kubectl.

As in every `PlayedCluster` the clock stands still; CronJobs start no Jobs, and `minReadySeconds` take
no time.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from holdfast.local.namespace_controller import Namespaces
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Key, Raw, StoreChange
from holdfast.local.timeline import TimelineEntry
from holdfast.local.workloads.lister import controller_of, owner_ref
from holdfast.sim.action_runner import ActionRunner, Step
from holdfast.snapshot.dump_workloads import HypotheticalWorkloads
from holdfast.snapshot.played_cluster import PlayedCluster
from holdfast.snapshot.stripping import Stripper


class HypotheticalCluster(PlayedCluster):
    def __init__(
        self,
        setup: SchedulerFactory,
        now: float,
        objects: Iterable[Raw] = (),
        *,
        stripped: bool = False,
        seed: int = 0,
    ) -> None:
        """If the objects are stripped of what scheduling does not read, so is what is applied to them,
        and only the rest can differ."""
        super().__init__(setup, now, seed=seed)
        self.workloads = HypotheticalWorkloads(
            self.objects, self.clock, self.timers, self.kubelets, self.recorder, waits=False
        )
        self.components.append(
            Namespaces(self.objects, self.clock, self.timers, self.kubelets, self.timeline.record)
        )
        self._actions = ActionRunner(self, Stripper(digests=False).strip if stripped else None)
        self._listeners: list[Callable[[StoreChange], None]] = []
        found = self.load(objects)
        self.workloads.adopt(found)
        self.components.insert(-1, self.workloads)
        self.timeline.entries.clear()

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

    def rest(self) -> list[TimelineEntry]:
        """Tries again to create what was refused, and comes to rest."""
        self.workloads.retry()
        return super().rest()

    def is_due(self) -> bool:
        queued = self.workloads.next_due()
        return super().is_due() or (queued is not None and queued <= self.clock.epoch())

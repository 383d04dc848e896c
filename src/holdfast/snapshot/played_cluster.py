"""The objects of a cluster at one moment, around the scheduler that decides.

Components and controllers are those of a local cluster. Objects come as an API server had them: they
are loaded as they are, neither copied nor checked, since checks of 50,000 pods take longer than all
the rest.

The clock stands still, so nothing happens that would only happen later: no pod ends, no reservation
expires or starts, no job begins to starve, and no deadline is reached. What only delays a reaction
takes no time: back-offs, and the time that pods take to stop.
"""

from collections.abc import Iterable

from holdfast.api.errors import HoldfastError, InvalidObject
from holdfast.kube.decoding import WATCHED
from holdfast.local.clock import VirtualClock
from holdfast.local.cluster_parts import FED, ClusterParts
from holdfast.local.executor import DecisionExecutor
from holdfast.local.kubelet import BareReports, Lifetimes
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import POD, Identity, Key, Raw, SeededNames, StoreChange
from holdfast.local.store.store import Store
from holdfast.local.timeline import UNSCHEDULABLE, Timeline, TimelineEntry
from holdfast.scheduler.cluster.decisions import Decision
from holdfast.scheduler.cluster.events import Added

_ORDER = {(each.info.group, each.info.kind): at for at, each in enumerate(WATCHED)}
_CLAIMS = frozenset(("persistentVolumeClaim", "ephemeral"))
"""Sources of volumes that have objects of their own."""
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


class PlayedCluster(ClusterParts):
    clock: VirtualClock

    def __init__(self, setup: SchedulerFactory, now: float, *, seed: int = 0) -> None:
        """`now` is the time of the objects, in seconds since the epoch. UIDs and names are generated
        from the seed; none is the UID of an object that is loaded. With another seed, new pods have
        other names than those that another such cluster made and deleted."""
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
        self._executor = DecisionExecutor(self)

    def load(self, objects: Iterable[Raw]) -> list[tuple[Key, Raw]]:
        """Loads objects that were there before, in the order in which a scheduler reads kinds when it
        starts: ties between nodes depend on it. Returns them in this order."""
        found = [(_key_of(raw), _complete(raw)) for raw in objects]
        found.sort(key=lambda item: _ORDER.get(item[0][:2], len(_ORDER)))
        self.store.load(found)
        self.objects.identity.exclude(raw for _, raw in found)
        for key, raw in found:
            if key[:2] == POD:
                self._feed_object(key, raw, Added)
                self.adopt_pod(key, raw)
                continue
            if key[:2] in FED:
                self._feed_object(key, raw, Added)
            self._note(key, raw)
            self.budgets.changed(key, None, raw)
            self._plugin_objects.changed(key, None, raw)
        self.timeline.entries.clear()
        return found

    def adopt_pod(self, key: Key, raw: Raw) -> None:
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
            component.changed(change)
        self.volumes.changed(key, None, raw)

    # Coming to rest

    def rest(self) -> list[TimelineEntry]:
        """Lets scheduler and controllers work until nothing changes any more, and returns what
        happened to objects. Raises NotSettled."""
        begin = len(self.timeline.entries)
        in_vain = 0
        for _ in range(_MOST_RETRIES):
            before = len(self.timeline.entries)
            self._play_moment()
            new = self.timeline.entries[before:]
            in_vain = in_vain + 1 if all(each.event == UNSCHEDULABLE for each in new) else 0
            if in_vain > _RETRIES or self.is_over() or not self.scheduler.queue.end_backoffs():
                return self.timeline.entries[begin:]
        raise NotSettled(f"something still changes after {_MOST_RETRIES} retries")

    def is_over(self) -> bool:
        """Whether what follows is of no interest."""
        return False

    def decide(self) -> list[Decision]:
        """One round."""
        return self.scheduler.round(self.clock.epoch())

    def is_due(self) -> bool:
        """Whether a component has something to do at this moment."""
        stated = self.timers.next_time()
        return stated is not None and stated <= self.clock.t

    def _play_moment(self) -> None:
        """Everything that happens at this moment."""
        for _ in range(_ROUNDS):
            self.settle()
            self.fed = False
            decisions = self.decide()
            for decision in decisions:
                self._executor.carry_out(decision)
            if self.is_over() or not (decisions or self.fed or self.is_due()):
                return
        raise NotSettled("the scheduler does not come to rest")


def _complete(raw: Raw) -> Raw:
    """As a server has it, with a version, which tools that tidy a dump remove; a pod with a status,
    which a manifest does not have."""
    metadata = raw["metadata"]
    if not metadata.get("resourceVersion"):
        raw = {**raw, "metadata": {**metadata, "resourceVersion": "0"}}
    if raw["kind"] == "Pod" and not raw.get("status"):
        raw = {**raw, "status": {}}
    return raw


def _key_of(raw: Raw) -> Key:
    metadata = raw["metadata"]
    try:
        group = raw["apiVersion"].rpartition("/")[0]
        return Key(group, raw["kind"], metadata.get("namespace") or "", metadata["name"])
    except KeyError as error:
        raise InvalidObject(str(raw.get("kind", "")), str(error.args[0]), "is required") from None

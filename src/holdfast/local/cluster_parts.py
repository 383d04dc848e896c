"""The components of a local cluster around the scheduler, and the feed of store changes to it."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from holdfast.api.decode import decode
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.meta import Object, ObjectMeta
from holdfast.api.names import HOLDFAST_SCHEDULER
from holdfast.api.raw_objects import ObjectKind, RawObject, declared_infos, raw_object
from holdfast.local.claim_references import CLAIM
from holdfast.local.clock import ComponentTimers, LocalClock
from holdfast.local.component import RESERVATION, Component, ObjectWriter, Steps
from holdfast.local.device_taint_eviction import DeviceTaintEviction
from holdfast.local.disruption import DisruptionController
from holdfast.local.kubelet import Kubelets, Reports
from holdfast.local.node_lifecycle import TaintEviction
from holdfast.local.pod_group_protection import PodGroupProtection
from holdfast.local.resource_claim_controller import ResourceClaimController
from holdfast.local.resource_slices import NodeSlices
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import POD, Identity, Key, Raw, StoreChange, node_key, pod_key
from holdfast.local.store.store import Store
from holdfast.local.stored_events import StoredEvents
from holdfast.local.timeline import CREATED, TimelineRecorder, deletion_event
from holdfast.local.volume_controller import VolumeController
from holdfast.scheduler.cluster.decisions import Bind, Emit, ObjectRef
from holdfast.scheduler.cluster.events import Added, Deleted, Event, Malformed, Updated

_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")

_GroupKind = tuple[str, str]


_UNRECORDED = ("Event", "ControllerRevision")
"""Kinds whose creation is not in the timeline: records of what happened to other objects."""
_NOT_FED = ("Event", "Lease", "Binding", "RuntimeClass", "CronJob")
"""Kinds no scheduler watches."""
FED: dict[tuple[str, str], type[Object]] = {
    (info.group, info.kind): info.type for info in KINDS.values() if info.kind not in _NOT_FED
}


class ClusterParts:
    """Decodes every change of an object once, feeds it to the scheduler, and passes it to the
    components, which act on it in `settle`, when all changes of the moment are known.
    """

    def __init__(
        self,
        setup: SchedulerFactory,
        store: Store,
        identity: Identity,
        clock: LocalClock,
        reports: Reports,
        record: TimelineRecorder,
        *,
        all_budgets: bool,
        kinds: Iterable[ObjectKind] = (),
    ) -> None:
        """`kinds` are those of objects that plugins may read, besides those of this setup."""
        self.setup = setup
        self.clock = clock
        self.record = record
        self.timers = ComponentTimers(clock)
        self.store = store
        read_by_plugins = setup.object_kinds()
        self.objects = ObjectWriter(store, identity, clock, declared_infos((*read_by_plugins, *kinds)))
        self.recorder = StoredEvents(self.objects, clock)
        self.kubelets = Kubelets(self.objects, clock, self.timers, reports, record, self._not_prepared)
        self.volumes = VolumeController(self.objects, self.recorder)
        self.budgets = DisruptionController(self.objects, all_budgets)
        self._claims = ResourceClaimController(self.objects, self.recorder)
        """Before kubelets it reserves claims for pods that another scheduler has bound, which then can
        start; after all others it releases the claims of pods that they ended."""
        self.components: list[Component] = [
            self._claims,
            TaintEviction(self.objects, clock, self.timers, self.kubelets, self.recorder),
            DeviceTaintEviction(self.objects, clock, self.timers, self.kubelets, self.recorder),
            NodeSlices(self.objects),
            PodGroupProtection(self.objects),
        ]
        """Further listeners of every change."""
        self.scheduler = setup.scheduler()
        self._plugin_objects = PluginObjects(store, read_by_plugins, self.feed)
        self.fed = False
        """Whether the scheduler received events since this was last set to False."""
        store.observe(self.changed)

    def feed(self, event: Event) -> None:
        self.fed = True
        self.scheduler.feed(event, self.clock.epoch())

    def restart_scheduler(self) -> None:
        """A new scheduler, which knows nothing but the objects there are."""
        self.scheduler = self.setup.scheduler()
        for kind in FED:
            for raw in self.store.scan(*kind):
                metadata = raw["metadata"]
                self._feed_object(
                    Key(*kind, metadata.get("namespace", ""), metadata["name"]), raw, Added
                )
        self._plugin_objects.feed_all()

    def settle(self) -> None:
        """Runs all components except the scheduler until they have nothing to do."""
        for work in self.steps():
            if work is not None:
                work()

    def steps(self) -> Steps:
        """The same step by step; see `Component.settle`."""
        while (what := self.timers.take(self.clock.t)) is not None:
            what()
            yield None
        yield from self._claims.settle()
        yield from self.kubelets.settle()
        yield from self.volumes.settle()
        yield from self.budgets.settle()
        for component in self.components:
            yield from component.settle()
        yield from self._claims.settle()

    # What decisions are carried out on; see `executor.DecisionTarget`

    def now(self) -> str:
        return self.clock.stamp()

    def binding(self, key: Key, decision: Bind) -> None:
        """Called just before a pod is bound."""

    def started(self, pod: Raw, bound: Raw) -> Raw:
        node = self.objects.get(node_key(bound["spec"]["nodeName"]))
        self.volumes.pod_bound(pod, node)
        starts = node is not None and not self.kubelets.claim_problem(bound)
        return self.kubelets.running(bound) if starts else bound

    def _not_prepared(self, pod: Raw, why: str) -> None:
        metadata = pod["metadata"]
        about = ObjectRef("Pod", metadata["namespace"], metadata["name"], metadata["uid"])
        text = f"Failed to prepare dynamic resources: prepare dynamic resources: {why}"
        event = Emit(about, "Warning", "FailedPrepareDynamicResources", text)
        self.recorder.emit(event, "kubelet")

    def delete_pod(self, key: Key, grace: int | None = None) -> None:
        self.kubelets.delete(key, grace=grace)

    def emit(self, decision: Emit) -> None:
        about = decision.about
        pod = self.objects.get(pod_key(about.namespace, about.name)) if about.kind == "Pod" else None
        component = pod["spec"]["schedulerName"] if pod is not None else HOLDFAST_SCHEDULER
        self.recorder.emit(decision, component)

    # Changes of objects

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if after is None:
            self.timers.forget(key)
            if key.kind == "Event":
                self.recorder.forget(key)
            if key[:2] == RESERVATION and before and before["metadata"].get("deletionTimestamp"):
                self.record(key, deletion_event(before))  # its last finalizer kept it until now
        elif before is None and key.kind not in _UNRECORDED:
            self.timers.created(key)
            node = (after.get("spec") or {}).get("nodeName") if key[:2] == POD else None
            self.record(key, CREATED, node=node or "")
        for component in self.components:
            component.changed(change)
        self._plugin_objects.changed(key, before, after)
        if key[:2] not in FED:
            return
        if after is not None:
            self._feed_object(key, after, Added if before is None else Updated)
        elif before is not None:
            self.feed(Deleted(_last_view(key, before)))
        self.volumes.changed(key, before, after)
        self.budgets.changed(key, before, after)
        if key[:2] == POD:
            self.kubelets.pod_changed(key, before, after)
        elif key[:2] == CLAIM:
            self.kubelets.claim_changed(key)

    def adopt(self, key: Key, raw: Raw) -> None:
        """Takes over an object that was there before this world was."""
        change = StoreChange(self.store.revision, key, None, raw)
        for component in self.components:
            component.changed(change)
        self._plugin_objects.changed(key, None, raw)
        if key[:2] in FED:
            self._feed_object(key, raw, Added)
            self.volumes.changed(key, None, raw)
            self.budgets.changed(key, None, raw)
        if key[:2] == POD:
            self.kubelets.adopt(key, raw)

    def _feed_object(self, key: Key, raw: Raw, event: type[Added] | type[Updated]) -> None:
        try:
            view = _view(key, raw)
        except InvalidObject as error:
            uid = raw["metadata"]["uid"]
            self.feed(Malformed(key.kind, key.namespace, key.name, uid, error))
            return
        self.viewed(key, view)
        self.feed(event(view))

    def viewed(self, key: Key, view: Any) -> None:
        """Called with each object before the scheduler receives it."""


def _view(key: Key, raw: Raw) -> Object:
    """Like `decode`, with an error that names the object if it is invalid."""
    try:
        return msgspec.convert(raw, FED[key[:2]])
    except msgspec.ValidationError:
        return decode(raw)


def _last_view(key: Key, raw: Raw) -> Object:
    """A deleted object; if it never decoded, only its identity."""
    try:
        return _view(key, raw)
    except InvalidObject:
        metadata = ObjectMeta(name=key.name, namespace=key.namespace, uid=raw["metadata"]["uid"])
        return FED[key[:2]](api_version=raw["apiVersion"], kind=key.kind, metadata=metadata)


class PluginObjects:
    """Feeds objects of the kinds that plugins read, in every version that a plugin declares and that
    the kind's CustomResourceDefinition serves.
    """

    def __init__(
        self, store: Store, kinds: Iterable[ObjectKind], feed: Callable[[Event], None]
    ) -> None:
        self._store = store
        self._feed = feed
        self._read: dict[_GroupKind, list[KindInfo]] = {}
        """Several versions of a kind may be read."""
        for kind in kinds:
            self._read.setdefault((kind.group, kind.kind), []).append(kind.info())
        self._served: dict[_GroupKind, frozenset[str]] = {}
        """The versions of kinds that have a definition."""
        if self._read:
            for definition in store.scan(*_DEFINITION):
                self._served[_defined(definition)] = _versions(definition)

    def feed_all(self) -> None:
        """Feeds all objects to a new scheduler."""
        for kind, infos in self._read.items():
            for info in infos:
                if self._is_served(kind, info):
                    self._feed_kind(kind, info)

    def changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        if not self._read:
            return
        kind = key[:2]
        if kind == _DEFINITION:
            self._definition_changed(before, after)
        for info in self._read.get(kind, ()):
            if self._is_served(kind, info):
                self._feed_one(info, key, before, after)

    def _definition_changed(self, before: Raw | None, after: Raw | None) -> None:
        definition = after if after is not None else before
        assert definition is not None
        kind = _defined(definition)
        infos = self._read.get(kind, ())
        known = [info for info in infos if self._is_served(kind, info)]
        if after is not None:
            self._served[kind] = _versions(after)
        else:
            self._served.pop(kind, None)
        for info in infos:
            if self._is_served(kind, info) and info not in known:
                self._feed_kind(kind, info)
            elif not self._is_served(kind, info) and info in known:
                for raw in self._store.scan(*kind):
                    self._feed_one(info, _key(kind, raw), raw, None)

    def _is_served(self, kind: _GroupKind, info: KindInfo) -> bool:
        """Kinds without a definition are Kubernetes' own, or a scenario's."""
        versions = self._served.get(kind)
        return versions is None or info.version in versions

    def _feed_kind(self, kind: _GroupKind, info: KindInfo) -> None:
        for raw in self._store.scan(*kind):
            self._feed_one(info, _key(kind, raw), None, raw)

    def _feed_one(self, info: KindInfo, key: Key, before: Raw | None, after: Raw | None) -> None:
        if after is None:
            metadata = ObjectMeta(name=key.name, namespace=key.namespace)
            gone = RawObject(api_version=info.api_version, kind=info.kind, metadata=metadata)
            self._feed(Deleted(gone))
            return
        try:
            found = raw_object(info, after)
        except InvalidObject as error:
            uid = after["metadata"]["uid"]
            self._feed(Malformed(key.kind, key.namespace, key.name, uid, error, info.api_version))
        else:
            self._feed(Added(found) if before is None else Updated(found))


def _defined(definition: Raw) -> _GroupKind:
    """The kind that a CustomResourceDefinition defines."""
    spec = definition["spec"]
    return spec["group"], spec["names"]["kind"]


def _versions(definition: Raw) -> frozenset[str]:
    return frozenset(each["name"] for each in definition["spec"]["versions"] if each.get("served"))


def _key(kind: _GroupKind, raw: Raw) -> Key:
    metadata = raw["metadata"]
    return Key(*kind, metadata.get("namespace", ""), metadata["name"])

"""The cluster around the scheduler, and the wire between the two.

Every change of an object passes through here once: it is decoded, fed to the scheduler, and shown to
whoever lives in the cluster. What these do about it they do in `settle`, when all changes of the moment
are known.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.api.decode import decode
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import KINDS
from holdfast.api.meta import Object, ObjectMeta
from holdfast.api.raw_objects import ObjectKind, declared_infos
from holdfast.backends.embedded.agenda import Agenda
from holdfast.backends.embedded.budgets import Budgets
from holdfast.backends.embedded.clock import Clock
from holdfast.backends.embedded.events import Recorder
from holdfast.backends.embedded.kubelet import Kubelets
from holdfast.backends.embedded.objects import RESERVATION, Objects
from holdfast.backends.embedded.plugin_objects import PluginObjects
from holdfast.backends.embedded.resident import Resident, Steps
from holdfast.backends.embedded.setup import Setup
from holdfast.backends.embedded.statuses import Reports
from holdfast.backends.embedded.taints import Taints
from holdfast.backends.embedded.telling import COLLECTED, CREATED, DELETED, Tell
from holdfast.backends.embedded.volumes import Volumes
from holdfast.core.decisions import Bind
from holdfast.core.events import Added, Deleted, Event, Malformed, Updated
from holdfast.core.promises.promise import FINISHED
from holdfast.store.identity import Identity
from holdfast.store.objects import POD, Change, Key, Raw
from holdfast.store.store import Store

_NOT_FED = ("Event", "Lease", "Binding", "RuntimeClass")
"""Kinds no scheduler watches."""
FED: dict[tuple[str, str], type[Object]] = {
    (info.group, info.kind): info.type for info in KINDS.values() if info.kind not in _NOT_FED
}


class World:
    def __init__(
        self,
        setup: Setup,
        store: Store,
        identity: Identity,
        clock: Clock,
        reports: Reports,
        tell: Tell,
        *,
        all_budgets: bool,
        first_event: int = 0,
        kinds: Iterable[ObjectKind] = (),
    ) -> None:
        """`kinds` are those of objects that plugins may read, besides those of this setup."""
        self.setup = setup
        self.clock = clock
        self.tell = tell
        self.agenda = Agenda(clock)
        self.store = store
        read_by_plugins = setup.object_kinds()
        self.objects = Objects(store, identity, declared_infos((*read_by_plugins, *kinds)))
        self.kubelets = Kubelets(self.objects, clock, self.agenda, reports, tell)
        self.volumes = Volumes(self.objects)
        self.budgets = Budgets(self.objects, all_budgets)
        self.recorder = Recorder(self.objects, clock, first_event)
        self.residents: list[Resident] = [
            Taints(self.objects, clock, self.agenda, self.kubelets, self.recorder)
        ]
        """Those who are told of every change besides."""
        self.scheduler = setup.scheduler()
        self._plugin_objects = PluginObjects(store, read_by_plugins, self.feed)
        self.fed = False
        """Whether the scheduler was told anything since this was last set to False."""
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
        """Lets everyone but the scheduler do what there is to do."""
        for work in self.steps():
            if work is not None:
                work()

    def steps(self) -> Steps:
        """The same step by step; see `Resident.settle`."""
        while (what := self.agenda.take(self.clock.t)) is not None:
            what()
            yield None
        yield from self.kubelets.settle()
        yield from self.volumes.settle()
        yield from self.budgets.settle()
        for resident in self.residents:
            yield from resident.settle()

    def binding(self, key: Key, decision: Bind) -> None:
        """Called just before a pod is bound."""

    def changed(self, change: Change) -> None:
        _, key, before, after = change
        if after is None:
            self.agenda.forget(key)
            if key.kind == "Event":
                self.recorder.forget(key)
            if key[:2] == RESERVATION and before and before["metadata"].get("deletionTimestamp"):
                self.tell(key, deletion_event(before))  # its last finalizer kept it until now
        elif before is None and key.kind != "Event":
            self.agenda.created(key)
            node = (after.get("spec") or {}).get("nodeName") if key[:2] == POD else None
            self.tell(key, CREATED, node=node or "")
        for resident in self.residents:
            resident.changed(change)
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

    def adopt(self, key: Key, raw: Raw) -> None:
        """Takes over an object that was there before this world was."""
        change = Change(self.store.revision, key, None, raw)
        for resident in self.residents:
            resident.changed(change)
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
        """Called with each object as the scheduler is about to be told of it."""


def deletion_event(reservation: Raw) -> str:
    """What the deletion of a reservation is called in the record."""
    ended = (reservation.get("status") or {}).get("phase") in FINISHED
    return COLLECTED if ended else DELETED


def _view(key: Key, raw: Raw) -> Object:
    """As `decode`, which looks closer and names the object where something is wrong."""
    try:
        return msgspec.convert(raw, FED[key[:2]])
    except msgspec.ValidationError:
        return decode(raw)


def _last_view(key: Key, raw: Raw) -> Object:
    """Of an object that is gone; of one that never made sense, what says which it was."""
    try:
        return _view(key, raw)
    except InvalidObject:
        metadata = ObjectMeta(name=key.name, namespace=key.namespace, uid=raw["metadata"]["uid"])
        return FED[key[:2]](api_version=raw["apiVersion"], kind=key.kind, metadata=metadata)

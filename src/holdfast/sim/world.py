"""The cluster around the scheduler, and the wire between the two.

Every change of an object passes through here once: it is decoded, fed to the scheduler, and shown to
whoever lives in the cluster.
"""

from collections.abc import Callable

import msgspec

from holdfast.api.decode import decode
from holdfast.api.errors import InvalidObject
from holdfast.api.kinds import kind_info
from holdfast.api.meta import Object
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.core.events import Added, Deleted, Event, Malformed, Updated
from holdfast.sim.accounts import Accounts
from holdfast.sim.agenda import ENDS, FOLLOWING, Agenda, Entry
from holdfast.sim.budgets import Budgets
from holdfast.sim.clock import VirtualClock
from holdfast.sim.errors import InvariantBroken
from holdfast.sim.events import NOT_FED, Recorder
from holdfast.sim.invariants import stories
from holdfast.sim.kubelet import Kubelets
from holdfast.sim.setup import Setup
from holdfast.sim.store import Key, Raw, Store, key_of
from holdfast.sim.summary import Figures
from holdfast.sim.timeline import CREATED, Timeline
from holdfast.sim.volumes import Volumes


class World:
    def __init__(self, setup: Setup, seed: int) -> None:
        self.setup = setup
        self.clock = VirtualClock()
        self.agenda = Agenda()
        self.timeline = Timeline()
        self.store = Store(self.clock, seed)
        self.places: dict[Key, int] = {}
        """Which document an object comes from, for ties."""
        self.place = 0
        """The document being dealt with."""
        self.kubelets = Kubelets(self.store, self.clock, self.timeline, self.when_due)
        self.volumes = Volumes(self.store)
        self.budgets = Budgets(self.store)
        self.recorder = Recorder(self.store, self.clock)
        self.accounts = Accounts()
        self.figures = Figures()
        self.views: dict[Key, Object] = {}
        """Objects as the scheduler was last told of them."""
        self._checked: dict[tuple[str, str], bool] = {}
        self.scheduler = setup.scheduler()
        self.fed = False
        """Whether the scheduler was told anything since this was last set to False."""
        self.store.listeners.append(self._changed)

    def feed(self, event: Event) -> None:
        self.fed = True
        self.scheduler.feed(event, self.clock.epoch())

    def checks(self, scheduler_name: str, resource: str) -> bool:
        """As the setup says."""
        asked = (scheduler_name, resource)
        if asked not in self._checked:
            self._checked[asked] = self.setup.checks(*asked)
        return self._checked[asked]

    def restart_scheduler(self) -> None:
        """A new scheduler, which knows nothing but the objects there are."""
        self.scheduler = self.setup.scheduler()
        for raw in self.store.all():
            key = key_of(raw)
            if key.kind not in NOT_FED:
                self._feed_object(key, raw, Added)

    def settle(self) -> None:
        """Lets everyone but the scheduler do what there is to do."""
        while (what := self.agenda.take(self.clock.t)) is not None:
            what()
        self.kubelets.settle()
        self.volumes.settle()
        self.budgets.settle()

    def broken(self, problems: list[str]) -> InvariantBroken:
        return InvariantBroken(self.clock.t, problems, stories(self.scheduler.cluster, problems))

    def when_due(self, key: Key, t: float, what: Callable[[], None]) -> Entry:
        """Puts the end of an object on the agenda; it is called off if the object is gone by then."""
        now = self.clock.t
        rank = ENDS if t > now else FOLLOWING
        return self.agenda.add(max(t, now), what, (rank, self.places.get(key, 0)), owner=key)

    def _changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        if after is None:
            self.agenda.forget(key)
            self.places.pop(key, None)
        if before is None and after is not None and key.kind != "Event":
            self.places[key] = self.place
            node = (after.get("spec") or {}).get("nodeName") if key.kind == "Pod" else None
            self.timeline.add(self.clock.t, str(key), CREATED, node=node or "")
        if key.kind in NOT_FED:
            return
        if after is None:
            view = self.views.pop(key, None)
            if view is not None:
                self.feed(Deleted(view))
        else:
            self._feed_object(key, after, Added if before is None else Updated)
        self._account(key, before)
        self.volumes.changed(key, before, after)
        self.budgets.changed(key, before, after)
        if key.kind == "Pod":
            self.kubelets.pod_changed(key, before, after)

    def _feed_object(self, key: Key, raw: Raw, event: type[Added] | type[Updated]) -> None:
        try:
            view = _view(raw)
        except InvalidObject as error:
            uid = raw["metadata"]["uid"]
            self.feed(Malformed(key.kind, key.namespace, key.name, uid, error))
            return
        self.views[key] = view
        self.feed(event(view))

    def _account(self, key: Key, before: Raw | None) -> None:
        view, t = self.views.get(key), self.clock.t
        if isinstance(view, Pod):
            self.accounts.put_pod(view, t)
            if before is None:
                self.figures.pod_created(view, t)
        elif isinstance(view, Node):
            self.accounts.put_node(view, t)
        elif key.kind == "Pod" and before is not None:
            self.accounts.drop_pod(before["metadata"]["uid"], t)
        elif key.kind == "Node" and before is not None:
            self.accounts.drop_node(key.name, t)


def _view(raw: Raw) -> Object:
    """As `decode`, which looks closer and names the object where something is wrong."""
    try:
        return msgspec.convert(raw, kind_info(raw["apiVersion"], raw["kind"]).type)
    except msgspec.ValidationError:
        return decode(raw)

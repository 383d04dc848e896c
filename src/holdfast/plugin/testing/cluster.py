"""A cluster to test plugins in: objects, a virtual clock, and the scheduler that `simulate`, `up` and
`run` use."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from textwrap import dedent
from typing import Any, NamedTuple, Self

from holdfast.api import names
from holdfast.api.decode import decode, object_name
from holdfast.api.documents import BadFileError
from holdfast.api.kinds import KINDS
from holdfast.local.component import ENDED
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import Key, pod_key
from holdfast.local.timeline import BOUND
from holdfast.plugin.testing.queries import Asking, ContractBroken
from holdfast.scheduler.cluster.events import Added, Change, Deleted
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.config import API_VERSION, KIND, load
from holdfast.scheduler.framework.interface import Plugin, extension_points
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.recount import validate_state
from holdfast.sim.action_runner import Step
from holdfast.sim.scenario_actions import Apply, Create, Delete, Restart, Scenario, Target
from holdfast.sim.scenario_objects import ScenarioObject
from holdfast.sim.simulation import Simulation
from holdfast.snapshot.manifests import load_text

Raw = dict[str, Any]
Given = Mapping[str, Any] | str
"""An object, or YAML text of one or several."""

_OF_NODES = ("NodeColumn",)
"""Points at which a plugin may raise: what a column cannot take from a node counts as missing there."""


class RecordedEvent(NamedTuple):
    """A Kubernetes event, as `kubectl get events` shows it."""

    object: str
    """`Pod/default/web-0`, `Node/n1`."""
    type: str
    reason: str
    message: str


class PluginTestCluster:
    """Pods are called by their names, or `namespace/name` outside the namespace `default`.

    After every step the scheduler's state is recounted, and the results of the tested plugins for
    existing pods are computed on every path and must agree; see `ContractBroken`."""

    def __init__(
        self,
        *plugins: type[Plugin],
        args: Mapping[str, Any] | None = None,
        weight: int = 1,
        config: Mapping[str, Any] | str | None = None,
        keep_errors: bool = False,
    ) -> None:
        """With the default plugins and these. `args` and `weight` are of the first; for more, give a
        whole configuration as `config`, a mapping or YAML text, which enables them itself. What a
        plugin raises while pods are scheduled is raised, unless `keep_errors`: see `errors`."""
        if not plugins:
            raise ValueError("pass the plugin class under test: Cluster(MyPlugin)")
        registry = Registry([*IN_TREE, *plugins])
        for plugin in plugins:
            if not extension_points(plugin):
                raise ValueError(f"plugin {plugin.name} overrides no method of Plugin: it does nothing")
        given = _configuration(plugins, args, weight) if config is None else _mapping(config)
        self.setup = SchedulerFactory(load(given, registry.implements()), registry)
        self._tested = tuple(plugin.name for plugin in plugins)
        enabled = {
            ref.name
            for profile in self.setup.configuration.profiles
            for point in profile.points.values()
            for ref in point
        }
        if missing := [name for name in self._tested if name not in enabled]:
            raise ValueError(f"the configuration does not enable {', '.join(missing)}")
        self._keeps_errors = keep_errors
        self._simulation = Simulation(Scenario((), ()), self.setup, audit=True)
        self._world = self._simulation.world

    # Steps

    def add(self, *objects: Given) -> Self:
        """Creates objects, as `kubectl create` would; nothing is scheduled yet. Raises InvalidObject
        for what an API server refuses, misspelt fields included."""
        for raw in self._read(objects):
            self._take(Create(raw))
        return self

    def update(self, *objects: Given) -> Self:
        """Brings objects that are there up to date, as `kubectl apply` would."""
        for raw in self._read(objects):
            if self._world.objects.get(self._world.objects.key_of(raw)) is None:
                raise ValueError(f"{object_name(raw)} does not exist; create it with add()")
            self._take(Apply(raw))
        return self

    def delete(self, *objects: Given) -> Self:
        """Deletes objects, given as for `add` or by name: `Node/n1`, `Pod/web-0`, `Pod/prod/web-0`."""
        keys = [
            key
            for each in objects
            for key in ([self._key(str(each))] if _is_name(each) else self._keys(each))
        ]
        for key in keys:
            if self._world.objects.get(key) is None:
                raise ValueError(f"{key} does not exist")
            self._take(Delete(Target(key.kind, key.namespace, key.name, (key.group,))))
        return self

    def restart(self) -> Self:
        """A new scheduler, with new plugins, which know nothing but the objects there are."""
        self._take(Restart())
        return self

    def schedule(self) -> dict[str, str]:
        """Lets the scheduler decide all it can decide now, and carries it out: the pods that were
        bound, with their nodes."""
        before = len(self._world.timeline.entries)
        self._simulation.settle()
        self._check()
        return self._bound_since(before)

    def advance(self, seconds: float) -> dict[str, str]:
        """Lets time pass. The scheduler decides now and whenever it is due: the pods that were bound,
        with their nodes."""
        if seconds < 0:
            raise ValueError(f"time cannot go back: {seconds}")
        before = len(self._world.timeline.entries)
        self._simulation.settle()
        self._simulation.play(self._world.clock.t + seconds)
        self._check()
        return self._bound_since(before)

    # Questions about one pod, which change nothing. The pod is one that waits, by name, or one that is
    # not there, as an object.

    def where(self, pod: Given) -> str | None:
        """The node the pod would get now, by filters and scores; None if there is none. Plugins may
        still refuse it in `reserve` and `permit`."""
        with self._asking(pod) as (asking, record):
            asking.check(record)
            return asking.where(record)

    def why_not(self, pod: Given) -> dict[str, list[str]]:
        """The nodes the pod cannot go to, and the reasons. As in the pod's condition, a node has the
        reasons of the first filter it does not pass; see `passes` for one plugin's own word."""
        with self._asking(pod) as (asking, record):
            asking.check(record)
            return asking.why_not(record)

    def passes(self, pod: Given, plugin: str | None = None) -> dict[str, bool]:
        """The nodes that pass the filter of the plugin; other plugins are ignored."""
        with self._asking(pod) as (asking, record):
            return asking.answers(record, plugin or self._tested[0]).passes

    def scores(self, pod: Given, plugin: str | None = None) -> dict[str, int]:
        """The plugin's score of every node that passed all filters: 0 to 100, before its weight."""
        with self._asking(pod) as (asking, record):
            return asking.answers(record, plugin or self._tested[0]).scores

    def raw_scores(self, pod: Given, plugin: str | None = None) -> dict[str, float]:
        """The same before normalisation."""
        with self._asking(pod) as (asking, record):
            return asking.answers(record, plugin or self._tested[0]).raw_scores

    # What is there

    @property
    def now(self) -> float:
        """The time, in seconds since the epoch, as plugins see it."""
        return self._world.clock.epoch()

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler itself, a new one after `restart`. Its insides may change at any time."""
        return self._world.scheduler

    def plugin(self, name: str | None = None) -> Any:
        """The plugin itself, of the first profile; a new one after `restart`."""
        return self._world.scheduler.profiles[0].plugins[name or self._tested[0]]

    def placed(self) -> dict[str, str]:
        """All pods that have a node and have not ended, with their nodes."""
        return {
            short_name(raw): node
            for raw in self._pods()
            if (node := raw["spec"].get("nodeName")) and raw["status"].get("phase") not in ENDED
        }

    def pending(self) -> list[str]:
        """The pods that have no node."""
        return [short_name(raw) for raw in self._pods() if not raw["spec"].get("nodeName")]

    def waiting(self) -> dict[str, str]:
        """The pods that have a node and wait for `permit`, with their nodes."""
        nodes = self._world.scheduler.cluster.nodes
        waiting = self._world.scheduler.binding.waiting.values()
        return {_name(each.pod.namespace, each.pod.name): nodes.name(each.row) for each in waiting}

    def messages(self) -> dict[str, str]:
        """Why pods have no node: the messages of their PodScheduled conditions."""
        found = {}
        for raw in self._pods():
            for condition in raw["status"].get("conditions") or ():
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    found[short_name(raw)] = condition.get("message", "")
        return found

    def events(self) -> list[RecordedEvent]:
        """All Kubernetes events, in the order they were first emitted."""
        return [
            RecordedEvent(_about(raw["involvedObject"]), raw["type"], raw["reason"], raw["message"])
            for raw in self._world.objects.scan("", "Event")
        ]

    def errors(self) -> list[str]:
        """The errors that plugins raised, as in the pods' conditions."""
        return list(self._simulation.plugin_errors)

    def objects(self) -> list[Raw]:
        """All objects but events, as they are now."""
        return [raw for raw in self._world.objects.all() if raw["kind"] != "Event"]

    # Inside

    def _take(self, step: Step) -> None:
        self._simulation.take(step)
        if problems := validate_state(self._world.scheduler.cluster):
            raise self._world.broken(problems)
        self._check_plugins()

    def _read(self, given: tuple[Given, ...]) -> Iterator[Raw]:
        for each in given:
            for data in documents_of(each):
                declared = self._world.objects.declared
                read = ScenarioObject(data, declared)
                if read.errors:
                    raise read.errors[0]
                yield read.raw

    def _key(self, name: str) -> Key:
        kind, _, rest = name.partition("/")
        every = (*KINDS.values(), *self._world.objects.declared.values())
        info = next((each for each in every if each.kind.lower() == kind.lower()), None)
        if info is None or not rest:
            raise ValueError(f"{name!r}: name an object as Kind/name or Kind/namespace/name")
        namespace, _, last = rest.rpartition("/")
        return Key(info.group, info.kind, _namespace(namespace) if info.namespaced else "", last)

    def _keys(self, given: Given) -> list[Key]:
        return [self._world.objects.key_of(raw) for raw in documents_of(given)]

    def _pods(self) -> list[Raw]:
        return list(self._world.objects.scan("", "Pod"))

    def _bound_since(self, before: int) -> dict[str, str]:
        entries = self._world.timeline.entries[before:]
        bound = (entry for entry in entries if entry.event == BOUND)
        return {_without_default(entry.object): entry.node for entry in bound}

    @contextmanager
    def _asking(self, pod: Given) -> Iterator[tuple[Asking, PodRecord]]:
        scheduler, now = self._world.scheduler, self._world.clock.epoch()
        asking = Asking(scheduler, self._tested, self._keeps_errors)
        raw = None if _is_name(pod) else next(self._read((pod,)))
        key = _pod_key(str(pod)) if raw is None else self._world.objects.key_of(raw)
        known = self._world.objects.get(key)
        if known is not None:
            record = scheduler.cluster.pods.get(known["metadata"]["uid"])
            if record is None or record.phase is not Phase.PENDING:
                node = known["spec"].get("nodeName") or "a node and waits for permission"
                raise ValueError(f"{key} is not pending: it has {node}")
            yield asking, record
            return
        if raw is None:
            raise ValueError(f"{key} does not exist; add it first, or pass the object itself")
        asked = {**raw, "metadata": {**raw["metadata"], "uid": f"asked-{key.name}"}}
        objects = self._world.objects
        _, complete = objects.prepared(asked, objects.type_of(asked), restores=True)
        metadata = complete["metadata"]
        view = decode(complete)
        scheduler.feed(Added(view), now)
        try:
            yield asking, scheduler.cluster.pods[metadata["uid"]]
        finally:
            scheduler.feed(Deleted(view), now)

    def _check(self) -> None:
        """Checks the state once everything has settled."""
        for failed in self._simulation.plugin_errors.values() if not self._keeps_errors else ():
            if failed.point not in _OF_NODES:
                raise ContractBroken(f"{failed.message}\n{failed.trace}")
        self._simulation.check_state()
        self._check_plugins()

    def _check_plugins(self) -> None:
        scheduler = self._world.scheduler
        asking = Asking(scheduler, self._tested, self._keeps_errors)
        seen = set()
        for pod in scheduler.cluster.pods.values():
            if not self.setup.serves(pod.scheduler):
                continue
            if (pod.scheduler, pod.cls.id) not in seen:
                seen.add((pod.scheduler, pod.cls.id))
                asking.check(pod)
            if pod.phase is Phase.PENDING:
                self._check_woken(asking, pod)

    def _check_woken(self, asking: Asking, pod: PodRecord) -> None:
        """A pod that a tested plugin rejected must have been woken by what made a node feasible."""
        scheduler = self._world.scheduler
        if scheduler.cluster.has_changes() or scheduler.queue.place(pod.uid) != "unschedulable":
            return
        rejected_by = [name for name in self._tested if name in pod.rejected_by]
        rejected = pod.condition_message.startswith("0/") and pod.job is None and not pod.queue
        if not (rejected_by and rejected) or (node := asking.where(pod)) is None:
            return
        profile = asking.profile(pod)
        wakes = ", ".join(
            f"{name} wakes on {_changes(profile.plugins[name].wakes_on)}" for name in rejected_by
        )
        raise ContractBroken(
            f"{pod.ref} is pending though node {node} is feasible now, and no event requeued it: "
            f"{wakes}. List in wakes_on every kind of change that can make a node feasible"
        )


def _configuration(
    plugins: tuple[type[Plugin], ...], args: Mapping[str, Any] | None, weight: int
) -> Raw:
    first, *others = (plugin.name for plugin in plugins)
    enabled = [{"name": first, "weight": weight}, *({"name": name} for name in others)]
    profile: Raw = {
        "schedulerName": names.HOLDFAST_SCHEDULER,
        "plugins": {"multiPoint": {"enabled": enabled}},
    }
    if args is not None:
        profile["pluginConfig"] = [{"name": first, "args": dict(args)}]
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}


def _mapping(config: Mapping[str, Any] | str) -> Mapping[str, Any]:
    if not isinstance(config, str):
        return config
    documents = documents_of(config)
    if len(documents) != 1:
        raise ValueError(f"config: expected one document, found {len(documents)}")
    return documents[0]


def documents_of(given: Given) -> list[Raw]:
    """The objects that were given."""
    if not isinstance(given, str):
        return [dict(given)]
    try:
        found = [document.data for document in load_text(dedent(given), "text")]
    except BadFileError as error:
        raise ValueError(f"line {error.line}: {error}") from None
    for data in found:
        if not isinstance(data, dict):
            raise ValueError(f"expected an object or YAML of one, got {given!r}")
    if not found:
        raise ValueError("the text has no object")
    return found


def _is_name(given: Given) -> bool:
    return isinstance(given, str) and "\n" not in given and ":" not in given


def _pod_key(name: str) -> Key:
    namespace, _, last = name.rpartition("/")
    return pod_key(_namespace(namespace), last)


def _namespace(given: str) -> str:
    return given or names.DEFAULT_NAMESPACE


def _name(namespace: str, name: str) -> str:
    return name if namespace == names.DEFAULT_NAMESPACE else f"{namespace}/{name}"


def short_name(raw: Raw) -> str:
    """The name of a pod in results: without the namespace `default`."""
    metadata = raw["metadata"]
    return _name(_namespace(metadata.get("namespace") or ""), metadata["name"])


def _without_default(object: str) -> str:
    _, namespace, name = object.split("/")
    return _name(namespace, name)


def _about(involved: Raw) -> str:
    parts = (involved.get("kind"), involved.get("namespace"), involved.get("name"))
    return "/".join(part for part in parts if part)


def _changes(wakes_on: int) -> str:
    if wakes_on == Change.ANY:
        return "any change"
    single = {name: value for name, value in vars(Change).items() if name.isupper()}
    found = [
        f"Change.{name}"
        for name, value in single.items()
        if value and value & (value - 1) == 0 and value & wakes_on
    ]
    return " | ".join(found) or "nothing"

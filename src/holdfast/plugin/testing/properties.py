"""Random lives of a small cluster, and what must hold of a plugin in all of them.

* Every formula gives the same for one row, some rows and all rows, and what was kept is what comes out
  when it is computed again (`PluginTestCluster` sees to that after every step).
* A pod the plugin rejected is requeued by any kind of change that makes a node feasible for it: each
kind is tried separately.
* Answers do not depend on the order in which objects were seen: a scheduler that is restarted on the
  same objects, in any order, gives the same ones.
* `unreserve` also comes after `post_bind`, when the API server refuses the bind.
* `unreserve` undoes `reserve`: afterwards the plugin answers as before, and keeps what it kept before.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any

import numpy as np

from holdfast.api.decode import decode
from holdfast.api.kinds import Kinds
from holdfast.api.meta import Object
from holdfast.api.raw_objects import declared_infos, raw_object
from holdfast.plugin.testing.cluster import Given, PluginTestCluster, Raw, documents_of, short_name
from holdfast.plugin.testing.objects import node as make_node
from holdfast.plugin.testing.objects import pod as make_pod
from holdfast.plugin.testing.queries import Answers, Asking, ContractBroken
from holdfast.scheduler.cluster.events import Added, BindRefused
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.node_columns import OwnColumn
from holdfast.scheduler.scheduler import Scheduler

MakeObject = Callable[[Random, str], Given]
"""An object of this name, otherwise random."""

_ZONES = ("a", "b", "c")
_ORDERS = 2
_TRIES = 3


def random_node(random: Random, name: str) -> Raw:
    """A node of some size in some zone; now and then it has a taint, or is cordoned."""
    return make_node(
        name,
        cpu=random.choice((1, 2, 4)),
        memory=random.choice(("1Gi", "4Gi")),
        pods=random.choice((2, 5, 110)),
        labels={"topology.kubernetes.io/zone": random.choice(_ZONES)},
        taints=("example.com/tainted=yes:NoSchedule",) if random.random() < 0.1 else (),
        unschedulable=random.random() < 0.1,
    )


def random_pod(random: Random, name: str) -> Raw:
    """A pod of some size and priority, of one of three applications."""
    return make_pod(
        name,
        cpu=random.choice(("100m", "500m", "1500m")),
        memory=random.choice(("64Mi", "512Mi")),
        labels={"app": random.choice(("web", "db", "job"))},
        priority=random.choice((0, 0, 100)),
    )


def check_plugin(
    *plugins: type[Plugin],
    seeds: Iterable[int] = range(20),
    node: MakeObject = random_node,
    pod: MakeObject = random_pod,
    objects: Iterable[Given] = (),
    args: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | str | None = None,
    steps: int = 25,
    ignore: Collection[str] = (),
) -> None:
    """Raises ContractBroken, with the seed and the steps that led there, where a plugin breaks its
    contract. `node` and `pod` make random objects that the plugin has an opinion on; `objects` are
    there from the beginning; `ignore` names attributes of the plugin that `unreserve` need not
    restore, such as a cache."""
    given = tuple(objects)
    for seed in seeds:
        for waking in (True, False):
            cluster = PluginTestCluster(*plugins, args=args, config=config)
            life = _Life(Random(seed), cluster, [each.name for each in plugins], node, pod, ignore)
            _live(life, seed, given, None if waking else steps)


def _live(life: "_Life", seed: int, given: Iterable[Given], steps: int | None) -> None:
    try:
        life.cluster.add(*given)
        if steps is None:
            life.check_waking()
        else:
            life.run(steps)
    except ContractBroken as error:
        raise type(error)(f"{error}\n{_led_here(seed, life)}") from error
    except Exception as error:
        error.add_note(_led_here(seed, life))
        raise


def _led_here(seed: int, life: "_Life") -> str:
    return f"check_plugin: seed {seed}, after: {'; '.join(life.history)}"


class _Life:
    def __init__(
        self,
        random: Random,
        cluster: PluginTestCluster,
        plugins: list[str],
        node: MakeObject,
        pod: MakeObject,
        ignore: Collection[str],
    ) -> None:
        self.cluster = cluster
        self.history: list[str] = []
        self._random = random
        self._plugins = plugins
        self._make_node = node
        self._make_pod = pod
        self._ignore = ignore
        self._nodes: list[str] = []
        self._made: dict[str, Raw] = {}
        """Nodes, as they were made or changed last."""
        self._pods: dict[str, Raw] = {}
        self._count = 0

    def run(self, steps: int) -> None:
        for _ in range(self._random.randint(1, 4)):
            self._add_node()
        nodes = (self._add_node, self._change_node, self._delete_node)
        pods = (self._add_pods, self._add_pods, self._add_pods, self._change_pod, self._delete_pod)
        others = (self._reserve, self._refuse_bind, self._check_order, self._schedule, self._advance)
        for _ in range(steps):
            self._random.choice((*nodes, *pods, *others))()
        self._reserve()
        self._schedule()
        self._add_pods()
        self._check_order()

    # Steps

    def _add_node(self) -> None:
        name = self._new("n")
        self._nodes.append(name)
        self.history.append(f"add node {name}")
        (raw,) = documents_of(self._make_node(self._random, name))
        self._made[name] = raw
        self.cluster.add(raw)

    def _change_node(self) -> None:
        if self._nodes:
            name = self._random.choice(self._nodes)
            self.history.append(f"change node {name}")
            self._update_node(name)

    def _update_node(self, name: str, *parts: str) -> None:
        """Another random node of this name; with `parts`, only in those parts of the metadata."""
        (raw,) = documents_of(self._make_node(self._random, name))
        if parts:
            now = self._made[name]
            changed = {part: raw["metadata"].get(part) or {} for part in parts}
            raw = {**now, "metadata": {**now["metadata"], **changed}}
        self._made[name] = raw
        self.cluster.update(raw)

    def _delete_node(self) -> None:
        if len(self._nodes) > 1:
            name = self._nodes.pop(self._random.randrange(len(self._nodes)))
            self.history.append(f"delete node {name}")
            self.cluster.delete(f"Node/{name}")

    def _add_pods(self) -> None:
        """Several that differ in nothing but the name, mostly of one class."""
        state = self._random.getrandbits(32)
        for _ in range(self._random.randint(1, 3)):
            name = self._new("p")
            self.history.append(f"add pod {name}")
            (raw,) = documents_of(self._make_pod(Random(state), name))
            self._pods[short_name(raw)] = raw
            self.cluster.add(raw)

    def _change_pod(self, name: str = "") -> None:
        """Its labels and annotations: of the rest hardly anything may change."""
        if name := name or self._some_pod():
            self.history.append(f"change pod {name}")
            raw = self._pods[name]
            (other,) = documents_of(self._make_pod(self._random, raw["metadata"]["name"]))
            parts = {part: other["metadata"].get(part) or {} for part in ("labels", "annotations")}
            raw = self._pods[name] = {**raw, "metadata": {**raw["metadata"], **parts}}
            self.cluster.update(raw)

    def _delete_pod(self) -> None:
        if name := self._some_pod():
            self.history.append(f"delete pod {name}")
            self.cluster.delete(f"Pod/{name}")

    def _some_pod(self) -> str:
        names = [
            name for name in (*self.cluster.placed(), *self.cluster.pending()) if name in self._pods
        ]
        return self._random.choice(names) if names else ""

    def _schedule(self) -> None:
        self.history.append("schedule")
        self.cluster.schedule()

    def _advance(self) -> None:
        seconds = self._random.choice((1, 10, 60, 600))
        self.history.append(f"advance {seconds}")
        self.cluster.advance(seconds)

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    # Properties

    def _reserve(self) -> None:
        """Each pod that waits, on the node it would get; and unreserved at once."""
        self.history.append("reserve and unreserve")
        scheduler, plugins, ignore = self.cluster.scheduler, self._plugins, self._ignore
        asking = Asking(scheduler, plugins)
        answers = _answers(scheduler, plugins)
        for pod in _pending(scheduler):
            profile = asking.profile(pod)
            row = asking.row(pod)
            if row < 0:
                continue
            kept = _kept(profile.plugins, plugins, ignore)
            if scheduler.cycle.reserve(profile, pod, row) is None:
                scheduler.binding.unreserve(profile, pod)
            where = f"{pod.ref}: reserved on {scheduler.cluster.nodes.name(row)} and unreserved"
            for (name, attribute), value in _kept(profile.plugins, plugins, ignore).items():
                if (name, attribute) not in kept:
                    changed = f"{attribute} did not exist, is {value!r}"
                else:
                    changed = _difference(attribute, kept[name, attribute], value)
                if changed:
                    raise ContractBroken(f"plugin {name}: {where}: {changed}")
            _compare(answers, _answers(scheduler, plugins), where)

    def check_waking(self) -> None:
        """In a cluster of one or two nodes, with as many pods as it takes for one to wait.

        Each kind of change is tried separately, until it makes a node feasible for a pod that the
        plugins rejected. The pod must be woken by it, which the cluster checks once it has settled."""
        changes: list[Callable[[], None]] = [
            self._add_node,
            partial(self._change_part, "annotations"),
            partial(self._change_part, "labels"),
            self._change_node,
            self._delete_placed,
            self._change_placed,
        ]
        for _ in range(self._random.randint(1, 2)):
            self._add_node()
        self._random.shuffle(changes)
        for change in changes:
            self._fill()
            for _ in range(_TRIES):
                rejected = self._rejected()
                if not rejected:
                    break
                change()
                asking = Asking(self.cluster.scheduler, self._plugins)
                helps = any(asking.row(pod) >= 0 for pod in rejected if pod.phase is Phase.PENDING)
                self._settle()
                if helps:
                    break

    def _fill(self) -> None:
        """Adds pods until the plugins reject one."""
        for _ in range(_TRIES):
            self._settle()
            if self._rejected():
                return
            self._add_pods()
        self._settle()

    def _settle(self) -> None:
        """Deleted pods end, and pods that were woken are tried again."""
        self.history.append("advance 12")
        self.cluster.advance(12)

    def _rejected(self) -> list[PodRecord]:
        """The pods that wait for a node because of one of the plugins."""
        return [
            pod
            for pod in _pending(self.cluster.scheduler)
            if any(name in pod.rejected_by for name in self._plugins)
        ]

    def _change_part(self, part: str) -> None:
        if self._nodes:
            name = self._random.choice(self._nodes)
            self.history.append(f"change {part} of node {name}")
            self._update_node(name, part)

    def _delete_placed(self) -> None:
        if names := [name for name in self.cluster.placed() if name in self._pods]:
            name = self._random.choice(names)
            self.history.append(f"delete pod {name}")
            self.cluster.delete(f"Pod/{name}")

    def _change_placed(self) -> None:
        if names := [name for name in self.cluster.placed() if name in self._pods]:
            self._change_pod(self._random.choice(names))

    def _refuse_bind(self) -> None:
        """Refuses the bind of one pod, as an API server may: the plugin has seen it through `post_bind`
        by then, and its `unreserve` is called."""
        scheduler, now = self.cluster.scheduler, self.cluster.now
        asking = Asking(scheduler, self._plugins)
        feasible = [pod for pod in _pending(scheduler) if asking.row(pod) >= 0 and pod.job is None]
        if not feasible:
            return
        pod = self._random.choice(feasible)
        self.history.append(f"refuse the bind of {pod.name}")
        profile, row, binding = asking.profile(pod), asking.row(pod), scheduler.binding
        before = len(scheduler.decisions)
        if scheduler.queue.pop_pod(pod) and scheduler.cycle.assume_and_bind(profile, pod, row, now):
            if pod.uid in binding.waiting:
                binding.reject_waiting(pod, "given up", now)
            else:
                scheduler.feed(BindRefused(pod.uid, "refused"), now)
        del scheduler.decisions[before:]
        for failed in scheduler.cluster.plugin_errors.take_reports():
            raise ContractBroken(f"{failed.message}\n{failed.trace}")

    def _check_order(self) -> None:
        """Pods that wait for permission are known to no other scheduler: with any of them there is
        nothing to compare."""
        scheduler, plugins = self.cluster.scheduler, self._plugins
        if scheduler.binding.waiting:
            return
        answers = _answers(scheduler, plugins)
        objects = self.cluster.objects()
        declared = declared_infos(self.cluster.setup.object_kinds())
        self.history.append("compare with new schedulers")
        for _ in range(_ORDERS):
            self._random.shuffle(objects)
            other = self.cluster.setup.scheduler()
            for raw in objects:
                other.feed(Added(_decoded(raw, declared)), self.cluster.now)
            order = ", ".join(f"{raw['kind']} {raw['metadata']['name']}" for raw in objects)
            _compare(answers, _answers(other, plugins), f"a scheduler that saw, in this order, {order}")


def _decoded(raw: Raw, declared: Kinds) -> Object:
    """The typed object that schedulers are fed with."""
    info = declared.get((raw["apiVersion"], raw["kind"]))
    return decode(raw) if info is None else raw_object(info, raw)


def _pending(scheduler: Scheduler) -> list[PodRecord]:
    return [pod for pod in scheduler.cluster.pods.values() if pod.phase is Phase.PENDING]


def _answers(scheduler: Scheduler, plugins: list[str]) -> dict[tuple[str, str], Answers]:
    """The results of the plugins for every pending pod, by pod and plugin."""
    asking = Asking(scheduler, plugins)
    found: dict[tuple[str, str], Answers] = {}
    of_class: dict[tuple[str, int, str], Answers] = {}
    for pod in _pending(scheduler):
        for name in plugins:
            if name in asking.profile(pod).plugins:
                key = (pod.scheduler, pod.cls.id, name)
                if key not in of_class:
                    of_class[key] = asking.answers(pod, name)
                found[str(pod.ref), name] = of_class[key]
    return found


def _compare(
    before: dict[tuple[str, str], Answers], after: dict[tuple[str, str], Answers], where: str
) -> None:
    for (pod, plugin), answers in before.items():
        pairs: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
            (what, getattr(answers, what), getattr(after[pod, plugin], what))
            for what in Answers._fields
        ]
        for what, old, new in pairs:
            for node in sorted({*old, *new}):
                if old.get(node) != new.get(node):
                    raise ContractBroken(
                        f"plugin {plugin}: {pod}, {what}: node {node}: "
                        f"{old.get(node)!r} becomes {new.get(node)!r}: {where}"
                    )


def _kept(
    made: Mapping[str, Plugin], plugins: list[str], ignore: Collection[str]
) -> dict[tuple[str, str], Any]:
    """The state of plugins as far as it is plain values, by plugin and attribute."""
    return {
        (name, attribute): _copied(value)
        for name in plugins
        if name in made
        for attribute, value in vars(made[name]).items()
        if attribute not in ignore and attribute != "args"
    }


def _copied(value: Any) -> Any:
    """A copy of plain values; of other values only their presence."""
    if isinstance(value, OwnColumn):
        return value.cells.copy()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_copied(each) for each in value]
    return value if isinstance(value, int | float | str | bytes | None) else type(value)


def _difference(what: str, one: Any, other: Any) -> str:
    """The difference of two values; for arrays the first row, for mappings the first key that differs.
    Empty if nothing does."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        shared = min(len(one), len(other))
        for row in np.flatnonzero(one[:shared] != other[:shared]).tolist():
            return f"{what}[{row}] was {one[row].item()!r}, is {other[row].item()!r}"
        return ""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in (*one, *(key for key in other if key not in one)):
            if key not in one:
                return f"{what}[{key!r}] did not exist, is {other[key]!r}"
            if key not in other:
                return f"{what}[{key!r}] was {one[key]!r}, no longer exists"
            if found := _difference(f"{what}[{key!r}]", one[key], other[key]):
                return found
        return ""
    return f"{what} was {one!r}, is {other!r}" if one != other else ""

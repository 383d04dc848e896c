"""Every plugin, ours and one from outside, raises at each of its extension points on each path to them:
its pod is rejected by name, other pods are bound, nothing is left behind, and when the plugin no longer
raises the pod is bound. For each point there is a path on which every plugin must have raised there, so
that no combination passes because it was never tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.explanation.facts.matching_reservations import matching_reservations
from holdfast.explanation.verdicts import place, rank
from holdfast.local.setup import SchedulerFactory
from holdfast.plugin import (
    FINE,
    ByRange,
    Cells,
    Filter,
    Nomination,
    Offer,
    Outcome,
    Plugin,
    PodClass,
    Reason,
    Rejected,
    Scope,
    Score,
    Settled,
    Trial,
    View,
)
from holdfast.plugin.testing import node, pod, reservation
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.config import API_VERSION, KIND, load
from holdfast.scheduler.framework.interface import everywhere
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE
from holdfast.sim.scenario_actions import Create, Delete, Scenario, Target
from holdfast.sim.scenario_objects import ScenarioObject
from holdfast.sim.simulation import Simulation

Raw = dict[str, Any]
DOOMED = {"doomed": "yes"}
BOOM = "boom"


class Foreign(Plugin):
    """Has nothing against anything, at every point."""

    name = "Foreign"

    def pre_enqueue(self, pod: PodRecord) -> str:
        return ""

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        return None

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        return Nomination()

    def can_preempt_for(self, cls: PodClass) -> bool:
        return False

    def score(self, cls: PodClass) -> Score | None:
        return None

    def node_order_on_resource(self, cls: PodClass, offer: Offer) -> Any:
        return [0] * len(offer.rows)

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        return None

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        return FINE

    def pre_bind(self, pod: PodRecord, row: int) -> list[Any]:
        return []

    def bind(self, pod: PodRecord, row: int) -> list[Any]:
        return []

    def post_bind(self, pod: PodRecord, row: int) -> list[Any]:
        return []


class ForeignVolumes(Foreign):
    """The same, of a pod's volumes."""

    name = "ForeignVolumes"
    reads_volumes = True


class Refusing(Plugin):
    """Has pods give their nodes back, after every plugin has reserved them."""

    name = "Refusing"
    refuses = False

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        refused = self.refuses and pod.cls.labels.get("refused")
        return Outcome("refused", retry=True) if refused else FINE


class ForeignSort(Plugin):
    name = "ForeignSort"

    def sort_key(self, pod: PodRecord) -> tuple[Any, ...]:
        return (-pod.cls.priority, pod.name)


BINDERS = ("Foreign", "ForeignVolumes", "Reservation", "DefaultBinder")
OUTSIDE = (Foreign, ForeignVolumes, ForeignSort)
PLUGINS = {plugin.name: plugin for plugin in (*IN_TREE, *OUTSIDE)}
FORMULAS = {
    "filter": ("PreFilter", "Filter", "reasons", "version"),
    "score": ("PreScore", "Score", "measure", "apply"),
}
METHODS = (
    "pre_enqueue",
    "sort_key",
    "filter",
    "watches",
    "post_filter",
    "can_preempt_for",
    "score",
    "node_order_on_resource",
    "reserve",
    "unreserve",
    "permit",
    "pre_bind",
    "bind",
    "post_bind",
)
ONLY_REPORTED = {
    "sort_key",
    "watches",
    "can_preempt_for",
    "node_order_on_resource",
    "unreserve",
    "post_bind",
}
"""Where a plugin fails without harm to the pod."""


SCORING = FORMULAS["score"]
NO_NODE = ("post_filter",)
"""Asked only while no node is feasible: when one is the pod is bound."""
REJECTING = ("reasons", "watches")
"""Asked only about pods that the plugin rejects."""


def points_of(plugin: type[Plugin]) -> list[str]:
    own = [method for method in METHODS if getattr(plugin, method) is not getattr(Plugin, method)]
    return [point for method in own for point in FORMULAS.get(method, (method,))]


class Fault:
    """A plugin that raises at a point where doomed pods are concerned, while it is on."""

    def __init__(self, plugin: Plugin, point: str) -> None:
        self._plugin = plugin
        self._point = point
        self._ledger = plugin.handle._cluster.ledger
        self.is_on = False
        self.when = ""
        """Only for views of "one" row, or in a dry run ("tried"): in a transaction of the ledger."""
        self.hits = 0
        method = next((m for m, points in FORMULAS.items() if point in points), point)
        for each in dict.fromkeys((method, *(("filter",) if point in REJECTING else ()))):
            wrap = getattr(self, f"_{each}", self._method)
            setattr(plugin, each, wrap(getattr(plugin, each)))

    def _hit(self, view: Any = None) -> None:
        if not self.is_on or (self.when == "tried" and not self._ledger._depth):
            return
        if view is not None and self.when == "one" and len(view) > 1:
            return
        self.hits += 1
        raise RuntimeError(BOOM)

    def _method(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def method(about: Any, *more: Any) -> Any:
            cls = about if isinstance(about, PodClass) else about.cls
            if cls.labels.get("doomed"):
                self._hit()
            return real(about, *more)

        return method

    def _filter(self, real: Callable[[PodClass], Any]) -> Callable[[PodClass], Any]:
        def asked(cls: PodClass) -> Any:
            if not cls.labels.get("doomed"):
                return real(cls)
            if self._point == "PreFilter":
                self._hit()
            answer = real(cls)
            if isinstance(answer, Rejected):
                return answer
            if answer is None or answer.passes is everywhere:
                version = None if answer is None else answer.version
                answer = Filter(lambda view: view.full(True), lambda view: [], Scope.USAGE, version)
            return msgspec.structs.replace(answer, **self._parts(answer))

        return asked

    def _parts(self, answer: Filter) -> dict[str, Any]:
        def passes(view: View) -> Cells:
            self._hit(view)
            return answer.passes(view)

        if self._point == "Filter":
            return {"passes": passes}
        if self._point in REJECTING:
            return self._rejecting(answer)
        return {"version": self._version(answer.version)}

    def _rejecting(self, answer: Filter) -> dict[str, Any]:
        """Every row is rejected while the fault is on."""

        def passes(view: View) -> Cells:
            return view.full(False) if self.is_on else answer.passes(view)

        def reasons(view: View) -> Any:
            if self._point == "reasons":
                self._hit(view)
            return [Reason("rejected", view.full(True))] if self.is_on else answer.reasons(view)

        def version() -> Any:
            return self.is_on, None if answer.version is None else answer.version()

        return {
            "passes": passes,
            "reasons": reasons,
            "version": version,
            "needs": None,
            "kind": None,
            "only": None,
        }

    def _version(self, real: Any) -> Any:
        def version() -> Any:
            if self._point == "version":
                self._hit()
            return 0 if real is None else real()

        return Settled(version) if isinstance(real, Settled) else version

    def _score(self, real: Callable[[PodClass], Any]) -> Callable[[PodClass], Any]:
        def asked(cls: PodClass) -> Any:
            if not cls.labels.get("doomed"):
                return real(cls)
            if self._point == "PreScore":
                self._hit()
            answer = real(cls)
            if answer is None or answer.constant is not None:
                version = None if answer is None else answer.version
                answer = Score(lambda view: view.claimed(0), Scope.USAGE, ByRange(), version)

            def score(view: View) -> Cells:
                self._hit(view)
                return answer.score(view)

            if self._point == "Score":
                return msgspec.structs.replace(answer, score=score)
            if self._point == "PreScore":
                return answer
            normalize = Normalizing(self, answer.normalize or ByRange())
            return msgspec.structs.replace(answer, normalize=normalize)

        return asked

    def at(self, step: str) -> None:
        if self._point == step:
            self._hit()


class Normalizing:
    def __init__(self, fault: Fault, real: Any) -> None:
        self._fault = fault
        self._real = real

    def measure(self, raw: Any) -> Any:
        self._fault.at("measure")
        return self._real.measure(raw)

    def apply(self, raw: Any, measure: Any) -> Any:
        self._fault.at("apply")
        return self._real.apply(raw, measure)


@cache
def setup_of(sorts: str, starve_after: str) -> SchedulerFactory:
    names = [name for name in PLUGINS if name not in ("ForeignSort", "DefaultBinder")]
    names.append(Refusing.name)
    plugins = {
        "multiPoint": {"enabled": [{"name": name} for name in names]},
        "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": sorts}]},
        "bind": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": n} for n in BINDERS],
        },
    }
    starving = {"starvingJobTimeThreshold": starve_after, "reservedNodePercent": 100}
    order = ("allocate", "backfill", "reserve", "preempt", "reclaim")
    arguments = {"reserve": starving}
    actions = [{"name": name, "arguments": arguments.get(name, {})} for name in order]
    mapping = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "profiles": [{"plugins": plugins}],
        "actions": actions,
    }
    registry = Registry([*IN_TREE, *OUTSIDE, Refusing])
    return SchedulerFactory(load(mapping, registry.implements()), registry)


class Stage:
    def __init__(self, plugin: str, point: str) -> None:
        self.point, self.plugin = point, plugin
        sorts = plugin if point == "sort_key" else "PrioritySort"
        setup = setup_of(sorts, "10s" if point == "node_order_on_resource" else "48h")
        self.simulation = Simulation(Scenario((), ()), setup, audit=True)
        self.world = self.simulation.world
        self.fault = Fault(self.scheduler.profiles[0].plugins[plugin], point)

    @property
    def scheduler(self) -> Any:
        return self.world.scheduler

    def add(self, *objects: Raw) -> Stage:
        for raw in objects:
            read = ScenarioObject(raw, self.world.objects.declared)
            self.simulation.take(Create(read.raw))
        return self

    def delete(self, *names: str) -> Stage:
        for name in names:
            self.simulation.take(Delete(Target("Pod", "default", name, ("",))))
        return self

    def reservations(self) -> list[str]:
        found = self.world.objects.scan("scheduling.koordinator.sh", "Reservation")
        return [raw["metadata"]["name"] for raw in found]

    def delete_reservations(self) -> Stage:
        for name in self.reservations():
            target = Target("Reservation", "", name, ("scheduling.koordinator.sh",))
            self.simulation.take(Delete(target))
        return self

    def settle(self, seconds: float = 0.0) -> Stage:
        self.simulation.settle()
        self.simulation.play(self.world.clock.t + seconds)
        return self

    def fail(self, when: str = "") -> Stage:
        self.fault.is_on, self.fault.when = True, when
        return self

    def nodes(self) -> dict[str, str]:
        """Where pods are, and reservations."""
        found = {
            raw["metadata"]["name"]: raw["spec"].get("nodeName", "")
            for raw in self.world.objects.scan("", "Pod")
        }
        for raw in self.world.objects.scan("scheduling.koordinator.sh", "Reservation"):
            found[raw["metadata"]["name"]] = raw.get("status", {}).get("nodeName", "")
        return found

    def said(self) -> str:
        """The events of pods, and of reservations, and their conditions."""
        events = [raw["message"] for raw in self.world.objects.scan("", "Event")]
        pods = [str(raw.get("status")) for raw in self.world.objects.scan("", "Pod")]
        return "\n".join(events + pods)


# Paths. Each yields the name of the pod that is doomed, and of those that must be bound nevertheless,
# when the plugin may fail.


class Act(NamedTuple):
    doomed: tuple[str, ...]
    others: tuple[str, ...]
    has_choice: bool = False
    """Whether more than one node is feasible, so that scores matter."""
    said: str | None = None
    """Instead of what pods are told."""


def doomed(name: str = "doomed", cpu: int = 1, **more: Any) -> Raw:
    labels = {**DOOMED, **more.pop("labels", {})}
    return pod(name, cpu=cpu, labels=labels, **more)


def any_rows(stage: Stage) -> Act:
    stage.add(node("a"), node("b"), node("c")).fail()
    stage.add(doomed(), pod("other", cpu=1)).settle()
    return Act(("doomed",), ("other",), has_choice=True)


def one_row(stage: Stage) -> Act:
    stage.add(node("a"), node("b"), node("c"), doomed("first")).settle()
    stage.fail("one").add(pod("before", cpu=1), doomed(), pod("other", cpu=1)).settle()
    return Act(("doomed",), ("before", "other"), has_choice=True)


def with_volumes(stage: Stage) -> Act:
    stage.add(node("a"), node("b")).fail()
    volume = {"name": "v", "csi": {"driver": "example.com"}}
    stage.add(doomed(volumes=[volume]), pod("other", cpu=1, volumes=[volume])).settle()
    return Act(("doomed",), ("other",), has_choice=True)


def by_topology(stage: Stage) -> Act:
    hosts = [node(name, labels={"kubernetes.io/hostname": name}) for name in "abc"]
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": DOOMED},
    }
    stage.add(*hosts, doomed("first", topologySpreadConstraints=[spread])).settle().fail()
    stage.add(doomed(topologySpreadConstraints=[spread]), pod("other", cpu=1)).settle()
    return Act(("doomed",), ("other",), has_choice=True)


def _full(stage: Stage) -> Stage:
    """Two nodes with no more room than for unimportant pods."""
    return stage.add(
        node("a", cpu=2), node("b", cpu=2), pod("va", cpu=2, on="a"), pod("vb", cpu=2, on="b")
    ).settle()


def dry_run(stage: Stage) -> Act:
    _full(stage).fail("tried")
    stage.add(doomed(cpu=2, priority=10), pod("other", cpu=0)).settle()
    return Act(("doomed",), ("other",))


def _being_cleared(stage: Stage) -> Stage:
    """The same, where pods take their time to go."""
    stage.add(node("a", cpu=2), node("b", cpu=2))
    for name in "ab":
        stage.add(pod(f"v{name}", cpu=2, on=name, annotations={"sim.holdfast.io/stops-in": "20s"}))
    return stage.settle()


def nominated(stage: Stage) -> Act:
    """The room that was made for the pod is there when its plugin begins to fail."""
    _being_cleared(stage).add(doomed(cpu=2, priority=10)).settle()
    assert stage.scheduler.cluster.nominator
    stage.fail().add(pod("beside", cpu=0)).settle(30).add(pod("other", cpu=0)).settle()
    return Act(("doomed",), ("other", "beside"))


def beside_nominated(stage: Stage) -> Act:
    """A node is being cleared for another pod, which counts where the doomed pod is tried."""
    _being_cleared(stage).add(pod("rival", cpu=1, priority=10)).settle()
    assert stage.scheduler.cluster.nominator
    stage.fail().add(doomed(cpu=1), pod("other", cpu=0)).settle()
    return Act(("doomed",), ("other",))


def pinned(stage: Stage) -> Act:
    """A pod of a DaemonSet, with its node."""
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    stage.add(node("a"), node("b")).fail()
    stage.add(doomed(affinity=affinity), pod("other", cpu=1)).settle()
    return Act(("doomed",), ("other",))


def reserve_pod(stage: Stage) -> Act:
    stage.add(node("a"), node("b")).fail()
    stage.add(reservation("doomed", owners={"app": "web"}, cpu=1, labels=DOOMED), pod("other", cpu=1))
    stage.settle()
    return Act(("doomed",), ("other",), has_choice=True)


def reserve_pod_preempts(stage: Stage) -> Act:
    _full(stage).fail()
    held = reservation("doomed", owners={"app": "web"}, cpu=2, labels=DOOMED)
    held["spec"]["template"]["spec"]["priority"] = 10
    stage.add(held, pod("other", cpu=0)).settle()
    return Act(("doomed",), ("other",))


def owner(stage: Stage) -> Act:
    stage.add(node("a"), node("b"), reservation("held", owners={"app": "web"}, cpu=2)).settle().fail()
    stage.add(doomed(labels={"app": "web"}), pod("other", cpu=1)).settle()
    return Act(("doomed",), ("other",), has_choice=True)


GROUP = "pod-group.scheduling.sigs.k8s.io"


def group(least: int) -> Raw:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": least},
    }


def gang(stage: Stage) -> Act:
    stage.add(node("a"), node("b"), group(3)).fail()
    stage.add(pod("g0", cpu=1, labels={GROUP: "g"}), doomed("g1", labels={GROUP: "g"}))
    stage.add(pod("g2", cpu=1, labels={GROUP: "g"}), pod("other", cpu=1)).settle()
    return Act(("g0", "g1", "g2"), ("other",), has_choice=True)


def gang_preempts(stage: Stage) -> Act:
    _full(stage).add(group(2)).fail("tried")
    stage.add(pod("g0", cpu=2, priority=10, labels={GROUP: "g"}))
    stage.add(doomed("g1", cpu=2, priority=10, labels={GROUP: "g"}), pod("other", cpu=0)).settle()
    return Act(("g0", "g1"), ("other",))


def refused(stage: Stage) -> Act:
    """Another plugin refuses the pod after all have reserved it."""
    refusing = stage.scheduler.profiles[0].plugins[Refusing.name]
    refusing.refuses = True
    stage.add(node("a"), node("b")).fail()
    stage.add(doomed(labels={"refused": "yes"}), pod("other", cpu=1)).settle()
    refusing.refuses = False
    return Act(("doomed",), ("other",), has_choice=True)


def still_infeasible(stage: Stage) -> Act:
    """A pod that preemption cannot help waits, and something changes that does not help it either."""
    stage.add(node("a", cpu=2), pod("va", cpu=2, on="a"), pod("other", cpu=0)).settle()
    stage.add(doomed(cpu=2)).settle().fail()
    stage.add(node("small", cpu=1)).settle(30)
    return Act(("doomed",), ("other",))


def storage_changes(stage: Stage) -> Act:
    """A claim comes that has nothing to do with the volumes of a pod that waits."""
    stage.add(node("a"), node("b")).fail()
    volume = {"name": "v", "csi": {"driver": "example.com"}}
    stage.add(doomed(volumes=[volume]), pod("other", cpu=1, volumes=[volume])).settle()
    stage.add(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "unrelated", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    ).settle()
    return Act(("doomed",), ("other",), has_choice=True)


def starving(stage: Stage) -> Act:
    """A pod that has waited for long gets a node held for it."""
    stage.add(node("a", cpu=2), pod("va", cpu=2, on="a"), pod("other", cpu=0)).settle().fail()
    stage.add(doomed(cpu=2)).settle(60)
    return Act(("doomed",), ("other",))


def explained(stage: Stage) -> Act:
    """What it takes to say why a pod waits, while the plugin fails."""
    stage.add(node("a", cpu=2), pod("there", cpu=1, on="a")).settle()
    stage.add(doomed(cpu=4), pod("other", cpu=1)).settle()
    stage.fail()
    (record,) = (each for each in stage.scheduler.cluster.pods.values() if each.name == "doomed")
    stage.scheduler.failures.new_round()
    found = place(stage.scheduler, record)
    rank(stage.scheduler, found)
    matching_reservations(stage.scheduler.cluster, found.column)
    stage.fault.is_on = False
    stage.add(node("b", cpu=8))
    return Act(("doomed",), ("other",), said=found.message)


PATHS = (
    any_rows,
    one_row,
    with_volumes,
    by_topology,
    dry_run,
    nominated,
    beside_nominated,
    pinned,
    reserve_pod,
    reserve_pod_preempts,
    owner,
    gang,
    gang_preempts,
    refused,
    still_infeasible,
    storage_changes,
    starving,
    explained,
)

REACHED_BY: dict[str, Callable[[Stage], Act]] = {
    **dict.fromkeys(points_of(Foreign), any_rows),
    "sort_key": any_rows,
    "post_filter": beside_nominated,
    "can_preempt_for": still_infeasible,
    "watches": storage_changes,
    "node_order_on_resource": starving,
    "unreserve": refused,
}
"""The path on which each plugin that has the point raises there. Other paths may reach it, too."""
ELSEWHERE = {("Reservation", "bind"): reserve_pod}
"""Where a plugin is asked about no other pods."""


def cases() -> Iterator[Any]:
    for plugin in PLUGINS.values():
        for path in PATHS:
            yield pytest.param(plugin, path, id=f"{plugin.name}-{path.__name__}")


@pytest.mark.parametrize(("plugin", "path"), list(cases()))
def test_a_plugin_that_fails_harms_its_pod_alone(
    plugin: type[Plugin], path: Callable[[Stage], Act]
) -> None:
    for point in points_of(plugin):
        stage = Stage(plugin.name, point)
        act = path(stage)
        if path is ELSEWHERE.get((plugin.name, point), REACHED_BY[point]):
            assert stage.fault.hits, f"{plugin.name} was never made to raise at {point}"
        check(stage, act, point)


def test_there_is_a_path_to_every_point() -> None:
    points = {point for plugin in PLUGINS.values() for point in points_of(plugin)}
    assert points == set(REACHED_BY)
    assert {*REACHED_BY.values(), *ELSEWHERE.values()} <= set(PATHS)


def check(stage: Stage, act: Act, point: str) -> None:
    where, fault, cluster = stage.nodes(), stage.fault, stage.scheduler.cluster
    told = stage.said()
    assert all(where[name] for name in act.others), (point, where, told)
    is_counted = any(name == stage.plugin for name, _ in cluster.plugin_errors.counts)
    assert is_counted == bool(fault.hits), (point, fault.hits, cluster.plugin_errors.counts)
    matters = act.has_choice or point not in SCORING
    helped = point == "post_filter" and "Preempted by" in told  # by the next plugin
    if fault.hits and matters and point not in ONLY_REPORTED and not helped:
        text = told if act.said is None else act.said
        assert BOOM in text and stage.plugin in text, (point, text)
        assert point in NO_NODE or not any(where[name] for name in act.doomed), (point, where)
    left = [each.name for each in cluster.pods.values() if each.phase is Phase.ASSUMED]
    assert not left and not stage.scheduler.binding.waiting, (point, left)
    fault.is_on = False
    if point in REJECTING:
        stage.add(node("z"))  # where the plugin did not fail it rejected the pod, which only waits
    stage.delete(*(name for name in stage.nodes() if name.startswith("v"))).settle(600)
    where = stage.nodes()
    assert all(where[name] for name in (*act.doomed, *act.others)), (point, where, stage.said())
    assert not cluster.nominator, (point, cluster.nominator)
    stage.delete(*(name for name in where if name not in stage.reservations()))
    stage.delete_reservations().settle(600)
    nodes = cluster.nodes
    assert not nodes.claimed.any() and not nodes.held_once_pods_end.any() and not nodes.held.any(), (
        point
    )
    assert not any(cluster.ledger.pods.values()) and not cluster.pods, point

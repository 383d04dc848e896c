"""The cluster for plugin authors answers as the scheduler does, and finds what breaks the contract."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import numpy as np
import pytest

from holdfast.api.errors import InvalidObject
from holdfast.plugin.testing import Cluster, ContractBroken, check_plugin, node, pod, reservation
from holdfast.scheduler.cluster.decisions import Decision
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    FINE,
    ByRange,
    Filter,
    Outcome,
    Plugin,
    Reason,
    Rejected,
    Scope,
    Score,
)
from holdfast.scheduler.framework.registry import PluginError

FULL = "node(s) were too full"


class HalfFull(Plugin):
    """Pods with its label fill no node beyond half; nodes with more free CPU are better."""

    name = "HalfFull"
    wakes_on = Change.NODE_ADDED | Change.NODE_ALLOCATABLE | Change.POD_LEFT

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        if "never" in cls.labels:
            return Rejected("never means never")
        if "half" not in cls.labels:
            return None

        def is_full(view: View) -> Cells:
            return 2 * view.claimed(CPU) >= view.allocatable(CPU)

        return Filter(
            lambda view: ~is_full(view), lambda view: [Reason(FULL, is_full(view))], Scope.USAGE
        )

    def score(self, cls: PodClass) -> Score | None:
        return Score(lambda view: view.free(CPU), Scope.USAGE, ByRange())


HALF: dict[str, Any] = {"labels": {"half": "yes"}}


def random_half(random: Random, name: str) -> dict[str, Any]:
    labels = {"half": "yes"} if random.random() < 0.7 else {}
    return pod(name, cpu=random.choice(("250m", "500m")), labels=labels)


def small_node(random: Random, name: str) -> dict[str, Any]:
    return node(name, cpu=random.choice((1, 2)))


# Questions


def test_where_a_pod_would_go_and_why_not_elsewhere() -> None:
    cluster = Cluster(HalfFull).add(node("small", cpu=2), node("large", cpu=4))
    cluster.add(pod("there", cpu=1, on="small"))
    assert cluster.where(pod("p", **HALF)) == "large"
    assert cluster.why_not(pod("p", **HALF)) == {"small": [FULL]}
    assert cluster.passes(pod("p", **HALF)) == {"small": False, "large": True}
    assert cluster.raw_scores(pod("p")) == {"small": 1000, "large": 4000}
    assert cluster.scores(pod("p")) == {"small": 0, "large": 100}
    assert cluster.scores(pod("p", **HALF)) == {"large": 0}


def test_asking_changes_nothing() -> None:
    cluster = Cluster(HalfFull).add(node("n"))
    for _ in range(2):
        assert cluster.where(pod("p", **HALF)) == "n"
    assert cluster.schedule() == {} and cluster.placed() == {} and cluster.pending() == []


def test_a_pod_that_waits_is_asked_about_by_name() -> None:
    cluster = Cluster(HalfFull).add(node("n"), pod("p", namespace="prod"), pod("q"))
    assert cluster.where("prod/p") == cluster.where("q") == "n"
    assert cluster.schedule() == {"prod/p": "n", "q": "n"}
    with pytest.raises(ValueError, match="Pod/default/q is not pending: it has n"):
        cluster.where("q")
    with pytest.raises(ValueError, match="Pod/default/r does not exist"):
        cluster.where("r")


def test_a_pod_rejected_outright_has_the_reason_on_every_node() -> None:
    cluster = Cluster(HalfFull).add(node("n"), node("m"))
    never = pod("p", labels={"never": ""})
    assert cluster.why_not(never) == {"n": ["never means never"], "m": ["never means never"]}
    assert cluster.passes(never) == {"n": False, "m": False}
    assert cluster.scores(never) == {} and cluster.where(never) is None


def test_the_answer_of_another_plugin() -> None:
    cluster = Cluster(HalfFull).add(node("n", taints=["key=value:PreferNoSchedule"]), node("m"))
    assert cluster.scores(pod("p"), "TaintToleration") == {"n": 0, "m": 100}
    with pytest.raises(ValueError, match="has no plugin Nothing"):
        cluster.scores(pod("p"), "Nothing")


def test_spread_scores_are_answered_too() -> None:
    """Those of topology, which are worked out by domain."""
    cluster = Cluster(HalfFull).add(node("n"), node("m"), pod("a", labels={"app": "x"}, on="n"))
    spread = pod("p", labels={"app": "x"}, topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
         "labelSelector": {"matchLabels": {"app": "x"}}},
    ])  # fmt: skip
    assert cluster.scores(spread, "PodTopologySpread") == {"n": 0, "m": 100}
    assert cluster.where(spread) == "m"


# Steps


def test_bound_pods_pending_pods_and_their_messages() -> None:
    cluster = Cluster(HalfFull).add(node("n", cpu=2))
    cluster.add(*(pod(f"p{i}", cpu=1, **HALF) for i in range(2)))
    assert cluster.schedule() == {"p0": "n"}
    assert cluster.placed() == {"p0": "n"} and cluster.pending() == ["p1"]
    assert cluster.messages()["p1"].startswith(f"0/1 nodes are available: 1 {FULL}.")
    found = [(event.object, event.reason) for event in cluster.events()]
    assert found == [("Pod/default/p1", "FailedScheduling"), ("Pod/default/p0", "Scheduled")]
    assert cluster.delete("Pod/p0").advance(60) == {"p1": "n"}
    assert cluster.placed() == {"p1": "n"} and cluster.messages() == {}


def test_yaml_text_with_several_objects_and_workloads() -> None:
    cluster = Cluster(HalfFull).add(
        """
        apiVersion: v1
        kind: Node
        metadata: {name: n}
        status: {capacity: {cpu: 4, memory: 8Gi}}
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          replicas: 2
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec: {containers: [{name: main, image: web}]}
        """
    )
    assert sorted(cluster.schedule().values()) == ["n", "n"]


def test_update_is_apply_and_needs_the_object() -> None:
    cluster = Cluster(HalfFull).add(node("n", labels={"a": "b"}))
    cluster.update(node("n", labels={"c": "d"}, unschedulable=True))
    (raw,) = (each for each in cluster.objects() if each["kind"] == "Node")
    assert raw["metadata"]["labels"] == {"kubernetes.io/hostname": "n", "c": "d"}
    assert cluster.where(pod("p")) is None
    with pytest.raises(ValueError, match="Node/m does not exist"):
        cluster.update(node("m"))
    with pytest.raises(ValueError, match="Node/m does not exist"):
        cluster.delete("Node/m")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({**pod("p"), "spek": {}}, InvalidObject, 'unknown field "spek"; did you mean spec'),
        (pod("p", nodeSelectr={}), InvalidObject, "nodeSelectr"),
        (pod("p", cpu="much"), InvalidObject, "cpu"),
        ({"kind": "Pod"}, InvalidObject, "apiVersion"),
        ("just words", ValueError, "expected an object"),
        ("a: [", ValueError, "line 2"),
        ("", ValueError, "has no object"),
    ],
)
def test_what_is_no_object_is_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Cluster(HalfFull).add(given)


def test_an_object_twice_is_refused() -> None:
    with pytest.raises(InvalidObject, match="Node/n: already exists"):
        Cluster(HalfFull).add(node("n"), node("n"))


def test_arguments_and_configurations() -> None:
    assert Cluster(HalfFull, args={"share": 3}).plugin().args == {"share": 3}
    config = """
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    profiles:
      - schedulerName: holdfast-scheduler
        plugins: {multiPoint: {enabled: [{name: HalfFull}]}}
        pluginConfig: [{name: HalfFull, args: {share: 4}}]
    """
    assert Cluster(HalfFull, config=config).plugin().args == {"share": 4}
    with pytest.raises(ValueError, match="does not enable HalfFull"):
        Cluster(HalfFull, config=config.replace("[{name: HalfFull}]", "[]"))
    with pytest.raises(ValueError, match="Cluster\\(MyPlugin\\)"):
        Cluster()


def test_plugins_that_cannot_be_tested() -> None:
    with pytest.raises(ValueError, match="Idle overrides no method of Plugin"):
        Cluster(type("Idle", (Plugin,), {"name": "Idle"}))
    with pytest.raises(PluginError, match="Nameless: the class must have a name"):
        Cluster(type("Nameless", (Plugin,), {}))


def test_a_formula_is_not_asked_about_no_rows() -> None:
    """Of which a loop would make an array of another type."""
    looping = broken(
        filter=filtering(
            lambda view: np.array([free > 500 for free in np.atleast_1d(view.free(CPU)).tolist()])
        )
    )
    cluster = Cluster(looping).add(node("n", unschedulable=True), pod("p"))
    assert cluster.schedule() == {} and "unschedulable" in cluster.messages()["p"]
    assert cluster.update(node("n")).advance(10) == {"p": "n"}


def test_owners_see_what_is_reserved_for_them_as_free() -> None:
    cluster = Cluster(HalfFull).add(node("n", cpu=4))
    cluster.add(reservation("r", owners={"app": "web"}, cpu=3))
    cluster.schedule()
    assert cluster.why_not(pod("p", cpu=1, **HALF)) == {"n": [FULL]}
    assert cluster.where(pod("p", cpu=1, labels={"half": "yes", "app": "web"})) == "n"


def test_a_reservation_whose_node_has_gone_is_of_no_use() -> None:
    """Asked about before the reservation has failed, among so many that they are computed at once."""
    nodes = [node(f"n{i}", cpu=4) for i in range(8)]
    cluster = Cluster(HalfFull).add(*nodes)
    cluster.add(*(reservation(f"r{i}", owners={"app": "web"}, cpu=4) for i in range(8)))
    cluster.schedule()
    owner = pod("p", cpu=3, labels={"app": "web"})
    assert cluster.where(owner) == "n0"
    cluster.delete(*(f"Node/n{i}" for i in range(7)))
    assert cluster.where(owner) == "n7"


def test_a_restart_makes_new_plugins() -> None:
    cluster = Cluster(HalfFull).add(node("n", cpu=2), pod("p", cpu=1))
    cluster.schedule()
    before = cluster.plugin()
    cluster.restart()
    assert cluster.plugin() is not before
    assert cluster.why_not(pod("q", **HALF)) == {"n": [FULL]}


# Permit


class Patient(Plugin):
    name = "Patient"

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        return Outcome(wait=30.0)


def test_pods_that_wait_for_permission() -> None:
    cluster = Cluster(Patient).add(node("n"), pod("p"))
    assert cluster.schedule() == {} and cluster.waiting() == {"p": "n"}
    with pytest.raises(ValueError, match="a node and waits for permission"):
        cluster.where("p")
    cluster.advance(31)
    assert cluster.messages()["p"] == "timed out waiting for Patient"


# What breaks the contract


def broken(**methods: Any) -> type[Plugin]:
    plugin: type[Plugin] = type("Broken", (HalfFull,), {"name": "Broken", **methods})
    return plugin


def filtering(passes: Any, reasons: Any = None, scope: Scope = Scope.USAGE, **more: Any) -> Any:
    why = reasons or (lambda view: [Reason("node(s) were bad", view.full(True))])
    return lambda self, cls: Filter(passes, why, scope, **more)


def scoring(score: Any, normalize: Any = None, scope: Scope = Scope.USAGE) -> Any:
    return lambda self, cls: Score(score, scope, normalize)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        pytest.param(
            {"filter": filtering(lambda view: view.full(len(view) == 1))},
            "plugin Broken: filter: node n: computed on one row it is True, on all rows it is False",
            id="one row otherwise than all",
        ),
        pytest.param(
            {"filter": filtering(lambda view: view.free(CPU) == np.max(view.free(CPU)))},
            "node m: computed on one row it is True, on all rows it is False",
            id="a filter that compares rows",
        ),
        pytest.param(
            {"filter": filtering(lambda view: view.full(False), lambda view: [])},
            "node n: does not pass, and `reasons` gives no reason",
            id="no reason",
        ),
        pytest.param(
            {
                "filter": filtering(
                    lambda view: view.full(False),
                    lambda view: [Reason("one" if len(view) == 1 else "many", view.full(True))],
                )
            },
            r"reasons: node m: .*'one'.*'many'",
            id="other reasons",
        ),
        pytest.param(
            {"score": scoring(lambda view: 5 if len(view) == 1 else view.free(CPU) // 100)},
            "score: node n: computed on one row it is 5, on all rows it is 20",
            id="one score otherwise than all",
        ),
        pytest.param(
            {"score": scoring(lambda view: view.free(CPU))},
            'plugin "Broken" returns an invalid score 2000, it should in the range of',
            id="a score that is not normalised",
        ),
        pytest.param(
            {"filter": filtering(lambda view: view.rows["x"])},
            "plugin Broken: filter of one row: IndexError: only integers",
            id="an exception",
        ),
    ],
)
def test_paths_that_disagree(methods: Any, message: str) -> None:
    cluster = Cluster(broken(**methods)).add(node("n", cpu=2), node("m", cpu=1))
    with pytest.raises(ContractBroken, match=message):
        cluster.where(pod("p"))


class Failing(HalfFull):
    """Raises where its class says so."""

    name = "Failing"

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        if "fails" in cls.labels:
            raise RuntimeError("no such thing")
        return super().filter(cls)

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        if "late" in pod.cls.labels:
            raise RuntimeError("not this one")
        return FINE


def test_what_a_plugin_raises_is_raised() -> None:
    cluster = Cluster(Failing).add(node("n"))
    with pytest.raises(ContractBroken, match="plugin Failing: filter: RuntimeError: no such thing"):
        cluster.where(pod("p", labels={"fails": ""}))
    cluster.add(pod("q", labels={"late": ""}))
    with pytest.raises(ContractBroken, match=r"(?s)Failing.*not this one.*in reserve"):
        cluster.schedule()


def test_what_a_column_cannot_take_from_a_node_is_missing_and_no_mistake() -> None:
    class Sized(Plugin):
        name = "Sized"

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._size = self.handle.nodes.column(lambda node: int(node.labels["size"]), missing=1)

        def score(self, cls: PodClass) -> Score | None:
            return Score(lambda view: view.take(self._size), Scope.NODE)

    cluster = Cluster(Sized).add(node("n", labels={"size": "5"}), node("m", labels={"size": "odd"}))
    cluster.schedule()
    assert cluster.scores(pod("p")) == {"n": 5, "m": 1}
    assert [event.object for event in cluster.events()] == ["Node/m"]


def test_or_kept_to_see_what_becomes_of_the_pod() -> None:
    cluster = Cluster(Failing, keep_errors=True).add(node("n"))
    fails, late = pod("fails", labels={"fails": ""}), pod("late", labels={"late": ""})
    assert cluster.where(fails) is None and list(cluster.why_not(fails)) == ["n"]
    assert cluster.add(fails, late, pod("well")).schedule() == {"well": "n"}
    assert len(cluster.errors()) == 2
    assert "no such thing" in cluster.messages()["fails"]
    assert "not this one" in cluster.messages()["late"]


def test_owners_are_a_path_of_their_own() -> None:
    def passes(view: View) -> Cells:
        return view.full(len(view) > 1 or view.entries is None)

    cluster = Cluster(broken(filter=filtering(passes))).add(node("n", cpu=4), node("m", cpu=4))
    with pytest.raises(ContractBroken, match="on one row seen by an owner it is False"):
        cluster.add(reservation("r", owners={"app": "web"}, cpu=3)).schedule()
        cluster.add(reservation("s", owners={"app": "web"}, cpu=3)).schedule()
        cluster.where(pod("p"))


def test_classes_of_bound_pods_are_compared_too() -> None:
    passes = filtering(lambda view: view.full(len(view) > 1))
    cluster = Cluster(broken(filter=passes)).add(node("n"), node("m"))
    with pytest.raises(ContractBroken, match="computed on one row it is False"):
        cluster.add(pod("bound", on="n"))


def test_a_scope_that_is_too_narrow() -> None:
    taken = [0]
    passes = filtering(lambda view: view.full(taken[0] < 1), scope=Scope.NODE)
    cluster = Cluster(broken(filter=passes)).add(node("n"), node("m"), pod("p", cpu=1))
    cluster.schedule()
    taken[0] = 1
    with pytest.raises(
        ContractBroken, match=r"cached result is 'feasible.*Broken's filter has Scope.NODE"
    ):
        cluster.add(pod("q", cpu=1))


def test_a_scope_under_which_pods_cannot_be_read() -> None:
    passes = filtering(lambda view: view.claimed(CPU) < 500, scope=Scope.NODE)
    cluster = Cluster(broken(filter=passes)).add(node("n"), node("m"))
    with pytest.raises(ContractBroken, match="must have Scope"):
        cluster.add(pod("p", cpu=1))
        cluster.schedule()


def test_a_rejection_that_comes_and_goes_without_a_version() -> None:
    allowed = [False]

    def switched(self: Any, cls: PodClass) -> Any:
        return None if allowed[0] else Rejected("not now")

    cluster = Cluster(broken(filter=switched)).add(node("n"), pod("p"))
    cluster.schedule()
    allowed[0] = True
    with pytest.raises(ContractBroken, match="rejected with 'not now', computed again with None"):
        cluster.where("p")


def test_a_pod_that_nothing_wakes() -> None:
    cluster = Cluster(broken(wakes_on=Change.NODE_ADDED)).add(node("n", cpu=2))
    cluster.add(pod("p", cpu=1), pod("q", cpu=1, **HALF))
    cluster.schedule()
    cluster.delete("Pod/p")
    message = (
        "Pod/default/q is pending though node n is feasible now.*Broken wakes on Change.NODE_ADDED"
    )
    with pytest.raises(ContractBroken, match=message):
        cluster.advance(60)


# Properties


def test_a_plugin_that_keeps_the_contract() -> None:
    check_plugin(HalfFull, seeds=range(4), node=small_node, pod=random_half)


class Seats(Plugin):
    """At most so many pods on a node, counted by the plugin itself."""

    name = "Seats"
    wakes_on = Change.NODE_ADDED | Change.POD_LEFT

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._taken: dict[str, int] = {}
        self._version = 0

    def filter(self, cls: PodClass) -> Filter:
        rows = list(self._taken.values())
        return Filter(
            lambda view: np.isin(view.rows, rows) == False,  # noqa: E712
            lambda view: [Reason("node(s) had no seat", view.full(True))],
            Scope.NODE,
            version=lambda: self._version,
        )

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self._taken[pod.uid] = row
        self._version += 1
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        self._version -= 1
        del self._taken[pod.uid]


class Forgetful(HalfFull):
    """Keeps what it reserved."""

    name = "Forgetful"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._kept: set[str] = set()

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self._kept.add(pod.uid)
        return FINE


def test_unreserve_that_undoes_nothing() -> None:
    with pytest.raises(
        ContractBroken,
        match=r"^plugin Forgetful: Pod/default/p\d+: reserved on n\d+ and unreserved: _kept was .*, is",
    ) as found:
        check_plugin(Forgetful, seeds=range(4), node=small_node, pod=random_half)
    assert re.search(r"\ncheck_plugin: seed \d, after: add node n1; ", str(found.value))
    check_plugin(Forgetful, seeds=range(1), node=small_node, pod=random_half, ignore={"_kept"})


class Impatient(Forgetful):
    """Takes the decision to bind for the bind."""

    name = "Impatient"

    def unreserve(self, pod: PodRecord, row: int) -> None:
        self._kept.remove(pod.uid)

    def post_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        self._kept.remove(pod.uid)
        return []


class Columned(Plugin):
    name = "Columned"

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self._column = handle.nodes.new_column()
        self._seen: dict[str, int] = {}

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self._column[row] = 7
        self._seen[pod.name] = row
        return FINE


def test_of_a_column_only_the_row_that_differs_is_shown() -> None:
    with pytest.raises(ContractBroken, match=r"unreserved: _column\[\d\] was 0, is 7\n"):
        check_plugin(Columned, seeds=range(4), node=small_node, pod=random_half)
    with pytest.raises(ContractBroken, match=r"unreserved: _seen\['p\d+'\] did not exist, is \d\n"):
        check_plugin(Columned, seeds=range(4), node=small_node, pod=random_half, ignore={"_column"})


def test_a_bind_that_is_refused_is_unreserved_after_post_bind() -> None:
    with pytest.raises(ContractBroken, match='running Unreserve plugin "Impatient": KeyError'):
        check_plugin(Impatient, seeds=range(4), node=small_node, pod=random_half)


def test_state_that_a_restart_loses() -> None:
    """Counting in `reserve` alone misses the pods that were there before, and those bound by others."""
    with pytest.raises(ContractBroken, match=r"node n\d+: False becomes True: a scheduler that saw"):
        check_plugin(Seats, seeds=range(4), node=small_node, pod=random_half)


def test_answers_by_the_order_in_which_nodes_came() -> None:
    by_row = broken(score=scoring(lambda view: view.rows % 100, scope=Scope.NODE))
    with pytest.raises(ContractBroken, match="raw_scores: node n"):
        check_plugin(by_row, seeds=range(10), node=small_node, pod=random_half)


@pytest.mark.parametrize("text", ["no effect", "=:"])
def test_a_taint_that_is_none(text: str) -> None:
    with pytest.raises((ValueError, InvalidObject)):
        Cluster(HalfFull).add(node("n", taints=[text]))

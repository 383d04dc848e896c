"""What the plugin author's manual promises, for a plugin written by it: on one row as on many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver
from holdfast.plugin.testing import Cluster, node, pod, reservation
from holdfast.scheduler.cluster.decisions import Bind, SetPodScheduled
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
    Scope,
    Score,
)
from holdfast.scheduler.framework.registry import PluginError, Registry
from reference.setup import Setup, document

NODES = 4


class Contracted(Plugin):
    """Its formulas are given by each test."""

    name = "Contracted"
    reads_annotations = frozenset({"example.com/max-carbon"})
    asked: list[list[int]] = []  # noqa: RUF012
    classes: list[dict[str, str]] = []  # noqa: RUF012
    passes: Any = None
    scores: Any = None

    def filter(self, cls: PodClass) -> Filter | None:
        self.classes.append(dict(cls.annotations))
        formula = type(self).passes
        if formula is None:
            return None

        def reasons(view: View) -> list[Reason]:
            self.asked.append(np.atleast_1d(view.rows).tolist())
            return [Reason("node(s) were not right", view.full(True))]

        return Filter(formula, reasons, Scope.USAGE)

    def score(self, cls: PodClass) -> Score | None:
        formula = type(self).scores
        return None if formula is None else Score(formula, Scope.USAGE, ByRange())


def driven(passes: Any = None, scores: Any = None, nodes: int = NODES) -> Driver:
    formulas = {"passes": passes, "scores": scores, "asked": [], "classes": []}
    methods = {name: staticmethod(each) if callable(each) else each for name, each in formulas.items()}
    plugin: type[Contracted] = type("Contracted", (Contracted,), methods)
    config = document((Setup(),))
    config["profiles"][0]["plugins"]["multiPoint"]["enabled"].insert(0, {"name": plugin.name})
    driver = Driver((Setup(),), plugin, config=config)
    made = (make_node(f"n{at}").allocatable(cpu="4", memory="8Gi", pods=110) for at in range(nodes))
    return driver.add(*(each.obj() for each in made))


def bound(driver: Driver) -> list[str]:
    return [each.node for each in driver.round() if isinstance(each, Bind)]


def is_full(view: View) -> Cells:
    return view.claimed(CPU) >= 2000


@pytest.mark.parametrize(
    "passes",
    [
        pytest.param(lambda view: ~is_full(view), id="not"),
        pytest.param(lambda view: ~(is_full(view) | is_full(view)), id="not of an or"),
        pytest.param(lambda view: ~is_full(view) & (view.free(CPU) > 0), id="not and"),
        pytest.param(lambda view: np.logical_not(is_full(view)), id="numpy"),
        pytest.param(lambda view: np.where(is_full(view), False, True), id="where"),
        pytest.param(lambda view: is_full(view) == False, id="compared"),  # noqa: E712
        pytest.param(lambda view: view.negate(is_full(view)), id="negate"),
        pytest.param(lambda view: view.where(is_full(view), False, True), id="view.where"),
        pytest.param(lambda view: ~is_full(view).astype(bool), id="array method"),
        pytest.param(
            lambda view: view.free(CPU) // (view.claimed(CPU) >= 2000) == 0, id="division by 0"
        ),
        pytest.param(lambda view: view.where(~is_full(view), True, False), id="view.where of not"),
        pytest.param(lambda view: np.where(~is_full(view), True, False), id="where of not"),
        pytest.param(lambda view: np.logical_and(~is_full(view), True), id="numpy of not"),
        pytest.param(lambda view: (~is_full(view)) == True, id="not, compared"),  # noqa: E712
        pytest.param(lambda view: view.negate(view.negate(~is_full(view))), id="negate of not"),
        pytest.param(lambda view: (~is_full(view)) * 100 == 100, id="not, multiplied"),
        pytest.param(
            lambda view: (is_full(view) + is_full(view)) * np.int8(100) < 100, id="sum of bools"
        ),
        pytest.param(
            lambda view: (view.claimed(CPU) // 1000).astype(np.uint8) - np.uint8(2) > 100,
            id="8 bits",
        ),
    ],
)
def test_a_filter_means_the_same_on_one_row_as_on_many(passes: Any) -> None:
    driver = driven(passes)
    for number in range(4 * NODES):
        driver.add(make_pod(f"p{number}").cpu("1").obj())
    nodes = bound(driver)
    assert sorted(nodes) == sorted([f"n{at}" for at in range(NODES)] * 2)


def test_pods_that_come_one_by_one_are_told_the_same() -> None:
    driver = driven(lambda view: view.where(~is_full(view), True, False))
    nodes = []
    for number in range(4 * NODES):
        nodes += bound(driver.add(make_pod(f"p{number}").cpu("1").obj()))
    assert sorted(nodes) == sorted([f"n{at}" for at in range(NODES)] * 2)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int8])
def test_a_column_is_of_its_type_on_one_row_too(dtype: Any) -> None:
    seen = set()

    class Typed(Plugin):
        name = "Typed"

        def __init__(self, handle: Handle, args: Any) -> None:
            super().__init__(handle, args)
            self._own = handle.nodes.new_column(dtype)

        def score(self, cls: PodClass) -> Score:
            def formula(view: View) -> Cells:
                cells = view.take(self._own)
                seen.add((view.single, cells.dtype, view.claimed(CPU).shape == (len(view),)))
                return cells

            return Score(formula, Scope.USAGE, ByRange())

    cluster = Cluster(Typed).add(node("a"), node("b"))
    for number in range(3):
        cluster.add(pod(f"p{number}")).schedule()
    assert seen == {(False, np.dtype(dtype), True)}


def test_owners_of_reservations_are_a_path_like_any_other() -> None:
    class Roomy(Plugin):
        name = "Roomy"

        def filter(self, cls: PodClass) -> Filter:
            def is_short(view: View) -> Cells:
                return view.free(CPU) < 1000

            return Filter(
                lambda view: view.where(~is_short(view), True, False),
                lambda view: [Reason("short", view.where(~is_short(view), False, True))],
                Scope.USAGE,
            )

    cluster = Cluster(Roomy).add(node("a", cpu=2), reservation("r", owners={"app": "w"}, cpu=2))
    cluster.schedule()
    cluster.add(*(pod(f"p{number}", cpu=1, labels={"app": "w"}) for number in range(3)))
    assert sorted(cluster.schedule().values()) == ["a", "a"]


@pytest.mark.parametrize(
    "scores",
    [
        pytest.param(lambda view: (~is_full(view)) * 100, id="not"),
        pytest.param(lambda view: np.where(view.claimed(CPU) > 0, 1, 3), id="where"),
        pytest.param(lambda view: np.minimum(view.free(CPU), 3000), id="numpy"),
        pytest.param(lambda view: view.free(CPU) / 1000, id="float"),
        pytest.param(lambda view: 5, id="constant"),
    ],
)
def test_a_normalised_score_may_be_computed_with_numpy(scores: Any) -> None:
    driver = driven(None, scores)
    for number in range(2 * NODES):
        driver.add(make_pod(f"p{number}").cpu("1").obj())
    assert len(bound(driver)) == 2 * NODES


@pytest.mark.parametrize("wrong", [7, "yes", None, 0.5])
def test_an_answer_that_is_none_is_an_error_that_names_the_plugin(wrong: Any) -> None:
    for formulas in ((lambda view: wrong, None), (None, lambda view: [wrong, wrong, wrong])):
        if formulas[0] is None and wrong in (7, 0.5):
            continue
        driver = driven(*formulas)
        driver.add(make_pod("p").cpu("1").obj())
        (told,) = (each for each in driver.round() if isinstance(each, SetPodScheduled))
        assert told.reason == "SchedulerError" and "returned" in told.message
        assert "Contracted" in told.message


def test_reasons_are_asked_only_of_rows_that_did_not_pass() -> None:
    driver = driven(lambda view: view.rows % 2 == 0)
    driver.add(make_pod("big").cpu("9").obj())
    driver.round()
    plugin = driver.scheduler.profiles[0].plugins["Contracted"]
    assert isinstance(plugin, Contracted)
    assert plugin.asked and all(row % 2 == 1 for rows in plugin.asked for row in rows)


class OnePerNode(Plugin):
    """Counts pods under the scope it is given."""

    name = "OnePerNode"
    scope = Scope.USAGE
    how = "count"

    def __init__(self, handle: Handle, args: Any) -> None:
        super().__init__(handle, args)
        self._pods = handle.count_pods(lambda cls: True)
        self._own = handle.nodes.new_column()

    def filter(self, cls: PodClass) -> Filter:
        def passes(view: View) -> Cells:
            if self.how == "count":
                return view.take(self._pods) < 1
            return view.take(self._own) < 1 if self.how == "own" else view.claimed(CPU) < 1

        return Filter(passes, lambda view: [Reason("node(s) were taken", view.full(True))], self.scope)

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self._own[row] += 1
        return FINE


@pytest.mark.parametrize("how", ["count", "own", "claimed"])
def test_an_answer_about_pods_cannot_be_given_as_one_about_nodes(how: str) -> None:
    """Under Scope.NODE it would be worked out once, and be wrong from the first pod on."""
    for scope in (Scope.USAGE, Scope.NODE):
        OnePerNode.scope, OnePerNode.how = scope, how
        config = document((Setup(),))
        config["profiles"][0]["plugins"]["multiPoint"]["enabled"].insert(0, {"name": "OnePerNode"})
        driver = Driver((Setup(),), OnePerNode, config=config)
        driver.add(*(make_node(f"n{at}").allocatable(cpu="4", pods=9).obj() for at in range(2)))
        driver.add(*(make_pod(f"p{at}").cpu("1").obj() for at in range(3)))
        decisions = driver.round()
        bound = [each.node for each in decisions if isinstance(each, Bind)]
        told = {each.message for each in decisions if isinstance(each, SetPodScheduled)}
        if scope is Scope.USAGE:
            assert sorted(bound) == ["n0", "n1"]
        else:
            assert not bound and "it must have Scope.USAGE" in told.pop()


class Reading(Plugin):
    """Notes what it can read of pods."""

    name = "Reading"
    reads_annotations = frozenset({"example.com/"})
    reads_fields = ("spec.hostIPC", "spec.serviceAccountName", "metadata.generateName")
    classes: list[tuple[dict[str, str], dict[str, Any]]] = []  # noqa: RUF012

    def filter(self, cls: PodClass) -> None:
        self.classes.append((dict(cls.annotations), dict(cls.fields)))


def test_fields_and_whole_domains_a_plugin_reads_are_part_of_the_class() -> None:
    Reading.classes = []
    config = document((Setup(),))
    config["profiles"][0]["plugins"]["multiPoint"]["enabled"].insert(0, {"name": "Reading"})
    driver = Driver((Setup(),), Reading, config=config)
    driver.add(make_node("n").allocatable(cpu="4", pods=9).obj())
    for number, (ipc, account, size) in enumerate(
        [(False, "a", "1"), (True, "a", "1"), (False, "b", "1"), (False, "a", "2"), (False, "a", "1")]
    ):
        pod = make_pod(f"p{number}").cpu("100m").obj()
        pod.spec.host_ipc, pod.spec.service_account_name = ipc, account
        pod.metadata.annotations = {"example.com/size": size, "example.org/note": str(number)}
        driver.add(pod)
    driver.round()
    assert [annotations for annotations, _ in Reading.classes] == [
        {"example.com/size": size} for size in ("1", "1", "1", "2")
    ]
    assert [(f["spec.hostIPC"], f["spec.serviceAccountName"]) for _, f in Reading.classes] == [
        (False, "a"),
        (True, "a"),
        (False, "b"),
        (False, "a"),
    ]


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("reads_annotations", "example.com/max", "reads_annotations must be a collection of names"),
        ("reads_fields", "spec.hostIPC", "reads_fields must be a collection of names"),
        ("reads_fields", ("spec.hostIpc",), "'spec.hostIpc' is not a pod field that Holdfast reads"),
        ("reads_fields", ("spec.hostIPC.more",), "is not a pod field that Holdfast reads"),
    ],
)
def test_what_cannot_be_read_is_refused_when_the_plugin_is_loaded(
    attribute: str, value: Any, message: str
) -> None:
    plugin: type[Plugin] = type("Mistaken", (Plugin,), {"name": "Mistaken", attribute: value})
    with pytest.raises(PluginError, match=f"plugin Mistaken: .*{message}"):
        Registry([plugin])


def test_the_contract_has_no_flags_of_single_plugins() -> None:
    assert not hasattr(Plugin, "cluster")
    attributes = {name for name in (*vars(Plugin), *Plugin.__annotations__) if not name.startswith("_")}
    methods = {name for name in attributes if callable(getattr(Plugin, name, None))}
    assert attributes - methods == {
        "api_version",
        "name",
        "reads_annotations",
        "reads_fields",
        "reads_objects",
        "reads_volumes",
        "wakes_on",
    }


def test_annotations_a_plugin_reads_are_part_of_the_class() -> None:
    driver = driven(lambda view: view.full(True))
    for limit in ("100", "900", "100"):
        pod = make_pod(f"p{len(driver.scheduler.cluster.pods)}").cpu("1")
        pod.annotation("example.com/max-carbon", limit).annotation("example.com/note", limit)
        driver.add(pod.obj())
    driver.round()
    plugin = driver.scheduler.profiles[0].plugins["Contracted"]
    assert isinstance(plugin, Contracted)
    assert plugin.classes == [{"example.com/max-carbon": "100"}, {"example.com/max-carbon": "900"}]

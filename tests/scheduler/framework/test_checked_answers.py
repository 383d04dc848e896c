"""Answers that are none: each is an error of the plugin, by name, and never the end of the process."""

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from holdfast.plugin import (
    FINE,
    AnnotatePod,
    Cells,
    Change,
    Emit,
    Filter,
    Need,
    Nomination,
    ObjectWarning,
    Outcome,
    Plugin,
    PodClass,
    PodRecord,
    Range,
    Reason,
    Rejected,
    Scope,
    Score,
    View,
)
from holdfast.plugin.testing import Cluster, node, pod
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.registry import PluginError, Registry
from holdfast.scheduler.state.cluster import Cluster as State

ODD = "example.com/odd"
HALF = "caf\udce9"
"""A text with half of a pair, which no object can have."""

DEFAULTS: dict[str, Any] = {
    "pre_enqueue": "",
    "filter": None,
    "score": None,
    "reserve": FINE,
    "permit": FINE,
    "pre_bind": [],
    "post_bind": [],
    "post_filter": Nomination(),
}


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("nothing to say")


class Measured:
    def __init__(self, measure: Any) -> None:
        self._measure = measure

    def measure(self, raw: Any) -> Any:
        return self._measure

    def apply(self, raw: Cells, measure: Any) -> Cells:
        return raw * 0 + (100 if measure == self._measure else 0)


def odd_plugin(**answers: Any) -> type[Plugin]:
    """Its answers about pods with the annotation are these; a function is asked for them."""

    def method(point: str, answer: Any) -> Callable[..., Any]:
        def asked(self: Plugin, about: Any, *more: Any) -> Any:
            cls = about if isinstance(about, PodClass) else about.cls
            if ODD not in cls.annotations:
                return DEFAULTS[point]
            return answer(self, about, *more) if callable(answer) else answer

        return asked

    methods = {point: method(point, answer) for point, answer in answers.items()}
    declared = {"name": "Odd", "reads_annotations": frozenset({ODD})}
    made: type[Plugin] = type("Odd", (Plugin,), {**declared, **methods, "__module__": "elsewhere"})
    return made


def told(plugin: type[Plugin], may_be_bound: bool = False) -> str:
    """What the odd pod is told, while another goes its way."""
    cluster = Cluster(plugin, keep_errors=True).add(node("a"), node("b"))
    cluster.add(pod("odd", annotations={ODD: "yes"}), pod("other"))
    bound = cluster.schedule()
    assert "other" in bound and (may_be_bound or "odd" not in bound)
    assert len(cluster.errors()) == 1 and "Odd" in cluster.errors()[0]
    cluster.advance(30)
    cluster.add(pod("later"))
    assert "later" in cluster.advance(10)
    return cluster.messages().get("odd", cluster.errors()[0])


def closed(view: View) -> Cells:
    return view.full(False)


def filtering(**parts: Any) -> Any:
    usual = {"passes": closed, "reasons": lambda view: [Reason("no", True)], "scope": Scope.USAGE}
    return lambda self, cls: Filter(**{**usual, **parts})


def reason(*parts: Any) -> Any:
    return filtering(reasons=lambda view: [Reason(*parts)])


def raising(error: BaseException) -> Any:
    def raises(*_: Any) -> Any:
        raise error

    return raises


def wrong(kind: Any, *parts: Any, **more: Any) -> Any:
    """Made of what its types do not allow."""
    return kind(*parts, **more)


def outcome(*parts: Any, **more: Any) -> Outcome:
    return Outcome(*parts, **more)


@pytest.mark.parametrize("point", ["reserve", "permit"])
@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        "no",
        outcome(5),
        outcome(None),
        outcome(ValueError("x")),
        outcome(HALF),
        outcome(wait="10"),
        outcome(wait=None),
        outcome(wait=True),
        outcome(wait=-5),
        outcome(wait=math.nan),
        outcome(wait=math.inf),
        outcome("no", retry="yes"),
    ],
    ids=repr,
)
def test_an_outcome_that_is_none(point: str, answer: Any) -> None:
    message = told(odd_plugin(**{point: answer}))
    assert f'running {point.title()} plugin "Odd": returned ' in message


def test_a_wait_of_any_number_type() -> None:
    plugin = odd_plugin(permit=lambda self, pod, row: outcome(wait=np.float32(5)))
    cluster = Cluster(plugin).add(node("a"), pod("odd", annotations={ODD: "yes"}))
    assert cluster.schedule() == {} and cluster.waiting() == {"odd": "a"}


@pytest.mark.parametrize(
    "answer",
    [
        Rejected(HALF),
        pytest.param(lambda self, cls: wrong(Rejected, 5), id="message"),
        pytest.param(lambda self, cls: wrong(Rejected, ValueError("x")), id="exception"),
        pytest.param(lambda self, cls: wrong(Rejected, "no", resolvable="yes"), id="resolvable"),
        pytest.param(filtering(only=["a"]), id="only a list"),
        pytest.param(filtering(only=frozenset({1})), id="only of numbers"),
        pytest.param(filtering(facets=(1,), scope=Scope.TOPOLOGY), id="facets"),
        pytest.param(filtering(facets=5), id="facets, a number"),
        pytest.param(filtering(scope="usage"), id="scope"),
        pytest.param(filtering(needs=(1,)), id="needs"),
        pytest.param(filtering(needs=(Need(10**6, 1, "x"),)), id="a slot there is not"),
    ],
)
def test_an_answer_to_filter_that_is_none(answer: Any) -> None:
    assert 'running PreFilter plugin "Odd": returned ' in told(odd_plugin(filter=answer))


@pytest.mark.parametrize(
    "answer",
    [
        reason("no", True, True, "2"),
        reason("no", True, True, 0),
        reason("no", True, True, 10**9),
        reason(5, True),
        reason(HALF, True),
        reason("no", "yes"),
        reason("no", True, "yes"),
    ],
)
def test_reasons_that_are_none(answer: Any) -> None:
    assert 'running "Odd" filter plugin: returned ' in told(odd_plugin(filter=answer))


def test_a_set_of_names_will_do() -> None:
    plugin = odd_plugin(filter=filtering(passes=lambda view: view.full(True), only={"b"}))
    assert Cluster(plugin).add(node("a"), node("b")).where(pod("p", annotations={ODD: "y"})) == "b"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Nomination(None, outcome(5).message), "the message of a Nomination is a string"),
        (Nomination(HALF), "the node of a Nomination has characters that cannot be encoded"),
        (Nomination(None, HALF), "the message of a Nomination has characters"),
    ],
    ids=["message", "node", "text"],
)
def test_a_nomination_that_is_none(answer: Any, message: str) -> None:
    plugin = odd_plugin(filter=filtering(), post_filter=answer)
    assert message in told(plugin)


@pytest.mark.parametrize("part", ["reserve_pods", "warnings", "decisions"])
@pytest.mark.parametrize("junk", [5, (5,)])
def test_parts_of_a_nomination_that_are_none(part: str, junk: Any) -> None:
    answer = Nomination()._replace(**{part: junk})
    assert "returned int 5" in told(
        odd_plugin(filter=filtering(), post_filter=answer)
    ) or "returned tuple (5,)" in told(odd_plugin(filter=filtering(), post_filter=answer))


def test_a_warning_about_nothing() -> None:
    warning = wrong(ObjectWarning, None, "Odd", "odd")
    plugin = odd_plugin(filter=filtering(), post_filter=Nomination(warnings=(warning,)))
    assert "a warning is about an ObjectRef" in told(plugin)


@pytest.mark.parametrize(
    "decide",
    [
        lambda self, pod, row: [AnnotatePod(pod.ref, {"a": HALF})],
        lambda self, pod, row: [wrong(AnnotatePod, pod.ref, {"a": 5})],
        lambda self, pod, row: [Emit(pod.ref, "Normal", "Odd", HALF)],
        lambda self, pod, row: [wrong(Emit, None, "Normal", "Odd", "odd")],
    ],
)
def test_decisions_that_cannot_be_written(decide: Any) -> None:
    assert "it cannot be encoded" in told(odd_plugin(pre_bind=decide))
    assert "it cannot be encoded" in told(odd_plugin(post_bind=decide), may_be_bound=True)


def test_decisions_that_can_be_written() -> None:
    plugin = odd_plugin(
        pre_bind=lambda self, pod, row: [
            AnnotatePod(pod.ref, {"example.com/café": "☕", "example.com/gone": None}),
            Emit(pod.ref, "Normal", "Odd", "odd"),
        ]
    )
    cluster = Cluster(plugin).add(node("a"), pod("odd", annotations={ODD: "yes"}))
    assert cluster.schedule() == {"odd": "a"}


@pytest.mark.parametrize(
    "error", [Speechless(), SystemExit(3), ValueError(HALF)], ids=["no text", "exit", "half"]
)
@pytest.mark.parametrize("point", [point for point in DEFAULTS if point != "post_filter"])
def test_whatever_is_raised(point: str, error: BaseException) -> None:
    message = told(odd_plugin(**{point: raising(error)}), may_be_bound=point == "post_bind")
    assert type(error).__name__ in message
    assert message.encode()


@pytest.mark.parametrize("formula", ["passes", "reasons", "version"])
@pytest.mark.parametrize("error", [Speechless(), SystemExit(3), ValueError(HALF)])
def test_whatever_a_formula_raises(formula: str, error: BaseException) -> None:
    message = told(odd_plugin(filter=filtering(**{formula: raising(error)})))
    assert type(error).__name__ in message and message.encode()


def test_an_interrupt_is_no_error_of_the_plugin() -> None:
    cluster = Cluster(odd_plugin(reserve=raising(KeyboardInterrupt())), keep_errors=True)
    cluster.add(node("a"), pod("odd", annotations={ODD: "yes"}))
    with pytest.raises(KeyboardInterrupt):
        cluster.schedule()


@pytest.mark.parametrize("answer", [True, 5, ["no"], HALF], ids=repr)
def test_a_gate_that_says_no_text(answer: Any) -> None:
    message = told(odd_plugin(pre_enqueue=answer))
    assert 'running PreEnqueue plugin "Odd": returned ' in message


def test_a_gate_says_why_on_the_pod() -> None:
    cluster = Cluster(odd_plugin(pre_enqueue="not before noon")).add(node("a"))
    cluster.add(pod("odd", annotations={ODD: "yes"})).schedule()
    assert cluster.messages() == {"odd": "not before noon"}


@pytest.mark.parametrize("measure", [(), None, "", 0])
def test_a_measure_of_any_value_is_one(measure: Any) -> None:
    def score(self: Plugin, cls: PodClass) -> Score:
        return Score(lambda view: view.rows, Scope.USAGE, Measured(measure))

    cluster = Cluster(odd_plugin(score=score)).add(node("a"), node("b"))
    assert cluster.scores(pod("p", annotations={ODD: "yes"})) == {"a": 100, "b": 100}
    cluster.add(pod("odd", annotations={ODD: "yes"}))
    assert "odd" in cluster.schedule()


def test_a_range_that_is_none() -> None:
    def score(self: Plugin, cls: PodClass) -> Score:
        return Score(lambda view: view.rows, Scope.USAGE, Measured(wrong(Range, "a", "b")))

    assert "a Range is of two numbers" in told(odd_plugin(score=score))


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("wakes_on", (Change.NODE_ADDED, Change.NODE_OTHER), "wakes_on must be kinds of Change"),
        ("wakes_on", None, "wakes_on must be kinds of Change"),
        ("wakes_on", True, "wakes_on must be kinds of Change"),
        ("reads_annotations", None, "reads_annotations must be a collection of names"),
        ("reads_annotations", 5, "reads_annotations must be a collection of names"),
        ("reads_fields", None, "reads_fields must be a collection of names"),
        ("reads_volumes", "yes", "reads_volumes must be True or False"),
        ("name", "", "the class must have a name"),
    ],
)
def test_declarations_are_checked_when_the_plugin_is_loaded(
    attribute: str, value: Any, message: str
) -> None:
    plugin: type[Plugin] = type("Odd", (odd_plugin(filter=None),), {attribute: value})
    with pytest.raises(PluginError, match=f"plugin Odd: {message}"):
        Registry([plugin])


def test_all_but_one_kind_of_change_may_wake() -> None:
    plugin: type[Plugin] = type("Odd", (odd_plugin(filter=filtering()),), {"wakes_on": ~Change.OTHER})
    cluster = Cluster(plugin).add(node("a"), pod("odd", annotations={ODD: "yes"}))
    assert cluster.schedule() == {}
    assert cluster.add(node("b")).advance(10) == {}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda self, handle, args: None, r"must call super\(\).__init__\(handle, args\)"),
        (lambda self, handle, args: handle.now, "handle.now is not available in __init__"),
        (lambda self, handle, args: sys.exit("no"), "SystemExit: no"),
        (raising(Speechless()), "Speechless: its text cannot be shown"),
    ],
    ids=["no super", "now", "exit", "no text"],
)
def test_a_plugin_that_cannot_be_made_says_why(make: Any, message: str) -> None:
    plugin: type[Plugin] = type("Odd", (odd_plugin(filter=None),), {"__init__": make})
    with pytest.raises(PluginError, match=f"plugin Odd cannot be created: .*{message}"):
        Cluster(plugin)


class Keeping(Plugin):
    name = "Keeping"

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        return FINE


def test_a_column_is_written_row_by_row_or_not_at_all() -> None:
    cluster = Cluster(Keeping).add(node("a"), node("b"))
    column = cluster.plugin().handle.nodes.new_column()
    for rows in (slice(None), [0, 1], -1, 10**6, 0.5, None):
        with pytest.raises((TypeError, IndexError)):
            column[rows] = 1
    assert not column.cells.any()
    column[np.int64(1)] = 7
    assert column[1] == 7


def test_what_a_column_gives_cannot_be_written_to() -> None:
    state = State()
    handle = Handle(state, "Odd", "holdfast-scheduler")
    label = handle.nodes.label("zone")
    counts = handle.count_pods(lambda cls: True)
    column = handle.nodes.annotation("a", int, missing=0)
    own = handle.nodes.new_column()
    for cells in (label.codes, label[:], counts.cells, counts[:], column.cells, column[:], own[:]):
        with pytest.raises(ValueError, match="read-only"):
            cells[:] = 1

"""Whatever a plugin raises, at any extension point: its pod is rejected by name and tried again, and
other pods and the process go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver
from harness.objects import node, reservation
from harness.world import World
from holdfast.api.decode import convert
from holdfast.api.storage import Volume
from holdfast.plugin import (
    FINE,
    ByRange,
    Cells,
    Filter,
    Nomination,
    Outcome,
    Plugin,
    PodClass,
    PodRecord,
    Reason,
    Scope,
    Score,
    Settled,
    View,
)
from holdfast.scheduler.cluster.decisions import Bind, Emit, SetPodScheduled
from holdfast.scheduler.framework.registry import PluginError
from reference.setup import Setup, document

BOOM = "boom"


def boom(*_: Any) -> Any:
    raise RuntimeError(BOOM)


class Failing(Plugin):
    """Fails at one point for pods labelled `doomed`, for as long as `fails`."""

    name = "Failing"
    at: ClassVar[str] = ""
    fails: ClassVar[bool] = True
    log: ClassVar[list[str]] = []

    def _at(self, point: str, labels: Any = ("doomed",)) -> None:
        if self.fails and self.at == point and "doomed" in labels:
            boom()

    def pre_enqueue(self, pod: PodRecord) -> str:
        self._at("PreEnqueue", pod.cls.labels)
        return ""

    def filter(self, cls: PodClass) -> Filter | None:
        self._at("PreFilter", cls.labels)

        def passes(view: View) -> Cells:
            self._at("Filter", cls.labels)
            if self.at == "reasons":
                return view.full(False)
            return view.full(True)

        def reasons(view: View) -> list[Reason]:
            self._at("reasons", cls.labels)
            return [Reason("node(s) were not right", view.full(True))]

        def version() -> int:
            self._at("version", cls.labels)
            return 0

        return Filter(passes, reasons, Scope.USAGE, Settled(version))

    def post_filter(self, pod: PodRecord, trial: Any) -> Nomination:
        self._at("PostFilter", pod.cls.labels)
        return Nomination()

    def can_preempt_for(self, cls: PodClass) -> bool:
        self._at("can_preempt_for", cls.labels)
        return False

    def score(self, cls: PodClass) -> Score | None:
        self._at("PreScore", cls.labels)

        def score(view: View) -> Cells:
            self._at("Score", cls.labels)
            return view.free(0)

        return Score(score, Scope.USAGE, Normalizing(lambda: self._at("NormalizeScore", cls.labels)))

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self.log.append(f"reserve {pod.name}")
        self._at("Reserve", pod.cls.labels)
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        self.log.append(f"unreserve {pod.name}")
        self._at("Unreserve", pod.cls.labels)

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        self._at("Permit", pod.cls.labels)
        if self.at == "Unreserve" and "doomed" in pod.cls.labels:
            return Outcome("not this one")
        return FINE

    def pre_bind(self, pod: PodRecord, row: int) -> list[Any]:
        self._at("PreBind", pod.cls.labels)
        return [Emit(pod.ref, "Normal", "Before", "", "")]

    def bind(self, pod: PodRecord, row: int) -> list[Any]:
        self._at("Bind", pod.cls.labels)
        return []

    def post_bind(self, pod: PodRecord, row: int) -> list[Any]:
        self._at("PostBind", pod.cls.labels)
        return []


class Normalizing(ByRange):
    def __init__(self, fail: Callable[[], None]) -> None:
        self._fail = fail

    def measure(self, raw: Any) -> Any:
        self._fail()
        return super().measure(raw)


@pytest.fixture(autouse=True)
def _clean() -> None:
    Failing.at, Failing.fails, Failing.log = "", True, []


def driven(at: str, plugin: type[Plugin] = Failing, nodes: int = 3) -> Driver:
    Failing.at = at
    config = document((Setup(),))
    config["profiles"][0]["plugins"]["multiPoint"]["enabled"].insert(0, {"name": plugin.name})
    driver = Driver((Setup(),), plugin, config=config)
    made = (make_node(f"n{at}").allocatable(cpu="4", memory="8Gi", pods=110) for at in range(nodes))
    return driver.add(*(each.obj() for each in made))


def doomed(name: str = "doomed") -> Any:
    return make_pod(name).label("doomed", "yes").cpu("1")


def told(driver: Driver, now: float) -> dict[str, tuple[str, str]]:
    """What is said on each pod in a round, and why."""
    decisions = driver.round(now)
    return {d.pod.name: (d.reason, d.message) for d in decisions if isinstance(d, SetPodScheduled)}


SAID = {
    "PreEnqueue": 'running PreEnqueue plugin "Failing": RuntimeError: boom',
    "PreFilter": 'running PreFilter plugin "Failing": RuntimeError: boom',
    "Filter": 'running "Failing" filter plugin: RuntimeError: boom',
    "reasons": 'running "Failing" filter plugin: RuntimeError: boom',
    "version": 'running PreFilter plugin "Failing": RuntimeError: boom',
    "PreScore": 'running PreScore plugin "Failing": RuntimeError: boom',
    "Score": 'running Score plugins: plugin "Failing" failed with: RuntimeError: boom',
    "NormalizeScore": "running Normalize on Score plugins: "
    'plugin "Failing" failed with: RuntimeError: boom',
    "Reserve": 'running Reserve plugin "Failing": RuntimeError: boom',
    "Permit": 'running Permit plugin "Failing": RuntimeError: boom',
    "PreBind": 'running PreBind plugin "Failing": RuntimeError: boom',
    "Bind": 'running Bind plugin "Failing": RuntimeError: boom',
}
COUNTED = {"reasons": "Filter", "version": "PreFilter"}


@pytest.mark.parametrize("at", SAID)
def test_the_pod_is_rejected_by_name_and_others_are_not(at: str) -> None:
    driver = driven(at).add(doomed().obj(), make_pod("fine").cpu("1").obj())
    decisions = driver.round(0.0)
    if at != "reasons":
        assert [d.pod.name for d in decisions if isinstance(d, Bind)] == ["fine"]
    conditions = {d.pod.name: d for d in decisions if isinstance(d, SetPodScheduled)}
    assert (conditions["doomed"].reason, conditions["doomed"].message) == ("SchedulerError", SAID[at])
    events = [d.message for d in decisions if isinstance(d, Emit) and d.reason == "FailedScheduling"]
    assert SAID[at] in events
    errors = driver.scheduler.cluster.plugin_errors
    assert errors.counts["Failing", COUNTED.get(at, at)] >= 1
    (report,) = errors.take_reports()
    assert (report.plugin, report.message) == ("Failing", SAID[at])
    assert __file__ in report.trace and "RuntimeError: boom" in report.trace
    assert ("doomed", "Before") not in {
        (d.about.name, d.reason) for d in decisions if isinstance(d, Emit)
    }
    claimed = driver.scheduler.cluster.nodes.claimed[0].sum()
    assert claimed == (1000 if at != "reasons" else 0)


@pytest.mark.parametrize("at", [at for at in SAID if at != "reasons"])
def test_the_pod_is_tried_again_after_a_back_off_though_nothing_changes(at: str) -> None:
    driver = driven(at).add(doomed().obj())
    driver.round(0.0)
    timer = driver.scheduler.next_timer()
    assert timer is not None and timer > 0
    assert driver.binds(timer) == {}
    later = driver.scheduler.next_timer()
    assert later is not None and later > timer
    Failing.fails = False
    assert list(driver.binds(later)) == ["doomed"]
    assert driver.scheduler.next_timer() is None


def test_many_pods_of_a_class_cost_one_failure_a_round() -> None:
    driver = driven("Filter").add(*(doomed(f"d{number}").obj() for number in range(50)))
    assert len(told(driver, 0.0)) == 50
    assert driver.scheduler.cluster.plugin_errors.counts["Failing", "Filter"] == 1


def test_what_failed_before_reserving_is_given_back() -> None:
    driver = driven("PreBind").add(doomed().obj())
    driver.round(0.0)
    assert Failing.log == ["reserve doomed", "unreserve doomed"]
    assert not driver.scheduler.cluster.nodes.claimed[0].any()


def test_a_failing_unreserve_leaves_nothing_claimed() -> None:
    driver = driven("Unreserve").add(doomed().obj())
    assert told(driver, 0.0)["doomed"] == ("Unschedulable", "not this one")
    assert not driver.scheduler.cluster.nodes.claimed[0].any()
    assert driver.scheduler.cluster.plugin_errors.counts["Failing", "Unreserve"] == 1


def test_a_failing_post_bind_does_not_undo_the_bind() -> None:
    driver = driven("PostBind").add(doomed().obj())
    assert list(driver.binds(0.0)) == ["doomed"]
    assert driver.scheduler.cluster.plugin_errors.counts["Failing", "PostBind"] == 1


def test_a_failing_post_filter_is_joined_to_the_message() -> None:
    driver = driven("PostFilter").add(doomed().cpu("9").obj())
    said = 'running PostFilter plugin "Failing": RuntimeError: boom'
    assert told(driver, 0.0)["doomed"] == (
        "SchedulerError",
        f"0/3 nodes are available: 3 Insufficient cpu. {said}",
    )
    assert driver.scheduler.next_timer() is not None


def test_with_one_node_to_choose_from_nobody_asks_for_scores() -> None:
    """As in kube-scheduler."""
    for at in ("PreScore", "Score", "NormalizeScore"):
        driver = driven(at, nodes=1).add(doomed(f"p-{at.lower()}").obj())
        assert len(driver.binds(0.0)) == 1


@pytest.mark.parametrize("at", ["PreFilter", "Filter", "Score", "Reserve", "Permit", "PreBind"])
def test_a_job_of_which_a_member_fails_is_tried_again(at: str) -> None:
    driver = driven(at)
    annotations = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "2",
    }
    for name in ("a", "b"):
        pod = doomed(name)
        for key, value in annotations.items():
            pod.annotation(key, value)
        driver.add(pod.obj())
    said = told(driver, 0.0)
    if not said:
        pytest.fail("nobody was told anything")
    assert any(SAID[at] in message for _, message in said.values())
    Failing.fails = False
    bound: set[str] = set()
    for _ in range(4):
        timer = driver.scheduler.next_timer()
        if timer is not None:
            bound |= set(driver.binds(timer))
    assert bound == {"a", "b"}


class BadKeys(Plugin):
    name = "BadKeys"

    def sort_key(self, pod: PodRecord) -> tuple[Any, ...]:
        if "doomed" in pod.cls.labels:
            boom()
        return (pod.cls.labels.get("rank") or pod.cls.priority,)


def test_pods_whose_keys_cannot_be_compared_stand_as_they_came() -> None:
    config = document((Setup(),))
    config["profiles"][0]["plugins"]["queueSort"] = {
        "enabled": [{"name": "BadKeys"}],
        "disabled": [{"name": "*"}],
    }
    driver = Driver((Setup(),), BadKeys, config=config)
    driver.add(make_node("n").allocatable(cpu="9", pods=10).obj())
    driver.add(make_pod("a").label("rank", "1").obj(), doomed("b").obj(), make_pod("c").obj())
    assert sorted(driver.binds(0.0)) == ["a", "b", "c"]
    assert driver.scheduler.cluster.plugin_errors.counts["BadKeys", "QueueSort"] > 0


class NeverMade(Plugin):
    name = "NeverMade"

    def __init__(self, handle: Any, args: Any) -> None:
        super().__init__(handle, args)
        boom()

    def filter(self, cls: PodClass) -> None:
        return None


def test_a_plugin_that_cannot_be_made_is_refused_at_the_start_by_name() -> None:
    with pytest.raises(PluginError, match="plugin NeverMade cannot be created: RuntimeError: boom"):
        driven("", NeverMade)


# Answers that are none


class Answering(Plugin):
    name = "Answering"
    answers: ClassVar[dict[str, Any]] = {}

    def filter(self, cls: PodClass) -> Any:
        return self.answers.get("filter")

    def score(self, cls: PodClass) -> Any:
        return self.answers.get("score")

    def reserve(self, pod: PodRecord, row: int) -> Any:
        return self.answers.get("reserve", FINE)

    def permit(self, pod: PodRecord, row: int) -> Any:
        return self.answers.get("permit", FINE)

    def pre_bind(self, pod: PodRecord, row: int) -> Any:
        return self.answers.get("pre_bind", [])


ANYTHING: Any = "node"


def everywhere(view: View) -> Cells:
    return view.full(True)


def no_reasons(view: View) -> list[Reason]:
    return []


@pytest.mark.parametrize(
    ("method", "answer", "said"),
    [
        ("filter", True, "returned bool True; filter returns None, a Filter or a Rejected"),
        ("filter", Filter(everywhere, no_reasons, ANYTHING), "a scope is Scope.NODE or Scope.USAGE"),
        (
            "filter",
            Filter(everywhere, no_reasons, Scope.TOPOLOGY),
            "facets are reserved for Holdfast's own",
        ),
        ("score", Score(lambda v: 0, Scope.TOPOLOGY), "facets are reserved for Holdfast's own"),
        ("filter", Filter(lambda v: np.ones(7, bool), no_reasons, Scope.NODE), "7 values for 3 rows"),
        (
            "filter",
            Filter(lambda v: v.rows, no_reasons, Scope.NODE),
            "must be True or False for each",
        ),
        ("score", 7, "returned int 7; score returns None or a Score"),
        ("score", Score(lambda v: "x", Scope.NODE), "a score is a number for each row"),
        (
            "score",
            Score(lambda v: 120, Scope.NODE),
            "invalid score 120, it should in",
        ),
        ("score", Score(lambda v: -1, Scope.USAGE), "invalid score -1, it should in the range of"),
        ("score", Score.same(101), "invalid score 101"),
        ("score", Score(lambda v: v.free(0) / 0, Scope.USAGE), "invalid score NaN"),
        ("reserve", None, "returned NoneType None; it must be an Outcome"),
        ("permit", True, "returned bool True; it must be an Outcome"),
        ("pre_bind", 7, "it must be a list of decisions"),
        ("pre_bind", ["x"], "it must be a decision"),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_names_the_plugin(
    method: str, answer: Any, said: str
) -> None:
    Answering.answers = {method: answer}
    driver = driven("", Answering).add(make_pod("p").cpu("1").obj())
    ((reason, message),) = told(driver, 0.0).values()
    assert reason == "SchedulerError"
    assert "Answering" in message and said in message


class Out(ByRange):
    def apply(self, raw: Any, measure: Any) -> Any:
        return super().apply(raw, measure) + 20


def test_a_normalised_score_out_of_range_is_an_error_in_kube_schedulers_words() -> None:
    Answering.answers = {"score": Score(lambda v: v.free(0), Scope.USAGE, Out())}
    driver = driven("", Answering).add(make_pod("on").cpu("1").on("n0").obj())
    driver.add(make_pod("p").cpu("1").obj())
    assert told(driver, 0.0)["p"] == (
        "SchedulerError",
        "applying score defaultWeights on Score plugins: "
        'plugin "Answering" returns an invalid score 120, '
        "it should in the range of [0, 100] after normalizing",
    )


def test_a_score_out_of_range_where_the_pod_cannot_go_is_nobodys_concern() -> None:
    score = Score(lambda v: v.where(v.free(0) < 0, 500, 50), Scope.USAGE)
    Answering.answers = {"score": score}
    driver = driven("", Answering).add(*(make_pod(f"on{i}").cpu("5").on("n0").obj() for i in range(2)))
    assert list(driver.add(make_pod("p").cpu("1").obj()).binds(0.0)) == ["p"]


def test_a_formula_of_our_own_that_fails_is_blamed_on_its_plugin() -> None:
    driver = Driver().add(*(make_node(f"n{at}").allocatable(cpu="4", pods=9).obj() for at in range(2)))
    plugin = driver.scheduler.profiles[0].plugins["NodeUnschedulable"]
    column = vars(plugin).pop("_cordoned")
    driver.add(make_pod("p").obj(), make_pod("tolerant").toleration(operator="Exists").obj())
    decisions = driver.round(0.0)
    assert [each.pod.name for each in decisions if isinstance(each, Bind)] == ["tolerant"]
    (said,) = (each for each in decisions if isinstance(each, SetPodScheduled))
    assert said.reason == "SchedulerError"
    assert said.message.startswith('running "NodeUnschedulable" filter plugin: AttributeError')
    vars(plugin)["_cordoned"] = column
    assert list(driver.binds(driver.scheduler.next_timer() or 0.0)) == ["p"]


@pytest.mark.parametrize("at", ["PreFilter", "Filter", "reasons", "Score", "NormalizeScore"])
def test_pods_with_volumes_fail_and_recover_like_others(at: str) -> None:
    driver = driven(at)
    pod = doomed().obj()
    pod.spec.volumes = [convert({"name": "v", "csi": {"driver": "d"}}, Volume)]
    assert told(driver.add(pod), 0.0)["doomed"] == ("SchedulerError", SAID[at])
    if at != "reasons":
        Failing.fails = False
        assert list(driver.binds(driver.scheduler.next_timer() or 0.0)) == ["doomed"]


def test_an_annotation_that_cannot_be_parsed_rejects_that_pod_alone() -> None:
    """`int(text)` in `filter`, as everybody writes it."""
    driver = driven("", Parsing)
    driver.add(make_pod("bad").annotation("example.com/max", "many").obj())
    driver.add(make_pod("good").annotation("example.com/max", "7").obj())
    decisions = driver.round(0.0)
    assert [each.pod.name for each in decisions if isinstance(each, Bind)] == ["good"]
    (said,) = (each.message for each in decisions if isinstance(each, SetPodScheduled))
    assert said.startswith('running PreFilter plugin "Parsing": ValueError: invalid literal for int()')


class Parsing(Plugin):
    name = "Parsing"
    reads_annotations = frozenset({"example.com/max"})

    def filter(self, cls: PodClass) -> None:
        int(cls.annotations["example.com/max"])


@pytest.mark.parametrize("at", ["PreFilter", "Filter", "Score", "Reserve", "Permit", "PreBind"])
def test_a_reservation_fails_and_recovers_like_a_pod(at: str) -> None:
    Failing.at = at
    world = World(node("n1"), node("n2"), plugins=(Failing,))
    world.put(reservation("r", cpu="2", labels={"doomed": "yes"}))
    assert world.phase("r") == "Pending"
    assert SAID[at] in str(world.condition("r", "Scheduled"))
    Failing.fails = False
    world.wait(60)
    assert world.phase("r") == "Available"

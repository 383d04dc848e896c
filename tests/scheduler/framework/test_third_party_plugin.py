"""A plugin from outside, at every extension point."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver
from holdfast.scheduler.cluster.decisions import Bind, Decision, Emit, SetPodScheduled
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework import registry as registry_module
from holdfast.scheduler.framework.config import API_VERSION, KIND, ConfigError, load
from holdfast.scheduler.framework.interface import (
    FINE,
    Filter,
    Nomination,
    Outcome,
    Plugin,
    Reason,
    Rejected,
    Scope,
    Score,
    Trial,
    extension_points,
)
from holdfast.scheduler.framework.registry import PluginError, Registry
from holdfast.scheduler.plugins import IN_TREE
from reference.setup import Setup, document


class EvenRows(Plugin):
    """Takes nodes of even rows, the last of them best; refuses pods labelled `never`."""

    name = "EvenRows"
    wakes_on = Change.NODE_ADDED

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        if "free" in cls.labels:
            return None
        if "never" in cls.labels:
            return Rejected("never means never")

        def passes(view: View) -> Cells:
            return view.rows % 2 == 0

        def reasons(view: View) -> list[Reason]:
            return [Reason("node(s) stood at an odd row", view.rows % 2 == 1, resolvable=False)]

        return Filter(passes, reasons, Scope.NODE)

    def score(self, cls: PodClass) -> Score | None:
        return Score(lambda view: view.rows * 1, Scope.NODE)


class Bookkeeper(Plugin):
    """Notes all it is asked; does what its class says."""

    name = "Bookkeeper"
    log: ClassVar[list[str]] = []
    reserves: ClassVar[Outcome] = FINE
    permits: ClassVar[Outcome] = FINE

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self.log.append(f"reserve {pod.name} {row}")
        return self.reserves

    def unreserve(self, pod: PodRecord, row: int) -> None:
        self.log.append(f"unreserve {pod.name}")

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        self.log.append(f"permit {pod.name}")
        return self.permits

    def pre_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return [Emit(pod.ref, "Normal", "PreBind", "", "")]

    def post_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        return [Emit(pod.ref, "Normal", "PostBind", "", "")]


class SecondKeeper(Bookkeeper):
    name = "SecondKeeper"
    log: ClassVar[list[str]] = []


class Nominator(Plugin):
    """Says what it was told could be helped."""

    name = "Nominator"
    seen: ClassVar[list[list[bool]]] = []

    def post_filter(self, pod: PodRecord, trial: Trial) -> Nomination:
        self.seen.append(trial.resolvable().tolist())
        return Nomination(message="preemption: nothing would help.")


@pytest.fixture(autouse=True)
def _clean() -> None:
    for keeper in (Bookkeeper, SecondKeeper):
        keeper.log = []
        keeper.reserves = keeper.permits = FINE
    Nominator.seen = []


def with_plugins(*plugins: type[Plugin]) -> Driver:
    config = document([Setup()])
    enabled = config["profiles"][0]["plugins"]["multiPoint"]["enabled"]
    enabled += [{"name": plugin.name} for plugin in plugins]
    return Driver((Setup(),), *plugins, config=config)


def test_its_filter_and_score_count_like_any_other() -> None:
    driver = with_plugins(EvenRows)
    driver.add(*(make_node(f"n{i}").allocatable(cpu="4").obj() for i in range(4)))
    assert driver.add(make_pod("p").cpu("1").obj()).binds() == {"p": "n2"}
    assert driver.add(make_pod("q").label("free").cpu("1").obj()).binds() == {"q": "n3"}


def test_its_reasons_are_in_the_message() -> None:
    driver = with_plugins(EvenRows).add(make_node("n0").taint("k").obj(), make_node("n1").obj())
    assert driver.add(make_pod("p").obj()).messages() == {
        "p": "0/2 nodes are available: 1 node(s) had untolerated taint(s), "
        "1 node(s) stood at an odd row."
    }


def test_it_can_refuse_a_pod_outright() -> None:
    driver = with_plugins(EvenRows).add(make_node("n0").obj(), make_node("n1").obj())
    assert driver.add(make_pod("p").label("never").obj()).messages() == {
        "p": "0/2 nodes are available: never means never."
    }


def test_the_order_around_a_bind() -> None:
    driver = with_plugins(Bookkeeper).add(make_node("n").obj(), make_pod("p").obj())
    decisions = driver.round(0.0)
    assert Bookkeeper.log == ["reserve p 0", "permit p"]
    assert [d.reason if isinstance(d, Emit) else type(d).__name__ for d in decisions] == [
        "PreBind",
        "Bind",
        "PostBind",
    ]


# Reserve


def test_a_failed_reserve_is_undone_by_all_that_were_asked_last_first() -> None:
    order: list[str] = []
    SecondKeeper.log = Bookkeeper.log = order
    SecondKeeper.reserves = Outcome("no more")
    driver = with_plugins(Bookkeeper, SecondKeeper).add(make_node("n").allocatable(cpu="1").obj())
    pod = make_pod("p").cpu("1").obj()
    assert driver.add(pod).messages(0.0) == {"p": "no more"}
    assert order == ["reserve p 0", "reserve p 0", "unreserve p", "unreserve p"]
    assert driver.record(pod).phase.value == "pending"
    assert driver.scheduler.cluster.nodes.claimed.sum() == 0
    SecondKeeper.reserves = FINE
    assert driver.add(make_node("m").allocatable(cpu="1").obj()).binds(1.0) == {"p": "n"}


def test_a_refused_bind_is_unreserved_on_its_node() -> None:
    pod = make_pod("p").obj()
    driver = with_plugins(Bookkeeper).add(make_node("n").obj(), pod)
    driver.round(0.0)
    driver.refuse(pod)
    assert Bookkeeper.log == ["reserve p 0", "permit p", "unreserve p"]


def test_a_pod_deleted_before_it_was_bound_is_unreserved() -> None:
    """Or what a plugin set aside for it is lost."""
    pod = make_pod("p").obj()
    driver = with_plugins(Bookkeeper).add(make_node("n").obj(), pod)
    driver.round(0.0)
    driver.delete(pod).round(1.0)
    assert Bookkeeper.log[-1] == "unreserve p"


def test_a_pod_bound_elsewhere_by_another_is_unreserved() -> None:
    pod = make_pod("p")
    driver = with_plugins(Bookkeeper).add(make_node("n").obj(), make_node("m").obj(), pod.obj())
    driver.round(0.0)
    driver.update(pod.on("m").obj()).round(1.0)
    assert Bookkeeper.log[-1] == "unreserve p"


def test_a_bound_pod_that_is_deleted_is_not_unreserved() -> None:
    pod = make_pod("p").obj()
    driver = with_plugins(Bookkeeper).add(make_node("n").obj(), pod)
    driver.round(0.0)
    driver.confirm(pod).delete(pod).round(1.0)
    assert "unreserve p" not in Bookkeeper.log


# Permit


def waiting(wait: float = 10.0) -> Driver:
    """A pod holds the only room there is, and waits; another would like it."""
    Bookkeeper.permits = Outcome(wait=wait)
    driver = with_plugins(Bookkeeper, SecondKeeper).add(make_node("n").allocatable(cpu="1").obj())
    driver.add(make_pod("p").cpu("1").priority(5).obj(), make_pod("other").cpu("1").obj())
    assert driver.binds(0.0) == {}
    assert list(driver.scheduler.binding.waiting) == ["uid-p"]
    assert driver.scheduler.next_timer() == wait
    return driver


def test_a_pod_that_must_wait_holds_its_capacity_until_allowed() -> None:
    driver = waiting()
    assert driver.binds(5.0) == {}
    Bookkeeper.permits = FINE
    assert driver.binds(6.0) == {"p": "n"}
    assert not driver.scheduler.binding.waiting


def test_a_wait_that_is_too_long_is_over_and_the_capacity_is_free() -> None:
    driver = waiting()
    assert driver.binds(9.9) == {}
    told = [d.message for d in driver.round(10.0) if isinstance(d, SetPodScheduled)]
    assert told[0] == "timed out waiting for Bookkeeper"
    assert "unreserve p" in Bookkeeper.log


def test_a_wait_may_end_in_a_refusal() -> None:
    driver = waiting()
    Bookkeeper.permits = Outcome("changed my mind")
    assert driver.messages(3.0)["p"] == "changed my mind"
    assert "unreserve p" in Bookkeeper.log


def test_capacity_given_back_after_a_wait_is_offered_to_others() -> None:
    """Here by the next plugin, asked only once the first has allowed the pod."""
    driver = waiting()
    Bookkeeper.permits = FINE
    SecondKeeper.permits = Outcome("not by me")
    driver.round(3.0)
    assert driver.record(make_pod("p").obj()).phase.value == "pending"
    SecondKeeper.permits = FINE
    driver.round(3.0)
    bound = {d.pod.name for d in driver.decisions if isinstance(d, Bind)}
    tried = [line for line in Bookkeeper.log if line.startswith("reserve other")]
    assert bound or tried, "nobody tried the room that came free"


def test_a_pod_deleted_while_it_waits_leaves_nothing_behind() -> None:
    driver = waiting()
    Bookkeeper.permits = FINE
    driver.delete(make_pod("p").obj())
    assert driver.binds(3.0) == {"other": "n"}
    assert not driver.scheduler.binding.waiting
    assert Bookkeeper.log.count("unreserve p") == 1


def test_a_pod_bound_by_another_while_it_waits_waits_no_more() -> None:
    driver = waiting()
    driver.update(make_pod("p").cpu("1").priority(5).on("n").obj())
    assert driver.binds(3.0) == {}
    assert not driver.scheduler.binding.waiting


# PostFilter


def test_its_word_is_joined_to_the_message() -> None:
    driver = with_plugins(Nominator).add(make_node("n").allocatable(cpu="1").obj())
    assert driver.add(make_pod("p").cpu("2").obj()).messages() == {
        "p": "0/1 nodes are available: 1 Insufficient cpu. preemption: nothing would help."
    }


@pytest.mark.parametrize(
    ("fields", "resolvable"),
    [
        ([], [True, False, False]),
        ([["n0"]], [True, False, False]),
        ([["n1"]], [False, False, False]),
        ([["n2"]], [False, False, False]),
        ([["n0"], ["n1"]], [False, False, False]),
    ],
)
def test_it_is_told_where_removing_pods_could_help(
    fields: list[list[str]], resolvable: list[bool]
) -> None:
    """Full n0, small n1 and tainted n2; not where the pod may not go at all."""
    driver = with_plugins(Nominator)
    driver.add(make_node("n0").allocatable(cpu="2").obj(), make_node("n1").allocatable(cpu="1").obj())
    driver.add(make_node("n2").allocatable(cpu="2").taint("k").obj())
    driver.add(make_pod("tenant").cpu("2").on("n0").obj())
    pod = make_pod("p").cpu("2")
    if fields:
        named: list[dict[str, Any]] = [
            {"key": "metadata.name", "operator": "In", "values": values} for values in fields
        ]
        pod.node_affinity_term(fields=named)
    driver.add(pod.obj()).round(0.0)
    assert Nominator.seen == [resolvable]


def test_a_pinned_pod_cannot_be_helped_on_nodes_that_would_take_its_siblings() -> None:
    driver = with_plugins(Nominator)
    driver.add(make_node("n0").allocatable(cpu="1").obj(), make_node("n1").allocatable(cpu="9").obj())
    field = {"key": "metadata.name", "operator": "In", "values": ["n0"]}
    driver.add(make_pod("p").cpu("2").node_affinity_term(fields=[field]).obj()).round(0.0)
    assert Nominator.seen == [[False, False]]


# Registration


def test_the_points_a_plugin_serves_are_those_it_overrides() -> None:
    assert extension_points(EvenRows) == {"preFilter", "filter", "preScore", "score"}
    assert extension_points(Nominator) == {"postFilter"}
    assert extension_points(Bookkeeper) == {"reserve", "permit", "preBind", "postBind"}


def test_two_plugins_of_one_name_are_refused() -> None:
    class Impostor(Plugin):
        name = "EvenRows"

    with pytest.raises(PluginError, match="two plugins are named EvenRows"):
        Registry([EvenRows, Impostor])
    assert Registry([EvenRows, EvenRows])["EvenRows"] is EvenRows


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, registry_module.GROUP)


def test_an_installed_plugin_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [entry("EvenRows", f"{__name__}:EvenRows")]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: offered)
    found = Registry([]).add_installed().implements()
    assert found == {"EvenRows": frozenset({"preFilter", "filter", "preScore", "score"})}


OTHER_NAME = "loads a plugin named 'EvenRows'; the names must match"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("no.such.module:X", "No module named 'no'"),
        (f"{__name__}:Missing", "Missing"),
        (f"{__name__}:entry", "it is not a Plugin class"),
        (f"{__name__}:EvenRows", OTHER_NAME),
        (f"{__name__}:Future", "is written for version v9"),
    ],
)
def test_an_installed_plugin_that_cannot_be_used_is_an_error_where_it_is_enabled(
    monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    monkeypatch.setattr(registry_module, "entry_points", lambda group: [entry("X", value)])
    offered = in_tree_and_installed()
    assert "X" not in offered.implements()
    (warning,) = offered.warnings
    assert warning.startswith("plugin X cannot be used: ") and why in warning and value in warning
    load(enabling(), offered.implements())
    load(enabling(disabled=[{"name": "X"}]), offered.implements())
    unused = load(enabling(args={"a": 1}), offered.implements())
    assert any("pluginConfig[0].name: has no effect: plugin" in each for each in unused.warnings)
    with pytest.raises(ConfigError) as found:
        load(enabling("X"), offered.implements())
    field = "profiles[0].plugins.multiPoint.enabled[0].name: "
    assert f'{field}plugin "X" cannot be used: ' in str(found.value) and why in str(found.value)


class Future(Plugin):
    name = "X"
    api_version = "v9"


class OtherEvenRows(Plugin):
    name = "EvenRows"


class OwnName(Plugin):
    name = "NodeName"


def test_of_two_installed_plugins_with_one_name_neither_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = [entry("EvenRows", f"{__name__}:{x}") for x in ("EvenRows", "OtherEvenRows")]
    offered.append(entry("NodeName", f"{__name__}:OwnName"))
    monkeypatch.setattr(registry_module, "entry_points", lambda group: offered)
    found = in_tree_and_installed()
    assert "EvenRows" not in found.implements() and found["NodeName"] is not OwnName
    assert len(found.warnings) == 2
    with pytest.raises(ConfigError, match="two plugins are named EvenRows"):
        load(enabling("EvenRows"), found.implements())
    load(enabling(), found.implements())


def in_tree_and_installed() -> Registry:
    return Registry(IN_TREE).add_installed()


def enabling(
    *names: str, disabled: list[dict[str, str]] | None = None, args: dict[str, int] | None = None
) -> dict[str, Any]:
    points = {"enabled": [{"name": name} for name in names], "disabled": disabled or []}
    profile: dict[str, Any] = {"plugins": {"multiPoint": points}}
    if args is not None:
        profile["pluginConfig"] = [{"name": "X", "args": args}]
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}

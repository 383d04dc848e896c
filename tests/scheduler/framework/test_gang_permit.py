"""Plugins that refuse members of a job, or make them wait: the job is bound whole or not at all."""

from collections.abc import Mapping
from typing import Any

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver
from harness.objects import SIGS, pod_group
from holdfast.plugin import FINE, Handle, Outcome, Plugin, PodClass, PodRecord, Score
from holdfast.plugin.testing import Cluster, node, pod
from holdfast.scheduler.cluster.decisions import Decision
from reference.setup import Setup, document

AT, KIND = "sentry.example.org/at", "sentry.example.org/kind"
LABEL = "pod-group.scheduling.sigs.k8s.io"
KOORD = "gang.scheduling.koordinator.sh/"
POINTS = ("reserve", "permit", "pre_bind", "bind")
BINDS_FIRST = """
  apiVersion: kubescheduler.config.k8s.io/v1
  kind: KubeSchedulerConfiguration
  profiles:
    - plugins:
        multiPoint: {enabled: [{name: Sentry}]}
        bind:
          disabled: [{name: "*"}]
          enabled: [{name: Sentry}, {name: Reservation}, {name: DefaultBinder}]
"""


class Sentry(Plugin):
    """Refuses, fails or makes wait where a pod's annotations say so, as long as it is not open."""

    name = "Sentry"
    reads_annotations = frozenset((AT, KIND))

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)
        self.held: dict[str, str] = {}
        self.bound: list[str] = []
        self.is_open = False

    def _asked(self, point: str, pod: PodRecord) -> Outcome:
        if self.is_open or pod.cls.annotations.get(AT) != point:
            return FINE
        kind = pod.cls.annotations.get(KIND, "raise")
        if kind == "raise":
            raise RuntimeError("out of order")
        return Outcome(wait=60.0) if kind == "wait" else Outcome("not today")

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self.held[pod.uid] = pod.name
        return self._asked("reserve", pod)

    def unreserve(self, pod: PodRecord, row: int) -> None:
        del self.held[pod.uid]

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        return self._asked("permit", pod)

    def pre_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        self._asked("pre_bind", pod)
        return []

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        self._asked("bind", pod)
        return []

    def post_bind(self, pod: PodRecord, row: int) -> list[Decision]:
        self.bound.append(self.held.get(pod.uid, ""))
        return []


def group(least: int) -> str:
    kind = "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: PodGroup\n"
    return f"{kind}metadata: {{name: g, namespace: default}}\nspec: {{minMember: {least}}}\n"


def member(name: str, at: str = "", kind: str = "") -> dict[str, Any]:
    says = {AT: at, KIND: kind} if at else {}
    return pod(name, cpu=1, labels={LABEL: "g"}, annotations=says)


def stage(least: int, *members: Any, cpu: int = 3) -> Cluster:
    cluster = Cluster(Sentry, config=BINDS_FIRST, keep_errors=True)
    return cluster.add(node("n", cpu=cpu), group(least), *members)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize(
    ("at", "kind"), [*((at, "raise") for at in POINTS), ("reserve", "refuse"), ("permit", "refuse")]
)
def test_a_plugin_that_refuses_a_member_refuses_its_job(at: str, kind: str, which: int) -> None:
    members = [member(f"g{i}", at if i == which else "", kind) for i in range(3)]
    cluster = stage(3, *members)
    assert cluster.schedule() == {}
    assert cluster.waiting() == {}
    assert cluster.plugin().held == {}
    assert cluster.plugin().bound == []
    messages = cluster.messages()
    assert sorted(messages) == ["g0", "g1", "g2"]
    assert all("Sentry" in text for text in messages.values())
    cluster.add(pod("other", cpu=3))
    assert cluster.schedule() == {"other": "n"}, "all was given back"
    cluster.delete("Pod/other")
    cluster.plugin().is_open = True
    assert sorted(cluster.advance(60)) == ["g0", "g1", "g2"]


@pytest.mark.parametrize(
    ("at", "kind"),
    [("permit", "refuse"), ("permit", "raise"), ("pre_bind", "raise"), ("bind", "raise")],
)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_member_that_the_job_can_do_without_is_refused_alone(at: str, kind: str, which: int) -> None:
    members = [member(f"g{i}", at if i == which else "", kind) for i in range(3)]
    cluster = stage(2, *members)
    assert sorted(cluster.schedule()) == sorted({"g0", "g1", "g2"} - {f"g{which}"})
    assert "Sentry" in str(cluster.events()) or "not today" in cluster.messages()[f"g{which}"]
    cluster.plugin().is_open = True
    cluster.add(node("n2"))
    assert sorted(cluster.advance(60)) == [f"g{which}"]


@pytest.mark.parametrize("kind", ["refuse", "raise"])
def test_others_do_for_members_whose_place_is_not_reserved(kind: str) -> None:
    cluster = stage(2, member("g0", "reserve", kind), member("g1"), member("g2"))
    assert sorted(cluster.schedule()) == ["g1", "g2"]


def test_members_wait_with_one_that_has_to() -> None:
    cluster = stage(3, member("g0"), member("g1", "permit", "wait"), member("g2"))
    assert cluster.schedule() == {}
    assert sorted(cluster.waiting()) == ["g0", "g1", "g2"]
    cluster.add(pod("other", cpu=1))
    assert cluster.schedule() == {}, "they keep their places"
    cluster.plugin().is_open = True
    assert sorted(cluster.advance(10)) == ["g0", "g1", "g2"]
    assert cluster.waiting() == {}


def test_a_member_the_job_can_do_without_waits_alone() -> None:
    cluster = stage(2, member("g0", "permit", "wait"), member("g1"), member("g2"))
    assert sorted(cluster.schedule()) == ["g1", "g2"]
    assert sorted(cluster.waiting()) == ["g0"]
    cluster.plugin().is_open = True
    cluster.add(node("n2"))
    assert sorted(cluster.schedule()) == ["g0"]


def test_members_give_their_places_back_when_their_job_needs_more() -> None:
    cluster = stage(3, member("g0"), member("g1", "permit", "wait"), member("g2"))
    cluster.schedule()
    cluster.update(group(4)).schedule()
    assert cluster.placed() == {}
    assert cluster.waiting() == {}
    assert cluster.plugin().held == {}


def test_a_time_out_is_told_to_all() -> None:
    cluster = stage(3, member("g0"), member("g1", "permit", "wait"), member("g2"))
    cluster.schedule()
    cluster.advance(61)
    told = [event.message for event in cluster.events() if event.reason == "FailedScheduling"]
    assert sum("timed out waiting for Sentry" in text for text in told) == 3
    assert cluster.placed() == {}


def test_members_wait_no_more_for_one_that_is_gone() -> None:
    cluster = stage(3, member("g0"), member("g1", "permit", "wait"), member("g2"))
    cluster.schedule()
    cluster.delete("Pod/g1")
    assert cluster.schedule() == {}
    assert cluster.waiting() == {}
    assert cluster.plugin().held == {}
    cluster.add(member("g3"))
    assert sorted(cluster.schedule()) == ["g0", "g2", "g3"]


def test_a_late_member_takes_the_part_of_one_that_waits() -> None:
    cluster = stage(2, member("g0", "permit", "wait"), member("g1"))
    assert cluster.schedule() == {}
    assert sorted(cluster.waiting()) == ["g0", "g1"]
    cluster.add(member("g2"))
    assert sorted(cluster.schedule()) == ["g1", "g2"]
    assert sorted(cluster.waiting()) == ["g0"]
    assert [event.reason for event in cluster.events()].count("Ready") == 1


def test_members_wait_no_more_once_the_node_of_one_is_gone() -> None:
    cluster = stage(3, member("g0"), member("g1", "permit", "wait"), member("g2"), cpu=2)
    cluster.add(node("m", cpu=1)).schedule()
    assert len(cluster.waiting()) == 3
    cluster.delete("Node/m").schedule()
    cluster.plugin().is_open = True
    cluster.advance(1)
    assert cluster.placed() == cluster.waiting() == {}
    cluster.add(node("k", cpu=1))
    assert sorted(cluster.advance(10)) == ["g0", "g1", "g2"]


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("opens", [True, False])
def test_a_permitted_member_whose_node_is_gone_is_not_bound_with_the_others(
    opens: bool, which: int
) -> None:
    """Its job needs it no more once the others are permitted: it alone is refused."""
    waits = [("", "") if i == which else ("permit", "wait") for i in range(3)]
    members = [member(f"g{i}", *says) for i, says in enumerate(waits)]
    alone = members[which]
    alone["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "m"}
    cluster = stage(2, *members, cpu=2).add(node("m", cpu=1, labels={"kubernetes.io/hostname": "m"}))
    cluster.schedule()
    assert len(cluster.waiting()) == 3
    others = sorted({"g0", "g1", "g2"} - {f"g{which}"})
    if opens:
        cluster.plugin().is_open = True
    cluster.delete("Node/m")
    assert sorted(cluster.schedule()) == (others if opens else [])
    cluster.plugin().is_open = True
    cluster.advance(1)
    assert sorted(cluster.placed()) == others
    assert cluster.waiting() == {}
    cluster.add(node("m", cpu=1, labels={"kubernetes.io/hostname": "m"}))
    assert cluster.advance(20) == {f"g{which}": "m"}


def test_capacity_of_a_member_whose_time_is_over_is_given_to_others() -> None:
    cluster = stage(2, member("g0"), member("g1"), member("g2", "permit", "wait"))
    cluster.schedule()
    cluster.add(pod("other", cpu=1))
    assert cluster.schedule() == {}
    assert sorted(cluster.advance(61)) == ["other"]


def test_a_restart_while_members_wait_asks_again() -> None:
    cluster = stage(3, member("g0"), member("g1", "permit", "wait"), member("g2"))
    cluster.schedule()
    cluster.restart().schedule()
    assert sorted(cluster.waiting()) == ["g0", "g1", "g2"]
    cluster.plugin().is_open = True
    cluster.add(node("n2"))
    assert sorted(cluster.schedule()) == ["g0", "g1", "g2"]


def test_groups_that_belong_together_are_refused_together() -> None:
    both = {KOORD + "min-available": "1", KOORD + "groups": '["default/a", "default/b"]'}
    a = pod("a", cpu=1, annotations={KOORD + "name": "a", **both})
    b = pod("b", cpu=1, annotations={KOORD + "name": "b", AT: "permit", KIND: "refuse", **both})
    cluster = Cluster(Sentry).add(node("n"), a, b)
    assert cluster.schedule() == {}
    cluster.plugin().is_open = True
    cluster.add(node("n2"))
    assert sorted(cluster.advance(60)) == ["a", "b"]


@pytest.mark.parametrize(
    ("at", "kind"),
    [("permit", "refuse"), ("permit", "wait"), ("pre_bind", "raise"), ("bind", "raise")],
)
def test_a_gang_is_bound_whole_though_a_partner_does_not_name_it(at: str, kind: str) -> None:
    """Gang a needs gang b, which does not need a, and whose member is placed first."""
    both = '["default/a", "default/b"]'
    a = pod_group("a", 2, SIGS)
    a["metadata"] |= {
        "namespace": "default",
        "creationTimestamp": "2025-12-31T00:00:00Z",
        "annotations": {KOORD + "groups": both},
    }
    b0 = pod("b0", cpu=1, annotations={KOORD + "name": "b", KOORD + "min-available": "1"})
    a1 = pod("a1", cpu=1, annotations={KOORD + "name": "a"})
    a2 = pod("a2", cpu=1, annotations={KOORD + "name": "a", AT: at, KIND: kind})
    for each, minute in ((b0, 1), (a1, 2), (a2, 2)):
        each["metadata"]["creationTimestamp"] = f"2025-12-31T00:0{minute}:00Z"
    cluster = Cluster(Sentry, config=BINDS_FIRST, keep_errors=True).add(node("n"), a, b0, a1, a2)
    bound = [*cluster.schedule(), *cluster.advance(30)]
    assert "a1" not in bound and "a2" not in bound
    cluster.plugin().is_open = True
    cluster.add(node("n2"))
    assert sorted([*bound, *cluster.advance(60)]) == ["a1", "a2", "b0"]


@pytest.mark.parametrize(
    ("at", "kind"),
    [("permit", "refuse"), ("permit", "wait"), ("pre_bind", "raise")],
)
def test_reservations_that_are_members_are_refused_together(at: str, kind: str) -> None:
    def reserve(name: str, says: dict[str, str]) -> dict[str, Any]:
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        gang = {KOORD + "name": "g", KOORD + "min-available": "2"}
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name, "annotations": gang},
            "spec": {
                "owners": [{"labelSelector": {"matchLabels": {"app": name}}}],
                "template": {"metadata": {"annotations": says}, "spec": {"containers": [container]}},
            },
        }

    def phases() -> list[str]:
        found = [raw for raw in cluster.objects() if raw["kind"] == "Reservation"]
        return [raw.get("status", {}).get("phase", "Pending") for raw in found]

    cluster = Cluster(Sentry, config=BINDS_FIRST, keep_errors=True)
    cluster.add(node("n", cpu=2), reserve("r1", {}))
    cluster.add(reserve("r2", {AT: at, KIND: kind}))
    cluster.schedule()
    assert phases() == ["Pending", "Pending"]
    cluster.plugin().is_open = True
    cluster.add(node("n2"))
    cluster.advance(60)
    assert phases() == ["Available", "Available"]


class UndoesAlone(Plugin):
    """Takes what it needs in `permit`, and has only that to undo."""

    name = "UndoesAlone"

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)
        self.log: list[str] = []

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        self.log.append("permit")
        return Outcome("no")

    def unreserve(self, pod: PodRecord, row: int) -> None:
        self.log.append("unreserve")


def test_a_plugin_with_nothing_to_reserve_is_told_to_unreserve() -> None:
    cluster = Cluster(UndoesAlone).add(node("n"), pod("p"))
    assert cluster.schedule() == {}
    assert cluster.plugin().log == ["permit", "unreserve"]


class Unscorable(Plugin):
    name = "Unscorable"
    reads_annotations = frozenset((AT,))

    def score(self, cls: PodClass) -> Score | None:
        if AT in cls.annotations:
            raise RuntimeError("cannot say")
        return None


def test_members_are_told_of_a_plugin_that_cannot_score_one_of_them() -> None:
    members = [member(f"g{i}", "score" if i == 1 else "") for i in range(3)]
    cluster = Cluster(Unscorable, keep_errors=True).add(node("a", cpu=2), node("b", cpu=1), group(3))
    assert cluster.add(*members).schedule() == {}
    assert all('"Unscorable"' in text for text in cluster.messages().values())
    assert len(cluster.messages()) == 3


class BindsOnce(Plugin):
    """Fails when it is asked to bind a pod a second time, while it is not open."""

    name = "BindsOnce"

    def __init__(self, handle: Handle, args: Mapping[str, Any]) -> None:
        super().__init__(handle, args)
        self.asked: set[str] = set()
        self.is_open = False

    def bind(self, pod: PodRecord, row: int) -> list[Decision]:
        if pod.uid in self.asked and not self.is_open:
            raise RuntimeError("once is enough")
        self.asked.add(pod.uid)
        return []


def test_a_member_whose_bind_fails_when_it_is_asked_for_again_comes_before_others() -> None:
    config = document((Setup(extra=("Coscheduling",)),))
    order = [{"name": "BindsOnce"}, {"name": "DefaultBinder"}]
    config["profiles"][0]["plugins"]["bind"] = {"disabled": [{"name": "*"}], "enabled": order}
    driver = Driver((Setup(),), BindsOnce, config=config)
    driver.add(make_node("n").allocatable(cpu="2", memory="8Gi", pods=9).obj())
    a, b = (
        make_pod(name)
        .cpu("1")
        .annotation(KOORD + "name", "g")
        .annotation(KOORD + "min-available", "2")
        .obj()
        for name in "ab"
    )
    assert sorted(driver.add(a, b).binds(0.0)) == ["a", "b"]
    driver.confirm(a).refuse(b, transient=True)
    driver.round(1.0)
    assert "once is enough" in str(driver.decisions)
    job = driver.scheduler.cluster.jobs.of(driver.record(b))
    assert job is not None and job.interrupted
    plugin = driver.scheduler.profiles[0].plugins["BindsOnce"]
    assert isinstance(plugin, BindsOnce)
    plugin.is_open = True
    driver.add(make_pod("other").cpu("1").priority(10).obj())
    assert driver.binds(60.0) == {"b": "n"}

"""Jobs of several pods: together or not at all."""

import itertools
import json
from typing import Any

import pytest

from harness.builders import make_node, make_pod, make_pod_group, make_reservation
from harness.driver import Driver
from harness.objects import GROUP, SIGS, SIM, VOLCANO, Raw, gang, node, pod, pod_group, reservation
from harness.scenarios import play, step
from holdfast.scheduler.cluster.decisions import Bind, Decision, Nominate, Preempt, SetPodScheduled
from holdfast.scheduler.cluster.events import write_refused
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.controllers.pod_groups import PodGroups
from holdfast.scheduler.controllers.reservation_lifecycle import ReservationLifecycle
from holdfast.scheduler.reservations.hold_objects import hold_template, preemption_hold, starvation_hold
from reference.setup import Setup

KOORD = "gang.scheduling.koordinator.sh/"
HOSTNAME = "kubernetes.io/hostname"
LIGHT = "pod-group.scheduling.sigs.k8s.io"


@pytest.mark.parametrize(
    ("cpu", "least", "members", "placed"),
    [
        (4, 3, 3, 3),
        (4, 4, 4, 4),
        (4, 5, 5, 0),  # four would fit
        (4, 3, 6, 4),  # more than it needs, as many as there is room for
        (4, 0, 6, 4),
        (4, 1, 2, 2),
        (4, 3, 2, 0),  # one is missing
        (0, 1, 1, 0),
    ],
)
def test_a_gang_starts_whole_or_not_at_all(cpu: int, least: int, members: int, placed: int) -> None:
    played = play(node("n1", cpu), pod_group("g", least), gang("g", members))
    assert len(played.bound()) == placed


@pytest.mark.parametrize(
    "naming",
    [
        {"annotations": {GROUP: "g"}},
        {"annotations": {"scheduling.volcano.sh/group-name": "g"}},
        {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}},
        {"labels": {GROUP: "g"}},
    ],
)
@pytest.mark.parametrize("api", [VOLCANO, SIGS])
def test_members_name_their_group_in_any_way(naming: dict[str, Any], api: str) -> None:
    pods = [pod(f"p{i}", **naming) for i in range(2)]
    late = pod("p2", **({"at": "10s"} | naming))
    played = play(node("n1", 4), pod_group("g", 3, api), pods, late)
    assert played.times("p0", "p1", "p2") == [10, 10, 10]
    assert played.find("PodGroup", "g")["status"]["phase"] == "Running"


def test_a_gang_by_annotations_needs_no_group() -> None:
    says = {KOORD + "name": "g", KOORD + "min-available": "2"}
    played = play(
        node("n1", 2),
        pod("p0", 1, annotations=says),
        pod("p1", 2, annotations=says),
        pod("p2", 1, annotations=says, at="10s"),
    )
    assert played.times("p0", "p1", "p2") == [10, None, 10]
    assert played.events("PodGroup/default/g") == [(10, "Ready")]


def test_gangs_that_belong_together_start_together() -> None:
    groups = '["default/a", "default/b"]'
    a = {KOORD + "name": "a", KOORD + "min-available": "1", KOORD + "groups": groups}
    b = {KOORD + "name": "b", KOORD + "min-available": "1", KOORD + "groups": groups}
    fits = play(node("n1", 2), pod("a0", annotations=a), pod("b0", annotations=b, at="10s"))
    assert fits.times("a0", "b0") == [10, 10]
    not_both = play(node("n1", 2), pod("a0", annotations=a), pod("b0", 2, annotations=b))
    assert not_both.bound() == {}


def test_groups_that_belong_together_start_together() -> None:
    bond = {KOORD + "groups": '["default/a", "default/b"]'}
    groups = [pod_group(name, 1, SIGS) for name in ("a", "b")]
    for each in groups:
        each["metadata"]["annotations"] |= bond
    pods = [pod("a0", labels={LIGHT: "a"}), pod("b0", labels={LIGHT: "b"}, at="10s")]
    assert play(node("n1", 2), groups, pods).times("a0", "b0") == [10, 10]
    assert play(node("n1", 1), groups, pods).bound() == {}


def named(name: str, least: int, *groups: str) -> dict[str, str]:
    """The annotations of a member of a gang that names these groups."""
    listed = json.dumps([f"default/{each}" for each in groups])
    own = {KOORD + "name": name, KOORD + "min-available": str(least)}
    return own | ({KOORD + "groups": listed} if groups else {})


class TestAPartnerThatDoesNotNameTheJob:
    """Job b names a, but a does not name b: a starts without b, b does not start without a."""

    @pytest.mark.parametrize("first", ["a0", "b0"])
    @pytest.mark.parametrize(
        ("nodes", "after"),
        [
            pytest.param([node("n1", 4)], pod_group("a", 1, SIGS, at="30s"), id="its PodGroup"),
            pytest.param([], node("n1", 4, annotations={f"{SIM}at": "30s"}), id="a node"),
            pytest.param(
                [node("n1", 1)],
                node("n2", 4, annotations={f"{SIM}at": "30s"}),
                id="a larger node",
            ),
        ],
    )
    def test_it_is_woken_up_while_the_job_is_incomplete(
        self, nodes: list[Any], after: Any, first: str
    ) -> None:
        pods = [
            pod("a0", 2, labels={LIGHT: "a"}, at="0s" if first == "a0" else "5s"),
            pod("b0", 1, annotations=named("b", 2, "a", "b"), at="0s" if first == "b0" else "5s"),
        ]
        group = [] if after["kind"] == "PodGroup" else [pod_group("a", 1, SIGS)]
        played = play(nodes, group, pods, after, until=90)
        assert played.times("b0") == [None]
        assert played.times("a0") == [30]

    def test_the_job_starts_when_it_has(self) -> None:
        a, b = named("a", 2), named("b", 1, "a", "b")
        late = pod("a1", annotations=a, at="30s")
        played = play(node("n1", 4), pod("a0", annotations=a), pod("b0", annotations=b), late, until=90)
        assert played.times("a0", "a1") == [30, 30]
        assert played.times("b0") == [30]

    def test_the_job_starts_when_a_partner_that_did_not_exist_has(self) -> None:
        b = named("b", 1, "a", "b")
        late = pod("a0", annotations=named("a", 1), at="30s")
        played = play(node("n1", 4), pod("b0", annotations=b), late, until=90)
        assert played.times("a0", "b0") == [30, 30]

    def test_the_job_starts_when_the_partner_needs_fewer_pods(self) -> None:
        fewer = step(
            "30s", patch={"kind": "PodGroup", "name": "a", "merge": {"spec": {"minMember": 1}}}
        )
        pods = [pod("a0", labels={LIGHT: "a"}), pod("b0", annotations=named("b", 1, "a", "b"))]
        played = play(node("n1", 4), pod_group("a", 2, SIGS), pods, fewer, until=90)
        assert played.times("a0", "b0") == [30, 30]

    def test_members_left_over_have_a_leader(self) -> None:
        """Of three members of a, one fits together with b; the others once there is a node."""
        a = [pod(f"a{i}", 2, labels={LIGHT: "a"}) for i in range(3)]
        b = pod("b0", 2, annotations=named("b", 1, "a", "b"), priority=10)
        more = node("n2", 4, annotations={f"{SIM}at": "30s"})
        played = play(node("n1", 4), pod_group("a", 1, SIGS), a, b, more, until=90)
        assert sorted(t for t in played.times("a0", "a1", "a2", "b0") if t is not None) == [
            0,
            0,
            30,
            30,
        ]

    @pytest.mark.parametrize("size", [1, 2, 3])
    @pytest.mark.parametrize("cpu", [16, 3])
    def test_members_that_a_partner_has_placed_are_not_placed_again(self, size: int, cpu: int) -> None:
        """Where queues share capacity, the rest of a waits in its lane while b places it."""
        shared = {"apiVersion": VOLCANO, "kind": "Queue", "metadata": {"name": "q"}}
        a = [pod(f"a{i}", annotations=named("a", size)) for i in range(4)]
        b = pod("b0", annotations=named("b", 1, "a", "b"))
        played = play(node("n1", cpu), shared, a, b, until=90)
        placed = [t for t in played.times("a0", "a1", "a2", "a3", "b0") if t is not None]
        assert placed == [0] * min(5, cpu)


def partner_gang(name: str, kind: str, *partners: str, on: str = "PodGroup") -> list[Raw]:
    """Two pods with a PodGroup of this API version, or without one, that name these as partners: in the
    annotations of the PodGroup or of the pods."""
    listed = {KOORD + "groups": json.dumps([f"default/{each}" for each in partners])}
    on_pods = listed if on == "pods" or not kind else {}
    if not kind:
        own = {KOORD + "name": name, KOORD + "min-available": "2"}
        return [pod(f"{name}{i}", annotations=own | on_pods) for i in range(2)]
    group = pod_group(name, 2, kind)
    if on == "PodGroup":
        group["metadata"]["annotations"] |= listed
    naming = {"group": name} if kind == VOLCANO else {"labels": {LIGHT: name}}
    return [group, *(pod(f"{name}{i}", annotations=on_pods, **naming) for i in range(2))]


KINDS = pytest.mark.parametrize("kinds", list(itertools.product([VOLCANO, SIGS, ""], repeat=2)))


@KINDS
@pytest.mark.parametrize("on", ["PodGroup", "pods"])
@pytest.mark.parametrize("named", ["tu", "other"])
def test_partners_of_all_kinds_start_together_or_not_at_all(
    kinds: tuple[str, str], on: str, named: str
) -> None:
    """Whether or not each gang lists itself too."""
    t, u = (
        partner_gang(name, kind, *("tu" if named == "tu" else other), on=on)
        for name, kind, other in zip("tu", kinds, "ut", strict=True)
    )
    assert play(node("n1", 3), t, u).bound() == {}
    assert len(play(node("n1", 4), t, u).bound()) == 4


@pytest.mark.parametrize("cpu", [2, 4, 5])
def test_gangs_that_name_each_other_in_a_ring_start_together(cpu: int) -> None:
    ring = [partner_gang(name, VOLCANO, name, other) for name, other in ("tu", "uv", "vt")]
    assert play(node("n1", cpu), *ring).bound() == {}
    assert len(play(node("n1", 6), *ring).bound()) == 6


@pytest.mark.parametrize("at", ["5s", "15s"])
def test_partners_are_found_again_after_a_restart(at: str) -> None:
    t, u = (partner_gang(name, VOLCANO, "t", "u") for name in "tu")
    for each in u:
        each["metadata"]["annotations"][f"{SIM}at"] = "10s"
    more = node("n2", 4, annotations={f"{SIM}at": "20s"})
    played = play(node("n1", 3), t, u, more, step(at, restart="scheduler"), until=60)
    assert played.times("t0", "t1", "u0", "u1") == [20] * 4


def test_a_partner_of_the_same_name_in_another_namespace_is_not_the_one_that_is_listed() -> None:
    t, u = partner_gang("t", VOLCANO, "t", "u"), partner_gang("u", VOLCANO, "t", "u")
    for each in u:
        each["metadata"]["namespace"] = "shop"
    played = play(node("n1", 8), t, u)
    assert played.bound() == {}


def test_of_two_partners_of_one_name_the_one_of_the_own_api_group_counts() -> None:
    """The PodGroup of scheduling.volcano.sh has no pods."""
    t, u = partner_gang("t", SIGS, "t", "u"), partner_gang("u", SIGS, "t", "u")
    played = play(node("n1", 4), pod_group("u", 5), t, u)
    assert len(played.bound()) == 4


def test_settings_of_members_without_a_minimum_do_not_replace_those_with_one() -> None:
    declared = {KOORD + "name": "g", KOORD + "min-available": "3"}
    pods = [pod(f"p{i}", annotations=declared) for i in range(2)]
    late = {KOORD + "name": "g", KOORD + "waiting-time": "1m"}
    played = play(node("n1", 4), pods, pod("p2", annotations=late, at="10s"))
    assert played.times("p0", "p1", "p2") == [10, 10, 10]


def test_a_gang_by_the_labels_of_lightweight_coscheduling() -> None:
    light = {f"{LIGHT}/name": "a", f"{LIGHT}/min-available": "2"}
    played = play(node("n1", 2), pod("a0", labels=light), pod("a1", labels=light, at="10s"))
    assert played.times("a0", "a1") == [10, 10]


@pytest.mark.parametrize(
    ("policy", "ended", "placed"),
    [
        pytest.param("", "runs_for", True, id="work that is done counts"),
        pytest.param("waiting-and-running", "runs_for", False, id="unless it must run"),
        pytest.param("", "delete_at", False, id="those that are gone do not count"),
        pytest.param("once-satisfied", "delete_at", True, id="unless once is enough"),
    ],
)
def test_who_counts_for_one_that_comes_later(policy: str, ended: str, placed: bool) -> None:
    own = {KOORD + "name": "a", KOORD + "min-available": "3", KOORD + "match-policy": policy}
    end = {f"sim.holdfast.io/{ended.replace('_', '-')}": "10s"}
    first = [pod("a0", annotations=own), *(pod(f"a{i}", annotations=own | end) for i in (1, 2))]
    played = play(node("n1", 4), first, pod("late", annotations=own, at="30s"))
    assert len(played.bound()) - ("late" in played.bound()) in (1, 3)
    assert ("late" in played.bound()) is placed


def test_the_group_may_come_after_its_pods_or_before() -> None:
    late = play(node("n1", 4), gang("g", 2), pod_group("g", 2, at="30s"))
    assert late.times("g-0", "g-1") == [30, 30]
    early = play(node("n1", 4), pod_group("g", 2), gang("g", 2, at="30s"))
    assert early.times("g-0", "g-1") == [30, 30]


def test_without_their_group_pods_wait_and_say_so() -> None:
    played = play(node("n1", 4), gang("g", 2))
    assert played.message("g-0") == "PodGroup/default/g does not exist"


def test_a_group_that_is_deleted_keeps_its_pods_waiting() -> None:
    gone = step("5s", delete={"kind": "PodGroup", "name": "g", "apiVersion": VOLCANO})
    room = step("10s", apply=node("n2", 8))
    played = play(node("n1", 1), pod_group("g", 2), gang("g", 2), gone, room)
    assert played.bound() == {}
    assert played.message("g-1") == "PodGroup/default/g does not exist"


def test_a_member_deleted_half_way_keeps_the_others_waiting() -> None:
    room = step("10s", apply=node("n2", 8))
    members = [*gang("g", 2), pod("g-2", 1, group="g", delete_at="5s")]
    played = play(node("n1", 1), pod_group("g", 3), members, room)
    assert played.bound() == {}
    assert played.message("g-0") == "PodGroup/default/g has fewer pods than it needs"


def test_a_changed_minimum_counts_at_once() -> None:
    less = step(
        "10s",
        patch={
            "kind": "PodGroup",
            "name": "g",
            "apiVersion": VOLCANO,
            "merge": {"spec": {"minMember": 2}},
        },
    )
    played = play(node("n1", 2), pod_group("g", 3), gang("g", 3), less)
    assert sorted(played.bound()) == ["g-0", "g-1"]


def test_tasks_have_minima_of_their_own() -> None:
    def task(name: str, kind: str, cpu: int = 1) -> dict[str, object]:
        return pod(name, cpu, annotations={GROUP: "g", "volcano.sh/task-spec": kind})

    def tried(cpu: int) -> list[str]:
        needs = pod_group("g", 3, minTaskMember={"ps": 1, "worker": 2})
        tasks = [task(f"w{i}", "worker") for i in range(3)] + [task("ps", "ps", 2)]
        return sorted(play(node("n1", cpu), needs, *tasks).bound())

    assert tried(3) == []
    assert tried(5) == ["ps", "w0", "w1", "w2"]


@pytest.mark.parametrize(("asked", "placed"), [("4", 2), ("5", 0), ("4000m", 2)])
def test_there_must_be_capacity_for_what_the_group_asks_for_as_a_whole(asked: str, placed: int) -> None:
    played = play(node("n1", 4), pod_group("g", 2, minResources={"cpu": asked}), gang("g", 2))
    assert len(played.bound()) == placed


def test_pods_that_ask_for_nothing_are_counted() -> None:
    members = [pod("g-0", 4, group="g"), pod("g-1", 0, group="g"), pod("g-2", 0, group="g")]
    assert len(play(node("n1", 4), pod_group("g", 3), members).bound()) == 3


def test_the_groups_priority_decides_who_is_first() -> None:
    important = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    played = play(
        important,
        node("n1", 2),
        pod_group("a", 2),
        gang("a", 2),
        pod_group("b", 2, priorityClassName="high"),
        gang("b", 2),
    )
    assert sorted(played.bound()) == ["b-0", "b-1"]


def test_a_gang_waits_without_being_in_anyones_way() -> None:
    played = play(node("n1", 3), pod_group("g", 4), gang("g", 4), pod("one", 3, at="1s"))
    assert played.bound() == {"one": (1, "n1")}


def test_two_gangs_never_block_each_other() -> None:
    played = play(
        node("n1", 3),
        pod_group("a", 2),
        pod_group("b", 2),
        [x for pair in zip(gang("a", 2, runs_for="10s"), gang("b", 2), strict=True) for x in pair],
    )
    assert played.times("a-0", "a-1", "b-0", "b-1") == [0, 0, 10, 10]


def test_a_member_that_failed_is_replaced_alone() -> None:
    """The others run on, so the job is ready as soon as the new one has a place."""
    short = pod("g-2", 1, group="g", activeDeadlineSeconds=5)
    new = pod("g-3", 1, group="g", at="20s")
    played = play(node("n1", 3), pod_group("g", 3), gang("g", 2), short, new)
    assert played.times("g-3") == [20]


def test_those_that_did_their_work_count() -> None:
    members = [pod("g-0", 1, group="g", runs_for="5s"), pod("g-1", 1, group="g", runs_for="50s")]
    late = pod("g-2", 1, group="g", at="20s")
    played = play(node("n1", 4), pod_group("g", 2), members, late)
    assert played.times("g-2") == [20]


def test_a_gang_started_anew_is_a_gang_again() -> None:
    again = [pod("n-0", 1, group="g", at="20s"), pod("n-1", 1, group="g", at="30s")]
    played = play(node("n1", 4), pod_group("g", 2), gang("g", 2, delete_at="10s"), again)
    assert played.times("n-0", "n-1") == [30, 30]


def test_a_restart_in_between_changes_nothing() -> None:
    restart = [step(f"{t}s", restart="scheduler") for t in (5, 15, 25)]
    late = pod("g-2", 1, group="g", at="10s")
    room = step("20s", apply=node("n2", 8))
    played = play(node("n1", 1), pod_group("g", 3), gang("g", 2), late, room, restart)
    assert played.times("g-0", "g-1", "g-2") == [20, 20, 20]


def test_reservations_can_be_members() -> None:
    def reserve(name: str, cpu: str) -> dict[str, object]:
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {
                "name": name,
                "annotations": {KOORD + "name": "g", KOORD + "min-available": "2"},
            },
            "spec": {
                "owners": [{"labelSelector": {"matchLabels": {"app": name}}}],
                "template": {
                    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
                },
            },
        }

    def phases(cpu: int) -> list[str]:
        played = play(node("n1", cpu), reserve("r1", "2"), reserve("r2", "2"))
        return [raw["status"]["phase"] for raw in played.all("Reservation")]

    assert phases(3) == ["Pending", "Pending"]
    assert phases(4) == ["Available", "Available"]


@pytest.mark.parametrize(
    ("api", "cpu", "members", "phase", "reason"),
    [
        (VOLCANO, 4, 3, "Running", ""),
        (VOLCANO, 2, 3, "Inqueue", "NotEnoughResources"),
        (VOLCANO, 4, 2, "Pending", "NotEnoughTasks"),
        (VOLCANO, 4, 0, "Inqueue", ""),
        (SIGS, 4, 3, "Running", ""),
        (SIGS, 2, 3, "Scheduling", ""),
        (SIGS, 4, 2, "Pending", ""),
    ],
)
def test_the_group_says_how_its_job_is_doing(
    api: str, cpu: int, members: int, phase: str, reason: str
) -> None:
    played = play(node("n1", cpu), pod_group("g", 3, api), gang("g", members))
    status = played.find("PodGroup", "g")["status"]
    assert status["phase"] == phase
    said = {c["type"]: c["reason"] for c in status.get("conditions", []) if c["status"] == "True"}
    assert said.get("Unschedulable", "") == reason
    if phase == "Running" and api == VOLCANO:
        assert "Scheduled" in said
        assert status["running"] == 3


@pytest.mark.parametrize(
    ("ends", "phase", "counts"),
    [
        pytest.param([{}, {}], "Running", {"running": 2, "scheduled": 2}, id="both run"),
        pytest.param(
            [{"runs_for": "5s"}, {}],
            "Running",
            {"running": 1, "succeeded": 1, "scheduled": 2},
            id="one did its work",
        ),
        pytest.param(
            [{"runs_for": "5s"}, {"runs_for": "5s"}, {}],
            "Finished",
            {"running": 1, "succeeded": 2, "scheduled": 3},
            id="enough did",
        ),
        pytest.param(
            [{"activeDeadlineSeconds": 5}, {}],
            "Failed",
            {"running": 1, "failed": 1, "scheduled": 2},
            id="one failed",
        ),
        pytest.param(
            [{"delete_at": "5s"}, {}], "Scheduling", {"running": 1, "scheduled": 1}, id="one is gone"
        ),
        pytest.param([{"delete_at": "5s"}, {"delete_at": "5s"}], "Pending", {}, id="both are gone"),
    ],
)
def test_a_group_of_the_other_api_says_how_its_members_end(
    ends: list[dict[str, Any]], phase: str, counts: dict[str, int]
) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "w", "controller": True}
    mine: dict[str, Any] = {"labels": {LIGHT: "g"}, "metadata": {"ownerReferences": [owner]}}
    pods = [pod(f"p{i}", **mine, **end) for i, end in enumerate(ends)]
    status = play(node("n1", 4), pod_group("g", 2, SIGS), pods, until=20).find("PodGroup", "g")[
        "status"
    ]
    assert (status.pop("phase"), status.pop("occupiedBy")) == (phase, "default/work")
    assert status == {"scheduleStartTime": "2026-01-01T00:00:00Z", **counts}


def test_a_job_that_is_done_says_so() -> None:
    played = play(node("n1", 4), pod_group("g", 2), gang("g", 2, runs_for="10s"))
    assert played.find("PodGroup", "g")["status"] | {"conditions": []} == {
        "phase": "Completed",
        "succeeded": 2,
        "conditions": [],
    }


def test_members_that_attract_each_other_find_places() -> None:
    """The first listed wants to be where the second is."""
    near = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "db"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    members = [pod("g-0", 1, group="g", affinity=near), pod("g-1", 1, group="g", labels={"app": "db"})]
    played = play(node("n1", 4), node("n2", 4), pod_group("g", 2), members)
    assert played.bound()["g-0"][1] == played.bound()["g-1"][1]


@pytest.mark.parametrize(("needs", "placed"), [("4", 2), ("5", 0)])
def test_what_is_reserved_for_members_counts_as_free_for_the_job(needs: str, placed: int) -> None:
    def reserve(name: str) -> dict[str, object]:
        container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name},
            "spec": {
                "owners": [{"labelSelector": {"matchLabels": {"app": "g"}}}],
                "template": {"spec": {"containers": [container]}},
            },
        }

    late = [pod_group("g", 2, at="5s", minResources={"cpu": needs})]
    late += gang("g", 2, 2, at="5s", labels={"app": "g"})
    played = play(node("n1", 2), node("n2", 2), reserve("r1"), reserve("r2"), late)
    assert len(played.bound()) == placed


def test_a_gang_is_tried_again_whatever_was_to_blame_before() -> None:
    """It was told that the node is cordoned; now the node is full, until a pod there ends."""
    running = pod("running", 4, nodeName="n1", runs_for="60s")
    members = [*gang("g", 2), pod("g-2", 1, group="g", at="10s")]
    cordon = {"kind": "Node", "name": "n1", "merge": {"spec": {"unschedulable": True}}}
    uncordon = {"kind": "Node", "name": "n1", "merge": {"spec": {"unschedulable": False}}}
    steps = [step("5s", patch=cordon), step("30s", patch=uncordon)]
    played = play(node("n1", 4), running, pod_group("g", 3), members, steps, until=100)
    assert played.times("g-0", "g-1", "g-2") == [60, 60, 60]


# A start that was interrupted


def half_started(
    waiting_since: str, bound_at: str = "2026-01-01T00:01:00Z", plugins: tuple[str, ...] = ()
) -> Driver:
    """Two nodes, of which one is free; a gang of two, of which one is bound."""
    driver = Driver((Setup(extra=("Coscheduling", *plugins)),))
    driver.scheduler._controllers.append(PodGroups(driver.scheduler.cluster))
    driver.add(*(make_node(name).allocatable(cpu="2", memory="8Gi").obj() for name in ("n1", "n2")))
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound_at}
    bound = make_pod("g-0").cpu("2").group("g").on("n1").created("2026-01-01T00:00:30Z")
    if bound_at:
        bound.status(conditions=[condition])
    driver.add(make_pod("g-1").cpu("2").group("g").created(waiting_since).obj(), bound.obj())
    return driver.add(make_pod_group("g").min_member(2).obj())


@pytest.mark.parametrize(
    ("since", "bound_at", "first"),
    [
        ("2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z", "g-1"),
        ("2026-01-01T00:01:00Z", "2026-01-01T00:01:00Z", "g-1"),
        ("2026-01-01T00:01:01Z", "2026-01-01T00:01:00Z", "high"),  # it replaces one that was lost
        ("2026-01-01T00:00:30Z", "", "g-1"),  # not bound before it was created
        ("2026-01-01T00:00:31Z", "", "high"),
    ],
)
def test_who_leads_next_finishes_the_start_of_a_gang_first(
    since: str, bound_at: str, first: str
) -> None:
    driver = half_started(since, bound_at).add(make_pod("high").cpu("2").priority(100).obj())
    assert driver.binds() == {first: "n2"}


@pytest.mark.parametrize(
    ("phase", "bound_at", "first"),
    [
        ("Failed", "2026-01-01T00:01:00Z", "high"),
        ("Succeeded", "2026-01-01T00:01:00Z", "high"),
        ("Failed", "2026-01-01T00:00:20Z", "g-1"),  # of a start before this one
        ("Failed", "", "g-1"),  # it never had a place
    ],
)
def test_a_gang_that_had_all_it_needs_before_a_member_ended_was_not_interrupted(
    phase: str, bound_at: str, first: str
) -> None:
    driver = half_started("2026-01-01T00:00:30Z")
    ended = make_pod("g-2").cpu("2").group("g").created("2026-01-01T00:00:10Z")
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound_at}
    ended.status(phase=phase, conditions=[condition] if bound_at else [])
    if bound_at:
        ended.on("n1")
    driver.add(ended.obj()).add(make_pod("high").cpu("2").priority(100).obj())
    assert driver.binds() == {first: "n2"}


@pytest.mark.parametrize(("since", "first"), [("00", "g-1"), ("02", "high")])
def test_nominated_nodes_do_not_keep_an_interrupted_start_from_its_place(
    since: str, first: str
) -> None:
    """All of the gang was to make room for a pod, but the scheduler ended before it was marked."""
    driver = half_started(f"2026-01-01T00:01:{since}Z")
    driver.add(make_pod("high").cpu("2").priority(100).nominated("n2").obj())
    assert driver.binds() == {first: "n2"}
    pods = {pod.name: pod for pod in driver.scheduler.cluster.pods.values()}
    assert not pods["high"].nominated


@pytest.mark.parametrize("start", ["2025-12-31T23:59:00Z", "2026-01-01T00:01:00Z"])
@pytest.mark.parametrize(("since", "bound"), [("2025-12-31T23:50:00Z", 0), ("", None)])
def test_planned_reservations_do_not_keep_an_interrupted_start_from_its_place(
    since: str, bound: float | None, start: str
) -> None:
    """The one that starts later, or should have started, was planned while no scheduler led."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-12-31T23:55:00Z"}
    created = [{"creationTimestamp": each} if each else {} for each in ("2025-12-31T23:50:00Z", since)]
    first = pod("g-0", 2, group="g", nodeName="n1", metadata=created[0])
    first["status"] = {"conditions": [condition]}
    given = [
        *(node("n1", 2), node("n2", 2), pod_group("g", 2)),
        *(first, pod("g-1", 2, group="g", metadata=created[1])),
        reservation("w", 2, "w", annotations={"holdfast.io/starts-at": start}),
    ]
    assert play(given, until=30).times("g-1") == [bound]


@pytest.mark.parametrize(("feasible", "bound"), [("True", None), ("Unknown", 0)])
def test_a_certain_plan_that_drains_its_node_is_kept_from_an_interrupted_start(
    feasible: str, bound: float | None
) -> None:
    """It was made with the places of the gang in mind."""
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-12-31T23:55:00Z"}
    created = {"creationTimestamp": "2025-12-31T23:50:00Z"}
    first = pod("g-0", 2, group="g", nodeName="n1", metadata=created)
    first["status"] = {"conditions": [condition]}
    starts = {"holdfast.io/starts-at": "2025-12-31T23:59:00Z", "holdfast.io/lead": "0s"}
    planned = reservation("w", 2, "w", annotations=starts)
    conditions = [
        {"type": "Planned", "status": "True", "reason": "Draining"},
        {"type": "Feasible", "status": feasible, "reason": "Planned"},
    ]
    planned["status"] = {"phase": "Pending", "nodeName": "n2", "conditions": conditions}
    second = pod("g-1", 2, group="g", metadata=created)
    given = [node("n1", 2), node("n2", 2), pod_group("g", 2), first, second, planned]
    assert play(given, until=30).times("g-1") == [bound]


def test_an_interrupted_start_takes_no_nominated_node_that_is_of_no_use_to_it() -> None:
    driver = half_started("2026-01-01T00:01:00Z", plugins=("DefaultPreemption",))
    why = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    driver.add(make_pod("gone").cpu("2").on("n2").deleted().status(conditions=[why]).obj())
    driver.add(make_pod("high").cpu("2").priority(100).nominated("n2").obj())
    assert driver.binds() == {}
    pods = {pod.name: pod for pod in driver.scheduler.cluster.pods.values()}
    assert pods["high"].nominated == "n2"


def test_a_pod_that_waits_longer_than_its_gang_runs_has_no_precedence_once_that_was_whole() -> None:
    driver = half_started("2026-01-01T00:00:00Z")
    driver.add(make_pod("g-2").cpu("2").group("g").created("2026-01-01T00:00:00Z").obj())
    assert driver.binds() == {"g-1": "n2"}
    driver.confirm(make_pod("g-1").obj()).delete(make_pod("g-1").obj())
    driver.add(make_pod("high").cpu("2").priority(100).obj())
    assert driver.binds() == {"high": "n2"}


def test_a_bind_that_fails_is_tried_again_before_others_get_the_place() -> None:
    driver = half_started("2026-01-01T00:00:00Z")
    assert driver.binds(100.0) == {"g-1": "n2"}
    driver.add(make_pod("high").cpu("2").priority(100).obj())
    now = 100.0
    for back_off in (1, 2, 4, 8, 10, 10, 10):
        driver.refuse(make_pod("g-1").obj(), transient=True)
        assert driver.binds(now) == {}
        assert driver.record(make_pod("g-1").obj()).phase is Phase.ASSUMED  # nothing is free meanwhile
        assert driver.scheduler.next_timer() == now + back_off
        now += back_off
        assert driver.binds(now - 0.1) == {}
        assert driver.binds(now) == {"g-1": "n2"}
    driver.confirm(make_pod("g-1").obj())
    assert driver.binds(now + 600) == {}


def test_a_bind_that_fails_for_too_long_is_given_up() -> None:
    driver = half_started("2026-01-01T00:00:00Z")
    assert driver.binds(100.0) == {"g-1": "n2"}
    g1 = make_pod("g-1").obj()
    driver.add(make_pod("high").cpu("2").priority(100).obj())
    driver.refuse(g1, message="timeout", transient=True)
    retried = "timeout: binding to node n2 is retried, because PodGroup/default/g needs this pod"
    assert messages(driver.round(100.0))["g-1"] == retried
    assert driver.binds(101.0) == {"g-1": "n2"}
    driver.now = 220.0
    driver.refuse(g1, message="timeout", transient=True)
    decisions = driver.round(220.0)
    assert {each.pod.name: each.node for each in decisions if isinstance(each, Bind)} == {"high": "n2"}
    assert messages(decisions)["g-1"] == "timeout: binding to node n2 failed 2 times within 120 s"
    assert [each.node for each in decisions if isinstance(each, Nominate)] == [""]


def messages(decisions: list[Decision]) -> dict[str, str]:
    return {each.pod.name: each.message for each in decisions if isinstance(each, SetPodScheduled)}


def test_a_bind_that_is_rejected_is_not_retried_on_the_same_node() -> None:
    driver = half_started("2026-01-01T00:00:00Z")
    assert driver.binds(100.0) == {"g-1": "n2"}
    driver.add(make_pod("high").cpu("2").priority(100).obj())
    driver.refuse(make_pod("g-1").obj())
    assert driver.record(make_pod("g-1").obj()).phase is Phase.PENDING
    assert driver.binds(100.0) == {"high": "n2"}


@pytest.mark.parametrize("what", ["node deleted", "node shrunk", "member deleted", "pod deleted"])
def test_a_place_is_not_kept_when_it_is_of_no_use(what: str) -> None:
    driver = half_started("2026-01-01T00:00:00Z")
    assert driver.binds(100.0) == {"g-1": "n2"}
    g1 = make_pod("g-1").cpu("2").group("g").created("2026-01-01T00:00:00Z")
    driver.refuse(g1.obj(), transient=True)
    n2 = make_node("n2")
    if what == "node deleted":
        # A node of the same name is another node.
        driver.delete(n2.allocatable(cpu="2", memory="8Gi").obj())
        driver.add(n2.allocatable(cpu="2", memory="8Gi").obj())
    elif what == "node shrunk":
        driver.update(n2.allocatable(cpu="1", memory="8Gi").obj())
    elif what == "member deleted":
        driver.delete(make_pod("g-0").on("n1").obj())
    else:
        driver.delete(g1.obj())
    assert driver.binds(100.5) == {}
    assert driver.scheduler.bind_retries.next_due() is None
    known = driver.scheduler.cluster.pods.get(g1.obj().metadata.uid)
    assert known is None or known.phase is Phase.PENDING


def test_an_interrupted_start_is_tried_before_its_back_off_is_over() -> None:
    """Another pod would take the capacity that was freed."""
    taken = make_pod("taken").cpu("2").on("n2").obj()
    driver = half_started("2026-01-01T00:01:00Z").add(taken)
    assert driver.binds(100.0) == {}
    driver.delete(taken).add(make_pod("high").cpu("2").priority(100).obj())
    assert driver.binds(100.1) == {"g-1": "n2"}


@pytest.mark.parametrize("nominated", ["n3", ""])
@pytest.mark.parametrize("phase", ["Waiting", ""])
def test_an_interrupted_start_has_its_place_before_preemption_holds_after_a_restart(
    nominated: str, phase: str
) -> None:
    """The hold was made beside the member, and waits for a victim to end, or has no status yet. Whether
    the bind of the member was tried and failed, so that its nominated node is written, does not
    matter."""
    driver = half_started("2026-01-01T00:01:00Z", plugins=("DefaultPreemption", "Reservation"))
    driver.add(make_node("n3").allocatable(cpu="4", memory="8Gi").obj())
    driver.add(make_pod("taken").cpu("2").on("n2").obj(), make_pod("low").cpu("1").on("n3").obj())
    high = make_pod("high").cpu("2").priority(100).nominated("n3").obj()
    driver.add(high)
    record = driver.record(high)
    hold = preemption_hold(record, hold_template(record.cls), "n3", 1, lambda name: False)
    hold.metadata.uid = "hold"
    hold.status.phase, hold.status.node_name = phase, "n3" if phase else ""
    driver.add(hold)
    g1 = make_pod("g-1").cpu("2").group("g").created("2026-01-01T00:01:00Z")
    if nominated:
        g1.nominated(nominated)
    assert driver.update(g1.obj()).binds() == {"g-1": "n3"}


def test_a_bind_that_fails_is_tried_elsewhere_if_the_gang_can_do_without() -> None:
    driver = Driver((Setup(extra=("Coscheduling",)),))
    driver.add(make_node("n1").allocatable(cpu="2", memory="8Gi").obj())
    driver.add(make_pod_group("g").min_member(1).obj())
    driver.add(*(make_pod(f"g-{i}").cpu("1").group("g").obj() for i in range(2)))
    assert driver.binds(1.0) == {"g-0": "n1", "g-1": "n1"}
    driver.confirm(make_pod("g-0").obj()).refuse(make_pod("g-1").obj())
    assert driver.record(make_pod("g-1").obj()).phase is Phase.PENDING


@pytest.mark.parametrize("hold", ["amount", "node"])
@pytest.mark.parametrize(
    ("since", "binds"),
    [("2026-01-01T00:00:59Z", {"g-1": "n2"}), ("2026-01-01T00:01:01Z", {})],
)
def test_a_hold_that_waits_does_not_keep_it_from_its_place(
    hold: str, since: str, binds: dict[str, str]
) -> None:
    """Held is what two pods use that never end: one of them waits for the rest of its gang."""
    reserve = {"name": "reserve", "arguments": {"hold": hold, "reservedNodePercent": 100}}
    driver = Driver(
        (Setup(extra=("Coscheduling", "Reservation")),),
        actions=[{"name": "allocate"}, {"name": "backfill"}, reserve],
    )
    driver.scheduler._controllers.append(PodGroups(driver.scheduler.cluster))
    driver.add(make_node("n2").allocatable(cpu="2", memory="8Gi").obj())
    big = make_pod("big").cpu("2").created("2026-01-01T00:00:00Z").obj()
    driver.add(big)
    held = starvation_hold(driver.record(big), "n2", "held-for-big")
    held.metadata.uid = "held"
    held.status.phase, held.status.node_name = "Waiting", "n2"
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    }
    bound = make_pod("g-0").cpu("1").group("g").on("n2").status(conditions=[condition])
    driver.add(held, make_pod("g-1").cpu("1").group("g").created(since).obj(), bound.obj())
    driver.add(make_pod_group("g").min_member(2).obj())
    assert driver.binds(120.0) == binds


@pytest.mark.parametrize("phase", ["Waiting", "Available"])
@pytest.mark.parametrize(
    ("since", "is_early"),
    [("2026-01-01T00:00:59Z", True), ("2026-01-01T00:01:01Z", False)],
)
def test_a_waiting_reservation_does_not_keep_an_interrupted_start_from_its_place(
    phase: str, since: str, is_early: bool
) -> None:
    """The reservation waits because the scheduler had a place for the whole gang when it came."""
    setup = Setup(extra=("Coscheduling", "Reservation"))
    driver = Driver((setup,))
    cluster = driver.scheduler.cluster
    driver.scheduler._controllers += [ReservationLifecycle(cluster), PodGroups(cluster)]
    driver.add(make_node("n1").allocatable(cpu="4", memory="8Gi").obj())
    waiting = make_reservation("w").requests({"cpu": "3"}).owner_labels({"app": "w"})
    waiting = waiting.pre_allocation().status(phase=phase, nodeName="n1")
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    }
    bound = make_pod("g-0").cpu("1").group("g").on("n1").status(conditions=[condition])
    driver.add(waiting.obj(), make_pod("g-1").cpu("1").group("g").created(since).obj(), bound.obj())
    driver.add(make_pod_group("g").min_member(2).obj())
    goes_first = is_early and phase == "Waiting"
    assert driver.binds(120.0) == ({"g-1": "n1"} if goes_first else {})
    reservation = cluster.reservations.known[waiting.obj().metadata.uid]
    assert reservation.waiting is goes_first
    assert cluster.nodes.claimed.item(CPU, 0) == (5000 if goes_first else 4000)


def test_the_preemption_hold_of_an_interrupted_start_becomes_available_for_it() -> None:
    """A standby saw it Waiting, and takes over after the others of the gang were bound."""
    driver = Driver((Setup(extra=("Coscheduling", "DefaultPreemption", "Reservation")),))
    cluster = driver.scheduler.cluster
    driver.scheduler._controllers += [ReservationLifecycle(cluster), PodGroups(cluster)]
    driver.add(make_node("n1").allocatable(cpu="4", memory="8Gi").obj())
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    }
    bound = make_pod("g-0").cpu("2").group("g").priority(50).on("n1").status(conditions=[condition])
    rest = make_pod("g-1").cpu("2").group("g").priority(50).nominated("n1")
    rest = rest.created("2026-01-01T00:00:59Z")
    uid = rest.obj().metadata.uid
    hold = make_reservation("hold").requests({"cpu": "2"}).node("n1").pre_allocation()
    hold = hold.owner(object={"kind": "Pod", "namespace": "default", "name": "g-1", "uid": uid})
    hold = hold.label("holdfast.io/preemptor-uid", uid).status(phase="Waiting", nodeName="n1")
    driver.add(hold.obj(), rest.obj(), bound.obj(), make_pod_group("g").min_member(2).obj())
    assert driver.binds(120.0) == {"g-1": "n1"}


# Members that have to make room


def preemptable_gang(assumed: bool = False) -> Driver:
    """Three members on a node each, of which the gang needs two; the third may be bound only soon."""
    driver = Driver((Setup(extra=("Coscheduling", "DefaultPreemption")),))
    names = ("n0", "n1", "n2")
    driver.add(*(make_node(name).allocatable(cpu="2", memory="8Gi").obj() for name in names))
    driver.add(make_pod_group("g").min_member(2).obj())
    driver.add(*(make_pod(f"g-{i}").cpu("2").group("g").on(f"n{i}").obj() for i in range(2)))
    third = make_pod("g-2").cpu("2").group("g")
    if not assumed:
        return driver.add(third.on("n2").obj())
    driver.add(third.obj())
    assert driver.binds() == {"g-2": "n2"}
    return driver


def victims_for(driver: Driver, name: str, node_name: str) -> list[str]:
    """Whom a pod preempts that is to go to that node."""
    preemptor = make_pod(name).cpu("2").priority(100).node_selector({HOSTNAME: node_name})
    decisions = driver.add(preemptor.obj()).round()
    return sorted(d.pod.name for d in decisions if isinstance(d, Preempt))


@pytest.mark.parametrize(
    ("since", "victims"),
    [
        ("2026-01-01T00:00:30Z", ["g-0", "g-1"]),  # the gang never ran
        ("2026-01-01T00:02:00Z", ["g-1"]),  # it replaces one that was lost, and the others run on
    ],
)
def test_all_bound_members_of_an_interrupted_start_are_preempted_together(
    since: str, victims: list[str]
) -> None:
    driver = Driver((Setup(extra=("Coscheduling", "DefaultPreemption")),))
    driver.scheduler._controllers.append(PodGroups(driver.scheduler.cluster))
    driver.add(*(make_node(f"n{i}").allocatable(cpu="2", memory="8Gi").obj() for i in range(2)))
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    }
    for i in range(2):
        bound = make_pod(f"g-{i}").cpu("2").group("g").on(f"n{i}").created("2026-01-01T00:00:30Z")
        driver.add(bound.status(conditions=[condition]).obj())
    driver.add(make_pod("g-2").cpu("2").group("g").created(since).obj())
    driver.add(make_pod_group("g").min_member(3).obj())
    assert victims_for(driver, "high", "n1") == victims


@pytest.mark.parametrize("assumed", [False, True])
def test_a_victim_is_on_its_way_out_though_its_object_does_not_say_so_yet(assumed: bool) -> None:
    """The kubelet, or the bind itself, updates the pod before the condition of a victim is written."""
    driver = preemptable_gang(assumed)
    assert victims_for(driver, "high-0", "n2") == ["g-2"]
    third = make_pod("g-2").cpu("2").group("g").on("n2")
    driver.update(third.phase("Running").obj())
    assert victims_for(driver, "high-1", "n1") == ["g-0", "g-1"]


def test_members_whose_bind_is_not_confirmed_do_not_make_others_superfluous() -> None:
    """Their bind may fail: without the victim, the gang would be left with less than it needs."""
    driver = preemptable_gang(assumed=True)
    assert victims_for(driver, "high", "n1") == ["g-0", "g-1", "g-2"]
    other = preemptable_gang(assumed=True).confirm(make_pod("g-2").obj())
    assert victims_for(other, "high", "n1") == ["g-1"]


def test_a_victim_whose_bind_is_refused_is_not_tried_again_unless_it_stays() -> None:
    driver = preemptable_gang(assumed=True)
    assert victims_for(driver, "high", "n2") == ["g-2"]
    third = make_pod("g-2").cpu("2").group("g")
    driver.refuse(third.obj()).add(make_node("n3").allocatable(cpu="2", memory="8Gi").obj())
    assert driver.binds(100.0) == {"high": "n2"}
    driver.update(third.label("seen", "again").obj())  # it does not say yet that it is deleted
    assert driver.binds(200.0) == {}
    decision = next(d for d in driver.decisions if isinstance(d, Preempt))
    driver.feed(write_refused(decision, "no"))
    assert driver.binds(300.0) == {"g-2": "n3"}


def test_a_victim_that_is_deleted_though_its_eviction_is_refused_is_not_tried_again() -> None:
    driver = preemptable_gang(assumed=True)
    assert victims_for(driver, "high", "n2") == ["g-2"]
    third = make_pod("g-2").cpu("2").group("g")
    driver.refuse(third.obj()).update(third.deleted().obj())
    decision = next(d for d in driver.decisions if isinstance(d, Preempt))
    driver.feed(write_refused(decision, "no"))
    driver.add(make_node("n3").allocatable(cpu="2", memory="8Gi").obj())
    assert driver.binds(300.0) == {"high": "n2"}

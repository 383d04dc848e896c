"""After an edit that helps what is pending, the outcome is that of a restart of the scheduler, which
tries everything again."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from harness.claim_objects import (
    allocation,
    claim_template,
    claiming_pod,
    device_class,
    generated,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import (
    Raw,
    core_group,
    core_pods,
    gang,
    in_queue,
    node,
    pod,
    queue,
    reservation,
    running,
)
from harness.objects import pod_group as volcano_group
from harness.world import World
from scheduler.reservations.preempting_reservations import TRIO, high, low, member

SPARED = {"scheduling.koordinator.sh/disable-preemptible": "true"}
NOT_PREEMPTABLE = {"volcano.sh/preemptable": "false"}
SELECTS = {
    "scheduling.koordinator.sh/reservation-affinity": '{"reservationSelector": {"tier": "gold"}}'
}
PAIR = {**TRIO, "min-available": 2, "total-number": 2}
PRIORITY = "koordinator.sh/priority"

N = node("n", cpu="4")
M = node("m", cpu="1")
LARGE = node("n", cpu="16")


class Edit(NamedTuple):
    """Fields of an object by their path, parts joined by two underscores; without any it is deleted."""

    kind: str
    name: str
    fields: Raw

    def apply(self, world: World) -> None:
        if self.fields:
            world.edit(self.kind, self.name, **self.fields)
        else:
            world.delete(self.kind, self.name)

    def write(self, world: World) -> None:
        """Edits the object while no scheduler runs."""
        if not self.fields:
            del world.objects[self.kind, self.name]
            return
        for path, value in self.fields.items():
            *parts, last = path.split("__")
            at = world.objects[self.kind, self.name]
            for part in parts:
                at = at.setdefault(part, {})
            at[last] = value


def edit(kind: str, name: str, **fields: Any) -> Edit:
    return Edit(kind, name, fields)


class Case(NamedTuple):
    start: list[Raw]
    waiting: list[Raw]
    """Comes after the rest, and is pending until the edit."""
    edit: Edit


def on(raw: Raw, name: str = "n") -> Raw:
    return running(raw, name)


def preemptor(**more: Any) -> Raw:
    return pod("p", cpu="4", priority=10, **more)


def pod_group(name: str, least: int, annotations: Raw | None = None, **spec: Any) -> Raw:
    raw = volcano_group(name, least, **spec)
    raw["metadata"] = {"name": name, "namespace": "default", "annotations": annotations or {}}
    return raw


def named_gang(least: int) -> Raw:
    prefix = "gang.scheduling.koordinator.sh/"
    return {f"{prefix}name": "g", f"{prefix}min-available": str(least)}


def priority_class(name: str, value: int) -> Raw:
    api = "scheduling.k8s.io/v1"
    return {"apiVersion": api, "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def user(**more: str) -> Raw:
    return pod("user", cpu="1", labels={"app": "low", **more})


def gang_with_spared_mate(**more: Any) -> list[Raw]:
    """A gang of which one member is not preemptible, on another node."""
    victim, mate = pod("g-0", cpu="4", group="g"), pod("g-1", cpu="1", group="g", labels=SPARED)
    return [N, M, pod_group("g", 2, **more), on(victim), on(mate, "m")]


def in_default(raw: Raw) -> Raw:
    raw["metadata"]["namespace"] = "default"
    return raw


def core_gang(**more: Any) -> list[Raw]:
    group = in_default(core_group("g", 2, **more))
    victim, mate = core_pods("g", 2, cpu=1)
    victim["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
    mate["metadata"]["labels"] = SPARED
    return [N, M, group, on(victim), on(mate, "m")]


def in_queues(*victims: Raw) -> list[Raw]:
    return [N, queue("a"), queue("b", reclaimable=False), *victims]


def group_of(cls: str) -> list[Raw]:
    return [N, pod_group("g", 1, priorityClassName=cls), on(pod("g-0", cpu="4", group="g"))]


def holding_device(**more: Any) -> list[Raw]:
    """A reservation that holds the only device."""
    entries = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    held = reservation("r", cpu="1", pod={"resourceClaims": entries}, allocateOnce=False, **more)
    return [
        device_class(),
        LARGE,
        resource_slice("n", 1),
        claim_template("gpus", request("r", 1)),
        held,
    ]


def device_owner(app: str = "a") -> list[Raw]:
    made, claim = generated("p", request("r", 1), app=app, cpu="1")
    return [claim, made]


def owners(app: str) -> list[Raw]:
    return [{"labelSelector": {"matchLabels": {"app": app}}}]


TAINT = [{"key": "k", "effect": "NoSchedule"}]

VICTIMS = {
    "a label": Case(
        [N, on(pod("v", cpu="4", labels=SPARED))], [preemptor()], edit("Pod", "v", metadata__labels={})
    ),
    "a label, for a gang": Case(
        [N, on(pod("v", cpu="4", labels=SPARED))],
        [pod_group("g", 2), *gang("g", 2, 2, priority=10)],
        edit("Pod", "v", metadata__labels={}),
    ),
    "an annotation": Case(
        [N, on(pod("v", cpu="4", annotations=NOT_PREEMPTABLE))],
        [preemptor()],
        edit("Pod", "v", metadata__annotations={}),
    ),
    "an annotation of the group": Case(
        [N, pod_group("g", 1, NOT_PREEMPTABLE), on(pod("g-0", cpu="4", group="g"))],
        [preemptor()],
        edit("PodGroup", "g", metadata__annotations={}),
    ),
    "the priority of the group": Case(
        [priority_class("high", 20), priority_class("low", 1), *group_of("high")],
        [preemptor()],
        edit("PodGroup", "g", spec__priorityClassName="low"),
    ),
    "the priority class": Case(
        [priority_class("high", 20), *group_of("high")],
        [preemptor()],
        edit("PriorityClass", "high", value=1),
    ),
    "a pod of a reservation": Case(
        [N, low(), user(**SPARED)], [high()], edit("Pod", "user", metadata__labels={"app": "low"})
    ),
    "a pod of a reservation, that leaves": Case(
        [N, low(), user(**SPARED)], [high()], edit("Pod", "user")
    ),
    "a reservation": Case(
        [N, low(labels=SPARED)],
        [high()],
        edit("Reservation", "low", metadata__labels={PRIORITY: "1"}),
    ),
    "the priority of a reservation": Case(
        [N, low(priority=20)],
        [high()],
        edit("Reservation", "low", metadata__labels={PRIORITY: "1"}),
    ),
    "a device": Case(
        [
            device_class(),
            LARGE,
            resource_slice("n", 1),
            on(claiming_pod("v", "c", cpu="1", labels=SPARED)),
            resource_claim(
                "c", request("r", 1), reserved_for=["v"], allocation=allocation("n", "gpu-0")
            ),
        ],
        [*generated("p", request("r", 1), cpu="1", priority=10)],
        edit("Pod", "v", metadata__labels={}),
    ),
}

MATES = {
    "its label": Case(gang_with_spared_mate(), [preemptor()], edit("Pod", "g-1", metadata__labels={})),
    "it is deleted": Case(gang_with_spared_mate(), [preemptor()], edit("Pod", "g-1")),
    "it ends": Case(gang_with_spared_mate(), [preemptor()], edit("Pod", "g-1", status__phase="Failed")),
    "it leaves the gang": Case(
        gang_with_spared_mate(), [preemptor()], edit("Pod", "g-1", metadata__annotations={})
    ),
    "the victim leaves the gang": Case(
        gang_with_spared_mate(), [preemptor()], edit("Pod", "g-0", metadata__annotations={})
    ),
    "minMember": Case(gang_with_spared_mate(), [preemptor()], edit("PodGroup", "g", spec__minMember=1)),
    "no PodGroup": Case(gang_with_spared_mate(), [preemptor()], edit("PodGroup", "g")),
    "minMember, for a gang": Case(
        gang_with_spared_mate(),
        [pod_group("h", 2), *gang("h", 2, 2, priority=10)],
        edit("PodGroup", "g", spec__minMember=1),
    ),
    "min-available in annotations": Case(
        [
            N,
            M,
            on(pod("g-0", cpu="4", annotations=named_gang(2))),
            on(pod("g-1", cpu="1", annotations=named_gang(2), labels=SPARED), "m"),
        ],
        [preemptor()],
        edit("Pod", "g-1", metadata__annotations=named_gang(1)),
    ),
    "a core PodGroup": Case(
        core_gang(whole=True),
        [preemptor()],
        edit("PodGroup", "g", spec__disruptionMode={"single": {}}),
    ),
    "a third member starts": Case(
        [
            *gang_with_spared_mate(),
            node("k", cpu="1"),
            pod("g-2", cpu="1", group="g", schedulingGates=[{"name": "gate"}]),
        ],
        [preemptor()],
        edit("Pod", "g-2", spec__schedulingGates=[]),
    ),
}

QUEUES = {
    "the victim's": Case(
        in_queues(on(pod("v", cpu="4", annotations=in_queue("b")))),
        [preemptor(annotations=in_queue("a"))],
        edit("Pod", "v", metadata__annotations=in_queue("a")),
    ),
    "of the victim's group": Case(
        in_queues(pod_group("g", 1, queue="b"), on(pod("g-0", cpu="4", group="g"))),
        [preemptor(annotations=in_queue("a"))],
        edit("PodGroup", "g", spec__queue="a"),
    ),
    "the preemptor's": Case(
        in_queues(on(pod("v", cpu="4", annotations=in_queue("b")))),
        [preemptor(annotations=in_queue("a"))],
        edit("Pod", "p", metadata__annotations=in_queue("b")),
    ),
    "of the preemptor's group": Case(
        in_queues(on(pod("v", cpu="4", annotations=in_queue("b")))),
        [pod_group("g", 2, queue="a"), *gang("g", 2, 2, priority=10)],
        edit("PodGroup", "g", spec__queue="b"),
    ),
    "it is reclaimable": Case(
        in_queues(on(pod("v", cpu="4", annotations=in_queue("b")))),
        [pod("p", cpu="2", annotations=in_queue("a"))],
        edit("Queue", "b", spec__reclaimable=True),
    ),
    "a victim of reclaim": Case(
        [N, queue("a"), queue("b"), on(pod("v", cpu="4", annotations=in_queue("b"), labels=SPARED))],
        [pod("p", cpu="2", annotations=in_queue("a"))],
        edit("Pod", "v", metadata__labels={}),
    ),
    "a mate of a victim of reclaim": Case(
        [*gang_with_spared_mate(queue="b"), queue("a"), queue("b")],
        [pod("p", cpu="2", annotations=in_queue("a"))],
        edit("PodGroup", "g", spec__minMember=1),
    ),
    "a victim in a full queue": Case(
        [
            LARGE,
            queue("a", capability={"cpu": "4"}),
            on(pod("v", cpu="4", annotations=in_queue("a"), labels=SPARED)),
        ],
        [preemptor(annotations=in_queue("a"))],
        edit("Pod", "v", metadata__labels={}),
    ),
    "its capability": Case(
        [LARGE, queue("a", capability={"cpu": "1"})],
        [pod("p", cpu="2", annotations=in_queue("a"))],
        edit("Queue", "a", spec__capability={"cpu": "4"}),
    ),
    "it is open": Case(
        [LARGE, queue("a", state="Closed")],
        [pod_group("g", 2, queue="a"), *gang("g", 2)],
        edit("Queue", "a", status={"state": "Open"}),
    ),
    "the guarantee of another": Case(
        [N, queue("a"), queue("b", guarantee={"resource": {"cpu": "3"}})],
        [pod("p", cpu="2", annotations=in_queue("a"))],
        edit("Queue", "b", spec__guarantee={"resource": {"cpu": "1"}}),
    ),
    "a mate in a full queue": Case(
        [*gang_with_spared_mate(queue="a"), queue("a", capability={"cpu": "5"})],
        [preemptor(annotations=in_queue("a"))],
        edit("PodGroup", "g", spec__minMember=1),
    ),
}

PREEMPTORS = {
    "minMember": Case(
        [N, on(pod("v", cpu="4"))],
        [pod_group("g", 2), *gang("g", 2, 4, priority=10)],
        edit("PodGroup", "g", spec__minMember=1),
    ),
    "the priority of its group": Case(
        [N, priority_class("high", 20), on(pod("v", cpu="4", priority=15))],
        [pod_group("g", 2), *gang("g", 2, 2)],
        edit("PodGroup", "g", spec__priorityClassName="high"),
    ),
    "the size of a gang of reservations": Case(
        [node("n", cpu="8"), low("low-0"), low("low-1")],
        [member("high-0", TRIO), member("high-1", TRIO)],
        edit(
            "Reservation",
            "high-1",
            metadata__annotations=dict(member("high-1", PAIR)["metadata"]["annotations"]),
        ),
    ),
    "minCount of a core PodGroup": Case(
        [N, on(pod("v", cpu="4"))],
        [in_default(core_group("g", 2, priority=10)), *core_pods("g", 2, cpu=4, priority=10)],
        edit("PodGroup", "g", spec__schedulingPolicy={"gang": {"minCount": 1}}),
    ),
    "the priority of a reservation": Case(
        [N, low(priority=20)],
        [high()],
        edit(
            "Reservation",
            "high",
            metadata__labels={PRIORITY: "30", "scheduling.koordinator.sh/can-preempt": "true"},
        ),
    ),
    "a reservation": Case(
        [N, low()],
        [high(can="")],
        edit(
            "Reservation",
            "high",
            metadata__labels={PRIORITY: "10", "scheduling.koordinator.sh/can-preempt": "true"},
        ),
    ),
}

OWNERS = {
    "its size, for others": Case(
        [N, reservation("r", app="b", allocateOnce=False)],
        [pod("p", cpu="2", app="a")],
        edit("Reservation", "r", spec__template=reservation("r", "1", app="b")["spec"]["template"]),
    ),
    "its size, for owners": Case(
        [N, reservation("r", "2", allocateOnce=False, allocatePolicy="Restricted")],
        [pod("p", cpu="3", app="a")],
        edit("Reservation", "r", spec__template=reservation("r", "4")["spec"]["template"]),
    ),
    "its end": Case(
        [N, reservation("r", app="b", allocateOnce=False)],
        [pod("p", cpu="2", app="a")],
        edit("Reservation", "r", spec__ttl="1s"),
    ),
    "owners": Case(
        [N, reservation("r", app="b", allocateOnce=False)],
        [pod("p", cpu="2", app="a")],
        edit("Reservation", "r", spec__owners=owners("a")),
    ),
    "taints": Case(
        [N, reservation("r", taints=TAINT, allocateOnce=False)],
        [pod("p", cpu="2", app="a")],
        edit("Reservation", "r", spec__taints=[]),
    ),
    "unschedulable": Case(
        [N, reservation("r", unschedulable=True, allocateOnce=False)],
        [pod("p", cpu="2", app="a")],
        edit("Reservation", "r", spec__unschedulable=False),
    ),
    "the owner's labels": Case(
        [N, reservation("r", allocateOnce=False)],
        [pod("p", cpu="2", app="b")],
        edit("Pod", "p", metadata__labels={"app": "a"}),
    ),
    "owners, of a gang": Case(
        [N, reservation("r", app="b", allocateOnce=False)],
        [pod_group("g", 2), *gang("g", 2, app="a")],
        edit("Reservation", "r", spec__owners=owners("a")),
    ),
    "its labels": Case(
        [N, reservation("r", allocateOnce=False)],
        [pod("p", cpu="2", app="a", annotations=SELECTS)],
        edit("Reservation", "r", metadata__labels={"tier": "gold"}),
    ),
    "owners, of a device": Case(
        holding_device(app="b"), device_owner(), edit("Reservation", "r", spec__owners=owners("a"))
    ),
    "taints, of a device": Case(
        holding_device(taints=TAINT), device_owner(), edit("Reservation", "r", spec__taints=[])
    ),
    "unschedulable, of a device": Case(
        holding_device(unschedulable=True),
        device_owner(),
        edit("Reservation", "r", spec__unschedulable=False),
    ),
    "the owner's labels, of a device": Case(
        holding_device(), device_owner("b"), edit("Pod", "p", metadata__labels={"app": "a"})
    ),
    "the reservation is deleted, of a device": Case(
        holding_device(app="b"), device_owner(), edit("Reservation", "r")
    ),
}

CASES = {
    f"{what}: {name}": case
    for what, cases in (
        ("victim", VICTIMS),
        ("mate of the victim", MATES),
        ("queue", QUEUES),
        ("preemptor", PREEMPTORS),
        ("reservation", OWNERS),
    )
    for name, case in cases.items()
}


State = dict[tuple[str, str], str]


def state(world: World) -> State:
    """Where the pods are, and the phases of reservations."""
    found = {}
    for kind, name in world.objects:
        if kind == "Pod":
            found[kind, name] = world.node_of(name)
        elif kind == "Reservation":
            found[kind, name] = world.phase(name)
    return found


def _without(state: State, edit: Edit) -> State:
    """The state if the edit changes nothing but its object."""
    return {key: where for key, where in state.items() if edit.fields or key != (edit.kind, edit.name)}


def before_the_edit(case: Case) -> World:
    return World(*deepcopy(case.start)).wait(60).put(*deepcopy(case.waiting)).wait(60)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_edit_helps_as_a_restart_does(case: Case) -> None:
    edited, restarted = before_the_edit(case), before_the_edit(case)
    before = state(edited)
    case.edit.apply(edited)
    case.edit.write(restarted)
    restarted.restart()
    outcome = state(restarted.wait(60))
    assert outcome != _without(before, case.edit), "the edit does not help"
    assert state(edited.wait(60)) == outcome


@pytest.mark.parametrize("is_gang", [False, True])
def test_a_restart_soon_after_pods_were_created_keeps_their_order(is_gang: bool) -> None:
    """The scheduler then sees all of them at one moment: a name decides only between equal ages."""
    world = World(node("n1", 4), pod("busy", 4))
    for name in ("z", "a"):
        world.wait(1)
        members = [volcano_group(name, 2), *gang(name, 2, 2)] if is_gang else [pod(name, 4)]
        for raw in members:
            raw["metadata"].setdefault("namespace", "default")
        world.put(*members)
    world.restart()
    world.delete("Pod", "busy").wait(30)
    assert world.node_of("z-0" if is_gang else "z") == "n1"

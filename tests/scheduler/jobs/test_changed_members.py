"""A pending pod whose job or queue is edited is scheduled by what its object says now.

Each scenario ends the same with a restart of the scheduler after the edit.
"""

from typing import Any

import pytest

from harness.objects import GROUP, SIM, VOLCANO, Raw, node, pod, pod_group
from harness.scenarios import play, step

GANG = "gang.scheduling.koordinator.sh/"
QUEUE = "scheduling.volcano.sh/queue-name"
BOTH = '["default/p", "default/q"]'


def edit(name: str, annotations: dict[str, str | None]) -> Raw:
    merge = {"metadata": {"annotations": annotations}}
    return step("5s", patch={"kind": "Pod", "name": name, "namespace": "default", "merge": merge})


def members(cpu: int = 3, **annotations: str) -> list[Raw]:
    given = {GANG + key.replace("_", "-"): value for key, value in annotations.items()}
    return [pod(name, cpu, annotations={k: v.format(name) for k, v in given.items()}) for name in "pq"]


def edits(**annotations: str | None) -> list[Raw]:
    given = {GANG + key.replace("_", "-"): value for key, value in annotations.items()}
    return [edit(name, given) for name in "pq"]


def queue(name: str, cpu: str) -> Raw:
    spec = {"capability": {"cpu": cpu}}
    return {"apiVersion": VOLCANO, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


LATE = node("n", 4, annotations={SIM + "at": "10s"})


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ([LATE, members(name="g", min_available="2"), edits(min_available="1")], {"p": 10}),
        ([LATE, members(name="g", min_available="1"), edits(min_available="2")], {}),
        ([LATE, members(name="{}", min_available="1"), edits(groups=BOTH)], {}),
        ([LATE, members(name="{}", min_available="1", groups=BOTH), edits(groups=None)], {"p": 10}),
        ([LATE, members(name="g", min_available="2"), edits(name=None)], {"p": 10}),
        ([LATE, members(), edits(name="g", min_available="2")], {}),
        # The node is there already: the edit itself has to wake up the pods.
        ([node("n", 4), members(name="g", min_available="2"), edits(min_available="1")], {"p": 5}),
        ([node("n", 4), members(name="g", min_available="2"), edits(name=None)], {"p": 5}),
        (
            [
                [node("n", 4), pod_group("g", 2), pod_group("h", 2)],
                [pod("p", 1, group="g"), pod("q", 1, group="h")],
                edit("p", {GROUP: "h"}),
            ],
            {"p": 5, "q": 5},
        ),
        # The leader leaves a gang, which is complete without it.
        (
            [
                [LATE, pod_group("g", 2)],
                [pod(name, 2, group="g") for name in "pqr"],
                edit("p", {GROUP: None}),
            ],
            {"q": 10, "r": 10},
        ),
        (
            [
                node("n", 4),
                queue("a", "1"),
                pod("p", 3, annotations={QUEUE: "a"}),
                edit("p", {QUEUE: None}),
            ],
            {"p": 5},
        ),
        (
            [
                [node("n", 4), queue("a", "1"), queue("b", "4")],
                pod("p", 3, annotations={QUEUE: "a"}),
                edit("p", {QUEUE: "b"}),
            ],
            {"p": 5},
        ),
    ],
)
def test_an_edit_counts_at_once(given: list[Any], bound: dict[str, float], restarts: bool) -> None:
    restart = [step("5s", restart="scheduler")] if restarts else []
    played = play(*given, restart, until=60)
    assert {name: at for name, (at, _) in played.bound().items()} == bound


@pytest.mark.parametrize(("old", "young", "bound"), [(1, 3, []), (3, 2, ["old", "young"])])
def test_members_that_differ_count_the_same_after_a_restart(
    old: int, young: int, bound: list[str]
) -> None:
    """The settings of the youngest member are those of the gang."""

    def member(name: str, least: int, created: str) -> Raw:
        settings = {GANG + "name": "g", GANG + "min-available": str(least)}
        made = pod(name, 1, annotations=settings)
        made["metadata"]["creationTimestamp"] = f"2025-12-31T{created}:00Z"
        return made

    members = [member("old", old, "23:00"), member("young", young, "23:30")]
    for order in (members, members[::-1]):
        for restart in ([], [step("5s", restart="scheduler")]):
            assert sorted(play(LATE, *order, *restart, until=60).bound()) == bound


@pytest.mark.parametrize("rejoins", [False, True])
def test_members_that_name_different_queues_count_in_the_same_one_after_a_restart(
    rejoins: bool,
) -> None:
    """In that of the oldest member that names one, also if it left the gang meanwhile."""

    def member(name: str, queue: str, created: str) -> Raw:
        settings = {GANG + "name": "g", GANG + "min-available": "1", QUEUE: queue}
        made = pod(name, 1, annotations=settings)
        made["metadata"]["creationTimestamp"] = f"2025-12-31T{created}:00Z"
        return made

    members = [member("z-old", "a", "23:00"), member("a-young", "b", "23:30")]
    given = [node("n", 4), queue("a", "4"), queue("b", "4")]
    if rejoins:
        given += [edit("z-old", {GANG + "name": name}) for name in ("other", "g")]
    for order in (members, members[::-1]):
        for restart in ([], [step("6s", restart="scheduler")]):
            played = play(given, *order, *restart, until=60)
            used = {raw["metadata"]["name"]: raw["status"] for raw in played.all("Queue")}
            assert [used[name].get("allocated", {}).get("cpu") for name in "ab"] == ["2", None]

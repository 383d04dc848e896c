"""The plugin that keeps jobs together: files that name it load, and a profile may do without."""

from typing import Any

import pytest

from harness.objects import gang, node, pod, pod_group
from harness.scenarios import play
from holdfast.scheduler.framework.config import API_VERSION, KIND, load
from holdfast.scheduler.plugins import registry


def profile(**plugins: Any) -> dict[str, Any]:
    return {"schedulerName": "default-scheduler", "plugins": plugins}


def file(*profiles: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "profiles": list(profiles)}


def on(*names: str) -> dict[str, Any]:
    return {"enabled": [{"name": name} for name in names]}


def off(*names: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in names]}


@pytest.mark.parametrize(
    ("plugins", "sorts"),
    [
        ({}, "PrioritySort"),
        ({"multiPoint": on("Coscheduling")}, "PrioritySort"),
        ({"multiPoint": on("Coscheduling") | off("PrioritySort")}, "Coscheduling"),
        ({"queueSort": on("Coscheduling") | off("*")}, "Coscheduling"),
        (
            {
                "queueSort": on("Coscheduling") | off("PrioritySort"),
                "preEnqueue": on("Coscheduling"),
                "preFilter": on("Coscheduling"),
                "postFilter": on("Coscheduling"),
                "permit": on("Coscheduling"),
                "reserve": on("Coscheduling"),
                "postBind": on("Coscheduling"),
            },
            "Coscheduling",
        ),
        ({"multiPoint": off("Coscheduling")}, "PrioritySort"),
    ],
)
def test_files_made_for_other_schedulers_load(plugins: dict[str, Any], sorts: str) -> None:
    loaded = load(file(profile(**plugins)), registry().implements())
    assert [ref.name for ref in loaded.profiles[0].points["queueSort"]] == [sorts]
    full = play(node("n1", 2), pod_group("g", 2), gang("g", 2), config=file(profile(**plugins)))
    assert sorted(full.bound()) == ["g-0", "g-1"]


@pytest.mark.parametrize(
    ("plugins", "placed"),
    [
        ({}, 0),
        ({"multiPoint": on("Coscheduling") | off("PrioritySort")}, 0),
        ({"multiPoint": off("Coscheduling")}, 2),
        ({"permit": off("Coscheduling")}, 2),
        ({"multiPoint": off("Coscheduling"), "permit": on("Coscheduling")}, 0),
    ],
)
def test_without_it_pods_are_placed_one_by_one(plugins: dict[str, Any], placed: int) -> None:
    played = play(node("n1", 2), pod_group("g", 3), gang("g", 3), config=file(profile(**plugins)))
    assert len(played.bound()) == placed


def test_each_profile_says_so_for_its_own_pods() -> None:
    apart = {"schedulerName": "apart", "plugins": {"multiPoint": off("Coscheduling")}}
    played = play(
        node("n1", 2),
        pod_group("together", 2),
        pod("t-0", 1, group="together"),
        pod_group("loose", 2),
        pod("l-0", 1, group="loose", schedulerName="apart"),
        config=file(profile(), apart),
    )
    assert sorted(played.bound()) == ["l-0"]

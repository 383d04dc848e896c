"""Hours held and used, planned reservations and starts, as Prometheus reads them."""

from typing import Any

import pytest

from harness.objects import node, pod, reservation
from holdfast.api.times import format_time
from metrics.test_reservation_metrics import Measured

HELD, USED = "holdfast_reservation_held_hours_total", "holdfast_reservation_used_hours_total"
STARTS, PLANNED = "holdfast_reservation_starts_total", "holdfast_planned_reservations"


def starting(world: Measured, name: str, after: float, **more: Any) -> dict[str, Any]:
    annotations = {"holdfast.io/starts-at": format_time(world.now + after)}
    return reservation(name, metadata={"annotations": annotations}, **more)


def test_hours_are_amounts_times_time() -> None:
    world = Measured(node("n1", allocatable={"nvidia.com/gpu": "4"}))
    requests = {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "2"}
    world.put(reservation("r", requests=requests, allocateOnce=False, ttl="0"))
    world.wait(3600)
    world.put(pod("p", app="a", requests={"cpu": "500m", "nvidia.com/gpu": "1"}))
    world.wait(7200)
    assert world.figures(HELD) == {
        'resource="cpu",schedule=""': pytest.approx(6, abs=0.01),
        'resource="memory",schedule=""': pytest.approx(12, abs=0.01),
        'resource="nvidia.com/gpu",schedule=""': pytest.approx(6, abs=0.01),
    }
    assert world.figures(USED) == {
        'resource="cpu",schedule=""': pytest.approx(1, abs=0.01),
        'resource="memory",schedule=""': 0,
        'resource="nvidia.com/gpu",schedule=""': pytest.approx(2, abs=0.01),
    }


def test_a_pod_that_takes_more_than_is_reserved_uses_what_is_reserved() -> None:
    world = Measured(node("n1"), reservation("r", cpu="1", allocateOnce=False, ttl="0"))
    world.put(pod("p", app="a", cpu="4"))
    world.wait(3600)
    assert world.figures(USED) == {'resource="cpu",schedule=""': pytest.approx(1, abs=0.01)}


def test_only_time_in_which_it_is_available_counts() -> None:
    world = Measured(node("n1"))
    world.put(starting(world, "r", 3600, cpu="4", ttl="1h"))
    assert world.figures(PLANNED)['feasible="True",state="planned"'] == 1
    world.wait(1800)
    assert world.figures(HELD) == {}
    world.wait(4 * 3600)
    assert world.figures(HELD) == {'resource="cpu",schedule=""': pytest.approx(4, abs=0.05)}
    assert world.figures(STARTS) == {'result="in time"': 1, 'result="late"': 0}
    assert not any(world.figures(PLANNED).values())


def test_a_start_without_capacity_is_late() -> None:
    world = Measured(node("n1", cpu="4"), pod("p", cpu="4"))
    world.put(starting(world, "r", 3600, cpu="4"))
    assert world.figures(PLANNED)['feasible="Unknown",state="planned"'] == 1
    world.wait(3700)
    assert world.figures(STARTS) == {'result="in time"': 0, 'result="late"': 1}


def test_hours_of_a_schedule_have_its_name() -> None:
    world = Measured(node("n1"))
    owner = {
        "apiVersion": "scheduling.holdfast.io/v1alpha1",
        "kind": "ReservationSchedule",
        "name": "nightly",
        "uid": "u",
        "controller": True,
    }
    world.put(reservation("r", cpu="2", metadata={"ownerReferences": [owner]}, ttl="0"))
    world.wait(3600)
    assert world.figures(HELD) == {'resource="cpu",schedule="nightly"': pytest.approx(2, abs=0.01)}

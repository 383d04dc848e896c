"""Figures about reservations, as Prometheus reads them."""

import re

from harness.objects import node, pod, reservation
from harness.world import World
from holdfast.metrics import SchedulingMetrics
from holdfast.scheduler.cluster.decisions import Bind, Decision


class Measured(World):
    """Its rounds and binds are measured, as by a backend."""

    def start(self) -> None:
        super().start()
        self.metrics = SchedulingMetrics(self.scheduler)
        decide = self.scheduler.round

        def measured(now: float, limit: int | None = None) -> list[object]:
            decisions = decide(now, limit)
            self.metrics.round_done(0.001, decisions)
            return list(decisions)

        object.__setattr__(self.scheduler, "round", measured)

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Bind):
            self.metrics.pod_bound(decision.pod.uid, self.now)
        super()._carry_out(decision)

    def figures(self, name: str) -> dict[str, float]:
        """By their labels, in the order of the alphabet."""
        found = {}
        for line in self.metrics.text().decode().splitlines():
            match = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if match is not None:
                found[match[1] or ""] = float(match[2])
        return found


def test_the_phase_a_reservation_is_in_is_one_and_the_others_are_zero() -> None:
    world = Measured(node("n1"), reservation("held", cpu="4"), reservation("big", cpu="64"))
    phases = world.figures("scheduler_reservation_status_phase")
    assert {labels for labels, value in phases.items() if value} == {
        'name="held",phase="Available"',
        'name="big",phase="Pending"',
    }
    assert len(phases) == 2 * 5
    assert world.figures("holdfast_reservations") == {
        'phase="Pending"': 1,
        'phase="Available"': 1,
        'phase="Waiting"': 0,
        'phase="Succeeded"': 0,
        'phase="Failed"': 0,
    }


def test_resources_have_koordinators_labels_and_units() -> None:
    requests = {"cpu": "500m", "memory": "8Gi", "nvidia.com/gpu": "2"}
    world = Measured(node("n1", allocatable={"nvidia.com/gpu": "4"}))
    world.put(reservation("r", requests=requests, allocateOnce=False))
    world.put(pod("p", app="a", requests={"cpu": "100m", "memory": "2Gi", "nvidia.com/gpu": "1"}))
    assert world.figures("scheduler_reservation_resource") == {
        'name="r",resource="cpu",type="allocatable",unit="core"': 0.5,
        'name="r",resource="cpu",type="allocated",unit="core"': 0.1,
        'name="r",resource="cpu",type="utilization",unit="ratio"': 0.2,
        'name="r",resource="memory",type="allocatable",unit="Gi"': 8,
        'name="r",resource="memory",type="allocated",unit="Gi"': 2,
        'name="r",resource="memory",type="utilization",unit="ratio"': 0.25,
        'name="r",resource="nvidia.com/gpu",type="allocatable",unit="raw"': 2,
        'name="r",resource="nvidia.com/gpu",type="allocated",unit="raw"': 1,
        'name="r",resource="nvidia.com/gpu",type="utilization",unit="ratio"': 0.5,
    }


def test_what_happens_to_reservations_is_counted() -> None:
    world = Measured(node("n1"))
    world.put(reservation("once", cpu="1"), reservation("brief", app="b", cpu="1", ttl="1m"))
    world.put(pod("p", app="a"), pod("other", app="nobody")).wait(61)
    assert (world.phase("once"), world.phase("brief")) == ("Succeeded", "Failed")
    assert world.figures("holdfast_reservations_scheduled_total") == {"": 2}
    assert world.figures("holdfast_reservations_finished_total") == {
        'reason="Succeeded"': 1,
        'reason="Expired"': 1,
    }
    assert world.figures("holdfast_reservation_draws_total") == {"": 1}


def test_a_deleted_reservation_has_no_figures() -> None:
    world = Measured(node("n1"), reservation("r"))
    world.delete("Reservation", "r")
    assert world.figures("scheduler_reservation_status_phase") == {}
    assert world.figures("scheduler_reservation_resource") == {}


def test_counting_reservations_is_no_attempt_to_preempt() -> None:
    world = Measured(node("n1"))
    affinity = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
    world.put(pod("p", app="a", metadata={"annotations": affinity}))
    assert world.figures("scheduler_preemption_attempts_total") == {"": 1}

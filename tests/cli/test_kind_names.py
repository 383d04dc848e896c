"""The names of kinds that commands take: those that kubectl takes."""

import pytest

from holdfast.cli.kinds import find_resource
from holdfast.cli.reservation_builder import find_workload
from holdfast.sim.forecast.targets import ALIASES


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("rsv", "Reservation"),
        ("reservation.scheduling.koordinator.sh", "Reservation"),
        ("rsvs.v1alpha1.scheduling.holdfast.io", "ReservationSchedule"),
        ("podgroup.scheduling.volcano.sh", "PodGroup"),
        ("queue.scheduling.volcano.sh", "Queue"),
        ("queue", "Pod"),
        ("no", "Node"),
    ],
)
def test_types_of_get(given: str, kind: str) -> None:
    assert find_resource(given)[0].kind == kind


@pytest.mark.parametrize("given", ["deploy", "Deployment.apps", "deployments.v1.apps"])
def test_workloads_of_reserve(given: str) -> None:
    info, name = find_workload(f"{given}/web")
    assert (info.kind, name) == ("Deployment", "web")


@pytest.mark.parametrize(
    ("given", "title"),
    [("vcjob", "job"), ("jobs.batch", "job"), ("podgroups.scheduling.k8s.io", "podgroup")],
)
def test_targets_of_when(given: str, title: str) -> None:
    assert ALIASES[given] == title

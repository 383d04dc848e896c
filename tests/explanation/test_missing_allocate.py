"""A configuration without the allocate action schedules nothing, and `explain` says so."""

import pytest

from explanation.test_situations import N1, as_they_are
from harness.objects import pod, pod_group, reservation
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.framework.config import API_VERSION, KIND

FACTORY = SchedulerFactory.of({"apiVersion": API_VERSION, "kind": KIND, "actions": "preempt, reclaim"})
SAID = "The configuration has no allocate action: no pod is scheduled"


@pytest.mark.parametrize(
    ("kind", "name", "summary"),
    [
        ("Pod", "p", f"{SAID} (see --config)."),
        ("Pod", "big", f"{SAID} (see --config)."),
        ("Pod", "g-0", f"{SAID} (see --config)."),
        ("PodGroup", "g", f"0 of 1 member has a node, 1 is needed. {SAID} (see --config)."),
        ("Reservation", "r", f"{SAID}, and no reservation (see --config)."),
    ],
)
def test_nothing_is_scheduled_without_allocate(kind: str, name: str, summary: str) -> None:
    objects = [N1, pod("p"), pod("big", "99"), pod_group("g", 1), pod("g-0", group="g")]
    report = as_they_are(kind, name, *objects, reservation("r", "1"), factory=FACTORY)
    assert report.summary == summary
    assert not report.advice

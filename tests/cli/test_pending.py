"""In which order `holdfast get queue` shows what waits."""

import pytest

from harness.claim_objects import claiming_pod
from harness.objects import Raw, gang, in_queue, node, pod, pod_group, queue, reservation
from holdfast.api.decode import decode
from holdfast.cli.kinds.kind import Query
from holdfast.cli.kinds.pending import PendingObject, in_order
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.cluster.events import Added
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def _snapshot(*given: Raw) -> ClusterSnapshot:
    snapshot = ClusterSnapshot(SchedulerFactory.of().scheduler(), 0.0)
    for number, raw in enumerate(given):
        meta = raw["metadata"]
        meta |= {"uid": f"u{number}", "creationTimestamp": f"2026-01-01T00:00:{number:02}Z"}
        if raw["kind"] in ("Pod", "PodGroup"):
            meta["namespace"] = "default"
        known = snapshot.objects.setdefault((raw["apiVersion"], raw["kind"]), {})
        known[meta.get("namespace", ""), meta["name"]] = raw
        snapshot.scheduler.feed(Added(decode(raw)), 0.0)
    waiting = list(snapshot.cluster.pods.values())
    snapshot.cluster.jobs.queues.share_out(waiting)
    return snapshot


def _names(snapshot: ClusterSnapshot) -> list[str]:
    return [place.pod.name for place in in_order(snapshot)]


def test_queues_take_turns_by_their_shares() -> None:
    a = [pod(f"a-{i}", annotations=in_queue("a")) for i in range(4)]
    b = [pod(f"b-{i}", annotations=in_queue("b")) for i in range(2)]
    snapshot = _snapshot(node("n1", 6), queue("a", 2), queue("b", 1), *a, *b)
    assert _names(snapshot) == ["a-0", "b-0", "a-1", "a-2", "b-1", "a-3"]


def test_members_of_a_job_stand_with_the_first_of_them() -> None:
    first, second = gang("g", 2)
    snapshot = _snapshot(node("n1", 4), pod_group("g", 2), first, pod("between"), second)
    assert _names(snapshot) == ["g-0", "g-1", "between"]


def test_the_queue_that_a_group_names_is_shown_also_if_it_does_not_exist() -> None:
    """As `get podgroups` shows it."""
    group = pod_group("g", 2)
    group["spec"]["queue"] = "default"
    snapshot = _snapshot(node("n1", 4), group, *gang("g", 2), pod("plain"))
    found = PendingObject().rows(snapshot, Query())
    queue, share = (
        [column.name for column in found.columns].index(name) for name in ("QUEUE", "SHARE")
    )
    shown = {row.cells[0]: (row.cells[queue], row.cells[share]) for row in found.rows}
    assert shown == {
        "Pod/default/g-0": ("default", ""),
        "Pod/default/g-1": ("default", ""),
        "Pod/default/plain": ("", ""),
    }


def test_a_pod_whose_condition_has_no_message_is_unschedulable_still() -> None:
    """Anonymized snapshots have no messages."""
    waiting = pod("big", 30)
    waiting["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    }
    found = PendingObject().rows(_snapshot(node("n1", 4), waiting, pod("new")), Query())
    state = [column.name for column in found.columns].index("STATE")
    assert [row.cells[state] for row in found.rows] == ["Unschedulable", "Active"]


def test_more_important_ones_come_first_without_queues() -> None:
    snapshot = _snapshot(node("n1", 4), pod("low"), pod("high", priority=10))
    assert _names(snapshot) == ["high", "low"]


@pytest.mark.parametrize(
    ("scheduler", "state", "message"),
    [
        ("default-scheduler", "Active", ""),
        ("koord-scheduler", "Active", ""),
        (
            "holdfast-schedular",
            "NotServed",
            "no profile of the scheduler serves spec.schedulerName holdfast-schedular; did you mean "
            "holdfast-scheduler?",
        ),
        (
            "other",
            "NotServed",
            "no profile of the scheduler serves spec.schedulerName other; by default it serves "
            "holdfast-scheduler",
        ),
    ],
)
def test_a_pod_that_no_profile_serves_is_not_active(scheduler: str, state: str, message: str) -> None:
    kind = PendingObject()
    found = kind.rows(_snapshot(node("n1", 4), pod("p", schedulerName=scheduler)), Query())
    (row,) = found.rows
    cells = dict(zip([column.name for column in kind.columns], row.cells, strict=True))
    assert (cells["STATE"], cells["MESSAGE"]) == (state, message)


def test_a_pod_that_was_tried_is_served_by_a_profile_with_another_name() -> None:
    tried = pod("p", schedulerName="team-scheduler")
    message = "0/1 nodes are available: 1 Insufficient cpu."
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    tried["status"] = {"phase": "Pending", "conditions": [condition]}
    (row,) = PendingObject().rows(_snapshot(node("n1", 4), tried), Query()).rows
    assert "Unschedulable" in row.cells


def test_a_pod_whose_claim_is_missing_is_gated() -> None:
    """It has no condition: the scheduler does not try it until the claim exists."""
    kind, gated = PendingObject(), pod("gates", schedulingGates=[{"name": "example.com/wait"}])
    found = kind.rows(_snapshot(node("n1", 4), claiming_pod("p", "gpu"), gated), Query())
    at = [[column.name for column in kind.columns].index(name) for name in ("STATE", "MESSAGE")]
    assert [[row.cells[i] for i in at] for row in found.rows] == [
        ["Gated", 'could not find ResourceClaim "default/gpu"'],
        ["Gated", "waiting for scheduling gates: [example.com/wait]"],
    ]


def test_a_reservation_is_not_queued_before_its_start() -> None:
    planned = reservation("later", 2, annotations={"holdfast.io/starts-at": "2026-01-01T02:00:00Z"})
    snapshot = _snapshot(node("n1", 4), planned, reservation("now", 2), pod("p"))
    assert _names(snapshot) == ["now", "p"]

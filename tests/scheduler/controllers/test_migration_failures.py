"""Moves that do not come to their end, or are lost sight of on the way: nothing is left behind."""

import pytest

from harness.objects import Raw, migration, pod, replica, reservation, running
from harness.world import BUDGET, World
from holdfast.scheduler.controllers.migration.migration_job import RETRY_MOST
from scheduler.controllers.migrations import NODES, RESERVATION, world


def test_a_paused_job_does_nothing_and_is_not_given_up() -> None:
    it = world()
    it.put(migration(paused=True))
    it.wait(3600)
    assert (it.outcome()[0], it.evicted, it.reservation_names()) == ("", [], [])
    it.edit("PodMigrationJob", "move", spec__paused=False, spec__ttl="2h")
    assert it.evicted == ["web"]


@pytest.mark.parametrize(
    ("spec", "gives_up_after"),
    [
        pytest.param({}, 300.0, id="five minutes unless given"),
        pytest.param({"ttl": "90s"}, 90.0, id="as given"),
        pytest.param({"ttl": "0s"}, None, id="never"),
    ],
)
def test_a_job_gives_up_and_takes_its_reservation_along(
    spec: Raw, gives_up_after: float | None
) -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration(**spec))
    if gives_up_after is None:
        it.wait(3600)
        assert it.outcome()[0] == "Running"
        return
    it.wait(gives_up_after - 1)
    assert (it.outcome()[0], it.reservation_names()) == ("Running", [RESERVATION])
    it.wait(1)
    assert it.outcome() == ("Failed", "Timeout", "Abort job caused by timeout")
    assert (it.reservation_names(), it.node_of("web")) == ([], "n1")


def fails(it: World, reason: str, message: str) -> None:
    assert it.outcome() == ("Failed", reason, message)
    assert ("Warning", reason, message) in it.events_about()
    assert [name for name in it.reservation_names() if name != "mine"] == []


MISSING = 'Abort job caused by missing Pod "default/web"'


def test_there_is_no_such_pod() -> None:
    fails(World(*NODES, migration()), "MissingPod", MISSING)


def test_no_pod_is_named() -> None:
    it = world(migration(podRef={"namespace": "default"}))
    fails(it, "InvalidPodRef", "Abort job caused by invalid PodRef")


def test_the_pod_of_that_name_is_another_one() -> None:
    it = world(migration(podRef={"namespace": "default", "name": "web", "uid": "before"}))
    fails(it, "MissingPod", MISSING)


def test_the_pod_goes_by_itself() -> None:
    it = world(running(pod("full", cpu="2"), "n2"), migration())
    assert it.reservation_names() == [RESERVATION]
    it.delete("Pod", "web")
    it.delete("Pod", "full")
    fails(it, "MissingPod", MISSING)


def test_the_reservation_is_deleted() -> None:
    it = world(running(pod("full", cpu="2"), "n2"), migration())
    it.delete("Reservation", RESERVATION)
    fails(it, "MissingReservation", f'Abort job caused by missing Reservation "/{RESERVATION}"')


def test_the_reservation_named_is_not_there() -> None:
    it = world(migration(reservationOptions={"reservationRef": {"name": "mine"}}))
    fails(it, "MissingReservation", 'Abort job caused by missing Reservation "/mine"')


def test_the_reservation_expires() -> None:
    template = {"spec": {"ttl": "60s"}}
    it = world(
        running(pod("full", cpu="2"), "n2"), migration(reservationOptions={"template": template})
    )
    it.wait(60)
    fails(it, "ReservationExpired", "Reservation expired")


def test_the_node_of_the_reservation_goes_before_the_replacement_comes() -> None:
    it = world(migration())
    it.delete("Node", "n2")
    fails(it, "ReservationExpired", "Reservation expired")


def test_the_reservation_named_is_where_the_pod_is() -> None:
    mine = reservation("mine", app="web", cpu="1", pod={"nodeName": "n1"})
    it = world(mine, migration(reservationOptions={"reservationRef": {"name": "mine"}}))
    text = 'Scheduler assignes the Reservation "mine" on the same node as the Pod'
    fails(it, "ForbiddenMigratePod", text)
    assert it.reservation_names() == ["mine"], "what the job has not made is not the job's to delete"


def test_another_pod_of_the_workload_takes_the_capacity_first() -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration())
    it.put(replica("web-3", cpu="3"))
    it.wait(RETRY_MOST)
    fails(it, "ForbiddenMigratePod", "Reservation is already bound by another Pod")
    assert it.node_of("web-3") == "n2"


DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}


@pytest.mark.parametrize(
    "meta",
    [
        pytest.param({"ownerReferences": [DAEMON]}, id="of a DaemonSet"),
        pytest.param({"annotations": {"kubernetes.io/config.mirror": "x"}}, id="a static one"),
        pytest.param(
            {"annotations": {"scheduling.koordinator.sh/eviction-cost": "2147483647"}},
            id="not to be evicted",
        ),
    ],
)
def test_some_pods_are_not_moved(meta: Raw) -> None:
    it = World(*NODES, running(pod("web", metadata=meta), "n1"), migration())
    text = 'Pod "default/web" is forbidden to migrate because it does not meet the requirements'
    fails(it, "ForbiddenMigratePod", text)


def test_a_pod_of_another_scheduler_would_not_use_the_capacity() -> None:
    it = World(*NODES, running(pod("web", schedulerName="other"), "n1"), migration())
    assert it.outcome()[1] == "ForbiddenMigratePod"
    assert it.evicted == []


def test_a_pod_is_moved_by_one_job_only() -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration())
    it.put(migration("second"))
    text = 'Pod "default/web" is already being migrated by PodMigrationJob "move"'
    assert it.outcome("second") == ("Failed", "ForbiddenMigratePod", text)
    assert it.reservation_names() == [RESERVATION]


def test_a_reservation_that_cannot_be_made_is_reported_and_tried_again() -> None:
    it = world()
    it.creation_refusal = "admission webhook says no"
    it.put(migration())
    text = "Failed to create Reservation caused by admission webhook says no"
    assert it.outcome() == ("Running", "FailedCreateReservation", text)
    it.creation_refusal = ""
    it.wait(RETRY_MOST)
    assert it.evicted == ["web"]


@pytest.mark.parametrize("evicted", [False, True])
def test_a_deleted_job_takes_its_reservation_along(evicted: bool) -> None:
    it = world()
    it.eviction_refusal = "" if evicted else BUDGET
    it.put(migration())
    it.delete("PodMigrationJob", "move")
    assert it.reservation_names() == []


def test_a_job_deleted_while_nobody_looked_leaves_no_reservation() -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration())
    del it.objects["PodMigrationJob", "move"]
    it.restart()
    it.settle()
    assert it.reservation_names() == []


def test_a_job_can_be_aborted_by_hand() -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration())
    it.edit("PodMigrationJob", "move", status__phase="Aborted")
    assert it.reservation_names() == []
    it.eviction_refusal = ""
    it.wait(3600)
    assert (it.evicted, it.outcome()[0]) == ([], "Aborted")


def test_a_job_that_is_deleted_but_kept_by_a_finalizer_is_aborted() -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration(metadata={"finalizers": ["example.com/keep"]}))
    it.edit("PodMigrationJob", "move", metadata__deletionTimestamp="2026-01-01T00:00:00Z")
    assert it.outcome() == ("Aborted", "Deleted", "Abort job caused by its deletion")
    assert it.reservation_names() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_reservation_that_cannot_be_deleted_is_tried_again_but_not_without_end(
    restarts: bool,
) -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration())
    it.deletion_refusal = "etcdserver: request timed out"
    it.delete("PodMigrationJob", "move")
    it.wait(2 * RETRY_MOST)
    assert it.reservation_names() == [RESERVATION]
    assert 4 <= it.refused_deletions <= 8
    it.deletion_refusal = ""
    if restarts:
        it.restart()
    it.wait(RETRY_MOST)
    assert it.reservation_names() == []


def test_a_status_that_cannot_be_written_is_tried_again_but_not_without_end() -> None:
    it = world()
    it.refuses_migration_status = True
    it.put(migration())
    it.wait(2 * RETRY_MOST)
    assert 4 <= it.refused_migration_statuses <= 8
    assert it.evicted == [], "nothing is evicted that is not on record"
    it.refuses_migration_status = False
    it.wait(RETRY_MOST)
    assert it.evicted == ["web"]


# Restarts


def story(restart_after: int, bare: bool) -> World:
    """A move from its beginning to its end; the scheduler is lost after so many writes."""
    web = pod("web", cpu="3") if bare else replica("web", cpu="3")
    it = World(*NODES, running(web, "n1"))
    it.writes, it.restart_after = 0, restart_after
    it.put(migration())
    again = pod("web", cpu="3", uid="again") if bare else replica("web-2", cpu="3")
    it.put(again)
    return it


@pytest.mark.parametrize("bare", [False, True], ids=["of a workload", "nobody's"])
def test_a_restart_between_any_two_writes_changes_nothing(bare: bool) -> None:
    whole = story(-1, bare)
    assert whole.outcome()[0] == "Succeeded"
    for writes in range(1, whole.writes + 1):
        it = story(writes, bare)
        assert it.outcome() == whole.outcome(), f"restarted after {writes} writes"
        assert it.steps() == whole.steps(), f"restarted after {writes} writes"
        assert it.evicted == ["web"], f"restarted after {writes} writes"
        assert it.reservation_names() == [RESERVATION], f"restarted after {writes} writes"


def test_a_restart_between_any_two_writes_of_a_failure_leaves_nothing_behind() -> None:
    def failing(restart_after: int) -> World:
        it = world()
        it.eviction_refusal = BUDGET
        it.writes, it.restart_after = 0, restart_after
        it.put(migration(ttl="1s"))
        it.wait(5)
        return it

    for writes in range(1, failing(-1).writes + 1):
        it = failing(writes)
        assert it.outcome() == ("Failed", "Timeout", "Abort job caused by timeout"), writes
        assert it.reservation_names() == [], writes

"""Moving pods: the room first, then the eviction, then the replacement."""

import pytest

from harness.objects import migration, node, pod, replica, reservation, running
from harness.world import BUDGET, World
from holdfast.scheduler.controllers.migration.migration_job import RETRY_MOST
from scheduler.controllers.migrations import NODES, RESERVATION, world


def test_a_pod_is_moved() -> None:
    """Proposal, Usage in Descheduling: once the room is Available the pod is moved into it; then the
    reservation is Succeeded and holds nothing."""
    it = world()
    it.put(migration())
    assert (it.phase(RESERVATION), it.status(RESERVATION)["nodeName"]) == ("Available", "n2")
    assert it.evicted == ["web"]
    assert it.migration()["status"]["status"] == "PodBoundReservation"
    assert it.outcome() == ("Running", "WaitForPodBindReservation", "")
    it.put(replica("web-2", cpu="3"))
    assert (it.node_of("web-2"), it.reservation_of("web-2")) == ("n2", RESERVATION)
    assert it.phase(RESERVATION) == "Succeeded"
    message = f'Bind Pod "default/web-2" in Reservation "{RESERVATION}"'
    assert it.outcome() == ("Succeeded", "", message)
    status = it.migration()["status"]
    assert (status["status"], status["nodeName"]) == ("Complete", "n2")
    assert status["podRef"] == {"namespace": "default", "name": "web-2", "uid": "pod-web-2"}
    assert it.steps() == [
        ("ReservationCreated", "True", ""),
        ("ReservationScheduled", "True", ""),
        ("Eviction", "True", "EvictComplete"),
        ("PodBoundReservation", "True", ""),
        ("ReservationBound", "True", ""),
        ("BoundPodReady", "True", ""),
    ]
    assert it.events_about() == [
        ("Normal", "ReservationCreated", f'Successfully create Reservation "{RESERVATION}"'),
        ("Normal", "ReservationScheduled", f'Assigned Reservation "{RESERVATION}" to node "n2"'),
        ("Normal", "Evicting", 'Pod "default/web" evicted from node "n1" by the reason "NotSet"'),
        ("Normal", "EvictComplete", 'Pod "default/web" has been evicted'),
        ("Normal", "WaitForPodBindReservation", "Waiting for Pod bind Reservation"),
        ("Normal", "PodBoundReservation", 'Reservation bound by pod "default/web-2"'),
        ("Normal", "BoundPodReady", 'Bind pod "default/web-2" is ready'),
        ("Normal", "Complete", message),
    ]
    told = ("Normal", "Descheduled", 'Pod evicted from node "n1" by the reason "NotSet"')
    assert told in it.events_about("Pod")


def test_the_job_says_what_it_is_about() -> None:
    it = world()
    it.put(migration())
    spec = it.migration()["spec"]
    assert spec["podRef"]["uid"] == "pod-web"
    reference = spec["reservationOptions"]["reservationRef"]
    assert (reference["kind"], reference["name"], reference["uid"]) == (
        "Reservation",
        RESERVATION,
        "created-1",
    )


# The reservation

NOT_THERE = {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_its_reservation_is_for_the_replacement_and_for_another_node() -> None:
    """Proposal, Usage in Descheduling: the reservation has the candidate's template and owners, and
    allocateOnce."""
    it = world()
    it.put(migration(ttl="90s"))
    raw = it.objects["Reservation", RESERVATION]
    spec, labels = raw["spec"], raw["metadata"]["labels"]
    assert labels["app.kubernetes.io/created-by"] == "holdfast-scheduler"
    assert labels["holdfast.io/migration-job"] == "move"
    assert labels["scheduling.koordinator.sh/reservation-order"] == "1767225600000"
    [owner] = raw["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PodMigrationJob", "move", "job-move")
    assert spec["allocateOnce"] is True
    assert spec["ttl"] == "90s"
    assert spec["owners"] == [
        {
            "controller": {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": "rs",
                "controller": True,
                "namespace": "default",
            }
        }
    ]
    template = spec["template"]
    assert template["metadata"]["labels"] == {"app": "web"}
    assert "nodeName" not in template["spec"]
    assert template["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "3"}}
    terms = template["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [NOT_THERE]}]


def test_every_alternative_of_the_pods_own_node_affinity_leaves_the_old_node_out() -> None:
    one = {"key": "zone", "operator": "In", "values": ["a"]}
    two = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    given = [{"matchExpressions": [one]}, {"matchFields": [two]}, {"matchExpressions": []}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": given}}}
    it = world(affinity=affinity)
    it.put(migration())
    spec = it.objects["Reservation", RESERVATION]["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms[0] == {"matchExpressions": [one], "matchFields": [NOT_THERE]}
    assert terms[1] == {"matchFields": [two, NOT_THERE]}
    assert not terms[2].get("matchFields"), "a term that says nothing matches nothing"


def test_a_pod_that_is_nobodys_is_replaced_by_one_of_its_name() -> None:
    it = World(*NODES, running(pod("web", cpu="3"), "n1"), migration())
    [owner] = it.objects["Reservation", RESERVATION]["spec"]["owners"]
    assert owner == {"object": {"kind": "Pod", "namespace": "default", "name": "web"}}
    assert it.evicted == ["web"]
    it.put(pod("other", cpu="3", uid="other"), pod("web", cpu="3", uid="again"))
    assert (it.node_of("web"), it.reservation_of("web"), it.reservation_of("other")) == (
        "n2",
        RESERVATION,
        "",
    )
    assert it.outcome()[0] == "Succeeded"
    assert it.migration()["status"]["podRef"]["uid"] == "again"


def test_what_the_template_says_comes_before_what_the_pod_does() -> None:
    wanted = reservation("x", cpu="2", owners=[{"labelSelector": {"matchLabels": {"app": "web"}}}])
    template = {
        "metadata": {"name": "mine", "labels": {"team": "a"}},
        "spec": {**wanted["spec"], "ttl": "1h", "allocateOnce": False},
    }
    template["spec"]["template"]["spec"]["nodeName"] = "n1"
    it = world()
    it.put(migration(reservationOptions={"template": template}))
    raw = it.objects["Reservation", "mine"]
    assert raw["metadata"]["labels"]["team"] == "a"
    assert (raw["spec"]["ttl"], raw["spec"]["allocateOnce"]) == ("1h", True)
    assert raw["spec"]["owners"] == wanted["spec"]["owners"]
    assert (it.status("mine")["nodeName"], it.status("mine")["allocatable"]) == ("n2", {"cpu": "2"})


def test_a_claim_for_one_pod_only_does_not_stand_in_the_way() -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default", "uid": "c"},
        "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "v"},
        "status": {"phase": "Bound"},
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "v", "uid": "v", "annotations": {}},
        "spec": {"claimRef": {"namespace": "default", "name": "data", "uid": "c"}},
        "status": {"phase": "Bound"},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    it = World(claim, volume, *NODES, running(replica("web", cpu="3", volumes=volumes), "n1"))
    it.put(migration())
    assert it.phase(RESERVATION) == "Available"


# Not before there is room

FULL = (
    "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
)


def test_no_pod_is_evicted_before_its_capacity_is_available() -> None:
    """Proposal, Usage in Descheduling: so no pod is stopped that cannot run again.
    Motivation 2: there is room for certain before a pod is rescheduled."""
    it = world(running(pod("full", cpu="2"), "n2"))
    it.put(migration())
    assert it.evicted == []
    phase, reason, message = it.outcome()
    assert (phase, reason) == ("Running", "Unschedulable")
    assert message.startswith(FULL)
    assert ("ReservationScheduled", "False", "Unschedulable") in it.steps()
    assert ("Warning", "Unschedulable", message) in it.events_about()
    it.delete("Pod", "full")
    assert it.evicted == ["web"]
    assert ("ReservationScheduled", "True", "") in it.steps()


def test_a_reservation_that_waits_for_others_to_leave_is_waited_for() -> None:
    """Proposal, Usage in Descheduling: with preAllocation resources are passed from pod to pod."""
    it = world(running(pod("short", cpu="2", activeDeadlineSeconds=60), "n2"))
    template = {"metadata": {"name": "mine"}, "spec": {"preAllocation": True}}
    it.put(migration(reservationOptions={"template": template}))
    assert it.phase("mine") == "Waiting"
    assert it.evicted == []
    it.delete("Pod", "short")
    assert it.phase("mine") == "Available"
    assert it.evicted == ["web"]


def test_a_reservation_that_is_there_can_be_used() -> None:
    mine = reservation("mine", app="web", cpu="3", pod={"nodeName": "n2"})
    it = world(mine)
    it.put(migration(reservationOptions={"reservationRef": {"name": "mine"}}))
    assert it.evicted == ["web"]
    it.put(replica("web-2", cpu="3"))
    assert it.outcome() == ("Succeeded", "", 'Bind Pod "default/web-2" in Reservation "mine"')
    assert it.reservation_names() == ["mine"]


def test_who_used_a_shared_reservation_before_is_not_the_replacement() -> None:
    mine = reservation("mine", app="web", cpu="4", allocateOnce=False, pod={"nodeName": "n2"})
    it = world(mine)
    it.put(replica("web-0", cpu="1"))
    assert it.reservation_of("web-0") == "mine"
    it.put(migration(reservationOptions={"reservationRef": {"name": "mine"}}))
    assert (it.evicted, it.outcome()[0]) == (["web"], "Running")
    it.put(replica("web-2", cpu="3"))
    assert it.migration()["status"]["podRef"]["name"] == "web-2"


@pytest.mark.parametrize("removed", [False, True])
def test_the_earlier_users_are_known_after_a_restart(removed: bool) -> None:
    mine = reservation("mine", app="web", cpu="5", allocateOnce=False, pod={"nodeName": "n2"})
    it = World(node("n1", cpu="4"), node("n2", cpu="5"), running(replica("web", cpu="3"), "n1"), mine)
    it.put(replica("web-0", cpu="1"))
    it.eviction_refusal = BUDGET
    it.put(migration(reservationOptions={"reservationRef": {"name": "mine"}}))
    it.put(replica("web-1", cpu="1"))
    if removed:
        it.edit("PodMigrationJob", "move", metadata__annotations={})
    it.eviction_refusal = ""
    it.wait(2 * RETRY_MOST)
    assert (it.evicted, it.outcome()[0]) == (["web"], "Running")
    it.restart()
    it.settle()
    assert it.outcome()[1] == "WaitForPodBindReservation"
    it.put(replica("web-2", cpu="3"))
    assert it.migration()["status"]["podRef"]["name"] == "web-2"


def test_the_earlier_users_are_known_if_another_client_deletes_the_pod() -> None:
    mine = reservation("mine", app="web", cpu="4", allocateOnce=False, pod={"nodeName": "n2"})
    it = world(mine)
    it.put(replica("web-0", cpu="1"))
    it.eviction_refusal = BUDGET
    it.put(migration(reservationOptions={"reservationRef": {"name": "mine"}}))
    it.edit("Pod", "web", metadata__deletionTimestamp="2026-01-01T00:00:30Z").delete("Pod", "web")
    it.restart()
    it.settle()
    assert it.outcome()[1] == "WaitForPodBindReservation"
    it.put(replica("web-2", cpu="3"))
    assert it.migration()["status"]["podRef"]["name"] == "web-2"


# The eviction


def test_an_eviction_that_is_refused_is_reported_and_tried_again() -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration())
    text = f'Failed evict Pod "default/web" caused by {BUDGET}'
    assert it.outcome() == ("Running", "FailedEvict", text)
    assert ("Eviction", "False", "FailedEvict") in it.steps()
    assert it.phase(RESERVATION) == "Available", "the room is kept"
    it.wait(2 * RETRY_MOST)
    tries = it.events_about().count(("Warning", "Evicting", text))
    assert 4 <= tries <= 8, "after a second, then less often"
    it.eviction_refusal = ""
    it.wait(RETRY_MOST)
    assert it.evicted == ["web"]
    assert it.outcome()[1] == "WaitForPodBindReservation"


def test_a_refused_eviction_is_tried_again_when_budgets_change() -> None:
    it = world()
    it.eviction_refusal = BUDGET
    it.put(migration())
    it.eviction_refusal = ""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "uid": "b"},
        "spec": {"minAvailable": 0, "selector": {}},
    }
    it.put(budget)
    assert it.evicted == ["web"]


def test_a_pod_may_take_its_time_to_stop() -> None:
    it = world()
    it.graceful = True
    it.put(migration())
    assert it.outcome()[:2] == ("Running", "Evicting")
    it.delete("Pod", "web")
    assert it.outcome()[1] == "WaitForPodBindReservation"
    assert it.evicted == ["web"]


def test_evict_directly_reserves_nothing() -> None:
    it = world()
    it.put(
        migration(
            mode="EvictDirectly", metadata={"annotations": {"koordinator.sh/evict-reason": "drain"}}
        )
    )
    assert it.outcome() == ("Succeeded", "", 'Pod "default/web" has been evicted')
    assert it.steps() == [("Eviction", "True", "EvictComplete")]
    assert it.reservation_names() == []
    assert (
        "Normal",
        "Descheduled",
        'Pod evicted from node "n1" by the reason "drain"',
    ) in it.events_about("Pod")


def test_a_pod_without_a_node_is_its_own_replacement() -> None:
    it = World(node("n1", cpu="2"), replica("web", cpu="3"))
    it.put(migration())
    [owner] = it.objects["Reservation", RESERVATION]["spec"]["owners"]
    assert owner["object"]["uid"] == "pod-web"
    it.put(node("n2", cpu="4"))
    assert it.evicted == []
    assert it.outcome() == ("Succeeded", "", 'Assign Pod "default/web" to node "n2"')
    assert ("PodScheduled", "True", "") in it.steps()


# The replacement


def test_a_replacement_that_is_not_ready_is_waited_for() -> None:
    it = world()
    it.pods_become_ready = False
    it.put(migration())
    it.put(replica("web-2", cpu="3"))
    assert it.outcome()[:2] == ("Running", "WaitForBoundPodReady")
    assert ("BoundPodReady", "False", "WaitForBoundPodReady") in it.steps()
    it.edit("Pod", "web-2", status__conditions=[{"type": "Ready", "status": "True"}])
    assert it.outcome()[0] == "Succeeded"

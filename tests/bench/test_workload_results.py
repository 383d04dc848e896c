"""What each workload comes to: a benchmark that places pods wrongly measures nothing."""

from collections import Counter
from collections.abc import Collection

import pytest

from holdfast.api.resource_claims import ResourceClaim
from holdfast.bench.drive import Drive
from holdfast.bench.plan import plan_of
from holdfast.bench.workload import find, rows
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.state.recount import validate_state

ZONE = "topology.kubernetes.io/zone"


class Outcome:
    """A workload's cluster once everything has settled."""

    def __init__(self, name: str, nodes: int, batch: int = 10) -> None:
        drive = Drive(plan_of(rows()[find(name)], nodes), batch)
        drive.run()
        self.cluster = drive.scheduler.cluster
        self.decisions = drive.decisions
        assert validate_state(self.cluster) == []

    def pods(self, prefix: str) -> list[PodRecord]:
        return [pod for pod in self.cluster.pods.values() if pod.name.startswith(prefix)]

    def per_node(self, pods: Collection[PodRecord]) -> Counter[str]:
        assert all(pod.row >= 0 for pod in pods)
        return Counter(self.cluster.nodes.name(pod.row) for pod in pods)

    def per_zone(self, pods: Collection[PodRecord]) -> Counter[str]:
        info = self.cluster.nodes.info
        return Counter(info[pod.row].labels[ZONE] for pod in pods)


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("PodAntiAffinity", "anti-affinity-pod"),
        ("SchedulingRequiredPodAntiAffinityWithNSSelector", "team-anti-affinity-pod"),
    ],
)
def test_required_anti_affinity_leaves_one_to_a_node(name: str, template: str) -> None:
    outcome = Outcome(name, 60)
    pods = outcome.pods(template)
    assert len(pods) >= 36
    assert set(outcome.per_node(pods).values()) == {1}
    assert len({pod.namespace for pod in pods}) == 2


def test_pods_keep_away_from_those_that_mind_them() -> None:
    outcome = Outcome("PodMatchingAntiAffinity", 20)
    with_anti_affinity, green = outcome.pods("anti-affinity-pod"), outcome.pods("green-pod")
    assert (len(with_anti_affinity), len(green)) == (4, 20)
    assert not outcome.per_node(with_anti_affinity).keys() & outcome.per_node(green).keys()


@pytest.mark.parametrize(
    ("name", "template", "pods"),
    [
        ("PodAffinity", "affinity-pod", 40),
        ("SchedulingRequiredPodAffinityWithNSSelector", "team-affinity-pod", 28),
    ],
)
def test_required_affinity_gathers_all_in_one_zone(name: str, template: str, pods: int) -> None:
    outcome = Outcome(name, 20)
    assert outcome.per_zone(outcome.pods(template)) == {"zone1": pods}


@pytest.mark.parametrize(
    ("name", "template", "pods"),
    [
        ("PreferredPodAffinity", "preferred-affinity-pod", 40),
        ("SchedulingPreferredAffinityWithNSSelector", "team-preferred-affinity-pod", 40),
    ],
)
def test_preferred_affinity_fills_one_node_after_the_other(name: str, template: str, pods: int) -> None:
    outcome = Outcome(name, 20)
    per_node = outcome.per_node(outcome.pods(template))
    assert per_node.total() == pods
    assert per_node.most_common(1)[0][1] == 40  # as many as fit on a node


@pytest.mark.parametrize(
    ("name", "template", "pods"),
    [
        ("PreferredPodAntiAffinity", "preferred-anti-affinity-pod", 40),
        ("SchedulingPreferredAntiAffinityWithNSSelector", "team-preferred-anti-affinity-pod", 24),
    ],
)
def test_preferred_anti_affinity_deals_them_out_evenly(name: str, template: str, pods: int) -> None:
    per_node = (outcome := Outcome(name, 20)).per_node(outcome.pods(template))
    assert per_node.total() == pods
    assert max(per_node.values()) - min(per_node.values()) <= 1


@pytest.mark.parametrize(
    ("name", "template", "skew"),
    [("TopologySpreading", "spread-pod", 5), ("PreferredTopologySpreading", "preferred-spread-pod", 5)],
)
def test_spread_pods_are_spread_over_zones(name: str, template: str, skew: int) -> None:
    outcome = Outcome(name, 30)
    per_zone = outcome.per_zone(outcome.pods(template))
    assert per_zone.total() == 30
    assert max(per_zone.values()) - min(per_zone.values()) <= skew


@pytest.mark.parametrize("name", ["DefaultTopologySpreading", "DefaultTopologySpreading/50000Pods"])
def test_the_pods_of_a_service_are_spread_over_zones_and_nodes(name: str) -> None:
    outcome = Outcome(name, 30)
    pods = outcome.pods("web-pod")
    per_zone, per_node = outcome.per_zone(pods), outcome.per_node(pods)
    assert len(per_zone) == 3
    assert len(per_node) == 30
    assert max(per_zone.values()) - min(per_zone.values()) <= 5
    assert max(per_node.values()) - min(per_node.values()) <= 2


def test_among_pods_with_affinities_plain_pods_find_their_place() -> None:
    outcome = Outcome("MixedSchedulingBasePod", 20)
    assert {pod.phase.value for pod in outcome.cluster.pods.values()} == {"assigned"}
    assert len(outcome.cluster.pods) == 5 * 8 + 20
    assert set(outcome.per_node(outcome.pods("anti-affinity-pod")).values()) == {1}


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_every_preemptor_gets_a_node_of_which_three_pods_had_to_go(batch: int) -> None:
    outcome = Outcome("PreemptionBasic", 20, batch)
    preemptors, left = outcome.pods("high-priority-pod"), outcome.pods("low-priority-pod")
    assert len(outcome.per_node(preemptors)) == len(preemptors) == 20
    assert set(outcome.per_node(left).values()) == {1}
    assert len(left) == 20
    assert outcome.decisions["Preempt"] == 60


@pytest.mark.parametrize("batch", [1, 100])
def test_what_was_preempted_is_held_for_the_preemptor(batch: int) -> None:
    outcome = Outcome("PreemptionBasic", 20, batch)
    assert outcome.decisions["CreateReservation"] == 20
    reservations = outcome.cluster.reservations
    drawn = {pod.reservation_uid for pod in outcome.pods("high-priority-pod")}
    assert drawn == set(reservations.known)


def test_preemptors_that_must_be_spread_are() -> None:
    outcome = Outcome("PreemptionSpread", 150, batch=100)
    preemptors = outcome.pods("high-priority-spread-pod")
    assert len(outcome.per_node(preemptors)) == len(preemptors) == 60
    zones = outcome.per_zone(preemptors)
    assert max(zones.values()) - min(zones.values()) <= 5
    assert len(zones) == 3


def test_on_a_larger_cluster_preemptors_still_find_it_full() -> None:
    plan = plan_of(rows()["PreemptionBasic"], 6000)
    assert (plan.pods(measured=False), plan.pods(measured=True)) == (24000, 5000)


def test_plain_pods_use_what_capacity_is_left_while_others_preempt() -> None:
    outcome = Outcome("PreemptionAsync", 500, batch=100)
    plain, preemptors = outcome.pods("pod-"), outcome.pods("churn")
    assert outcome.per_node(plain).total() == 500
    assert outcome.per_node(preemptors).total() >= 4
    # A node with one plain pod has 300m left: three pods have to go for 3 CPUs.
    assert outcome.decisions["Preempt"] == 3 * len(preemptors)
    assert len(outcome.pods("low-priority-pod")) == 2000 - 3 * len(preemptors)


@pytest.mark.parametrize(("name", "pods"), [("InTreePVs", 12), ("CSIPVs", 40)])
def test_pods_come_with_their_claims_and_volumes(name: str, pods: int) -> None:
    outcome = Outcome(name, 20)
    objects = outcome.cluster.objects
    assert outcome.per_node(outcome.pods("claiming-pod")).total() == pods
    assert len(objects["PersistentVolumeClaim"]) == len(objects["PersistentVolume"]) == pods
    assert len(objects.get("CSINode", {})) == (20 if name == "CSIPVs" else 0)


TEMPLATE = "SchedulingWithResourceClaimTemplate"


@pytest.mark.parametrize(
    ("name", "pods", "claims", "devices"),
    [
        (TEMPLATE, 50, 100, 1),
        (f"{TEMPLATE}/selector", 50, 50, 1),
        (f"{TEMPLATE}/match", 20, 20, 5),
        (f"{TEMPLATE}/half_steady", 0, 50, 1),
        ("SchedulingWithResourceClaim", 50, 10, 1),
        ("SchedulingWithResourceClaims", 70, 70, 1),
        ("ExtendedResource", 50, 100, 1),
        ("ExtendedResource/implicit", 50, 100, 1),
        ("FirstAvailable", 50, 50, 1),
        ("DeviceTaintToleration", 50, 50, 1),
        ("Partitionable", 10, 10, 2),
        ("PartitionableBacktracking", 10, 10, 7),
        ("ConsumableCapacity", 50, 50, 2),
    ],
)
@pytest.mark.parametrize("batch", [1, 100])
def test_claims_get_devices_and_pods_their_nodes(
    name: str, pods: int, claims: int, devices: int, batch: int
) -> None:
    outcome = Outcome(name, 10, batch)
    found = list(outcome.cluster.pods.values())
    assert len(found) == pods
    assert all(pod.row >= 0 for pod in found)
    known = list(outcome.cluster.objects["ResourceClaim"].values())
    assert len(known) == claims
    for claim in known:
        assert isinstance(claim, ResourceClaim) and claim.status.allocation is not None
        assert len(claim.status.allocation.devices.results) in (1, devices)


@pytest.mark.parametrize(
    ("name", "pods", "phases"),
    [
        ("ReservationOwners", 80, {"": 20}),
        ("ReservationOwnersAligned", 80, {"": 20}),
        ("ReservationOwnersRestricted", 80, {"": 20}),
        ("ReservationOwnersOnce", 20, {"Succeeded": 20}),
    ],
)
def test_owners_use_up_what_is_reserved(name: str, pods: int, phases: dict[str, int]) -> None:
    outcome = Outcome(name, 20)
    owners, reservations = outcome.pods("owner-pod"), outcome.cluster.reservations.known
    assert Counter(reservation.finished for reservation in reservations.values()) == phases
    assert len(owners) == pods
    assert set(Counter(pod.reservation_uid for pod in owners).values()) == {pods // 20}
    assert set(outcome.per_node(owners).values()) == {pods // 20}
    for pod in owners:
        assert reservations[pod.reservation_uid].object.status.node_name == outcome.cluster.nodes.name(
            pod.row
        )


@pytest.mark.parametrize(("name", "pods"), [("GangsOfThree", 12), ("Queues", 40)])
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_jobs_and_queues_find_their_places(name: str, pods: int, batch: int) -> None:
    outcome = Outcome(name, 20, batch)
    placed = [pod for pod in outcome.cluster.pods.values() if pod.job is not None or pod.queue]
    assert outcome.per_node(placed).total() == len(placed) == pods


def test_jobs_find_their_places_past_those_that_wait() -> None:
    outcome = Outcome("QueuesPending", 20, 7)
    waiting, placed = outcome.pods("oversized-queued-pod"), outcome.pods("queued-pod")
    assert (len(waiting), len(placed)) == (40, 20)
    assert {pod.row for pod in waiting} == {-1}
    assert outcome.per_node(placed).total() == 20


def test_other_pods_do_not_use_reserved_capacity() -> None:
    outcome = Outcome("ReservationOthers", 20)
    assert outcome.per_node(outcome.pods("pod-")).total() == 4 + 40
    assert not any(pod.reservation_uid for pod in outcome.pods("pod-"))
    reservation_table = outcome.cluster.ledger.reservations
    assert all(entry.remaining == entry.amounts for entry in reservation_table)
    assert len(reservation_table) == 20


@pytest.mark.parametrize(("nodes", "batch"), [(20, 1), (20, 7), (1000, 1000)])
def test_every_pod_that_brings_a_template_has_a_reservation_of_its_own(nodes: int, batch: int) -> None:
    outcome = Outcome("DynamicReservations", nodes, batch)
    asking, reservations = outcome.pods("asking-pod"), outcome.cluster.reservations.known
    assert {pod.phase.value for pod in asking} == {"assigned"}
    assert sorted(pod.reservation_uid for pod in asking) == sorted(reservations)
    assert len(reservations) == outcome.decisions["CreateReservation"] == nodes
    for pod in asking:
        assert reservations[pod.reservation_uid].object.status.node_name == outcome.cluster.nodes.name(
            pod.row
        )
    assert not outcome.cluster.virtuals.by_id and not outcome.cluster.virtuals.waits

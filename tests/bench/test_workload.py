"""Workload files: they parse, shrink with the cluster, and are found by name."""

import pytest

from holdfast.bench.plan import PlannedObjects, plan_of
from holdfast.bench.workload import BenchError, find, read_workload, rows

NAMES = list(rows())


@pytest.mark.parametrize("name", NAMES)
def test_every_workload_becomes_a_plan_with_measured_pods(name: str) -> None:
    plan = plan_of(rows()[name], nodes=5)
    assert 5 <= plan.nodes <= 6
    assert plan.pods(measured=True) >= 1


@pytest.mark.parametrize(
    ("name", "nodes", "measured"),
    [
        ("SchedulingBasic", 5000, 10000),
        ("SchedulingBasic/50000Pods", 5000, 50000),
        ("SchedulingDaemonset", 15000, 30000),
        ("SchedulingNodeAffinity", 5000, 10000),
        ("SchedulingWithMixedChurn", 5000, 10000),
        ("Unschedulable", 5000, 10000),
        ("Unschedulable/20kInit", 5000, 10000),
        ("Mixed160", 5000, 10000),
        ("Memory50000Pods", 5000, 50000),
        ("SchedulingPodAntiAffinity", 5000, 2000),
        ("SchedulingPodMatchingAntiAffinity", 5000, 5000),
        ("SchedulingPodAffinity", 5000, 5000),
        ("SchedulingPreferredPodAffinity", 5000, 5000),
        ("SchedulingPreferredPodAntiAffinity", 5000, 5000),
        ("SchedulingRequiredPodAffinityWithNSSelector", 5000, 2000),
        ("SchedulingRequiredPodAntiAffinityWithNSSelector", 6000, 2000),
        ("SchedulingPreferredAffinityWithNSSelector", 5000, 5000),
        ("SchedulingPreferredAntiAffinityWithNSSelector", 5000, 2000),
        ("TopologySpreading", 5000, 5000),
        ("PreferredTopologySpreading", 5000, 5000),
        ("DefaultTopologySpreading", 5000, 10000),
        ("DefaultTopologySpreading/50000Pods", 5000, 50000),
        ("MixedSchedulingBasePod", 5000, 5000),
        ("PreemptionBasic", 5000, 5000),
        ("PreemptionAsync", 5000, 5000),
        ("PreemptionSpread", 5000, 2000),
        ("DynamicReservations", 1000, 1000),
        ("GangsOfThree", 5000, 3000),
        ("GangsOfThousand", 5000, 3000),
        ("Queues", 5000, 10000),
        ("QueuesPending", 5000, 5000),
        ("ReservationOthers", 5000, 10000),
        ("ReservationOwners", 5000, 20000),
        ("ReservationOwnersAligned", 5000, 20000),
        ("ReservationOwnersRestricted", 5000, 20000),
        ("ReservationOwnersOnce", 5000, 5000),
        ("SchedulingInTreePVs", 5000, 2000),
        ("SchedulingCSIPVs", 5000, 5000),
        ("SchedulingWithResourceClaims", 500, 3000),
        ("SchedulingWithResourceClaimTemplate", 500, 2500),
        ("SchedulingWithResourceClaimTemplate/full_steady", 500, 2500),
        ("SchedulingWithResourceClaim", 500, 2500),
        ("ExtendedResource", 500, 2500),
        ("ConsumableCapacity", 500, 2500),
        ("PartitionableBacktracking", 500, 500),
    ],
)
def test_workloads_have_the_sizes_they_are_known_by(name: str, nodes: int, measured: int) -> None:
    row = rows()[name]
    assert row.workload.nodes == nodes
    assert row.count("measured", nodes) == measured


@pytest.mark.parametrize(
    ("nodes", "init", "measured"),
    [(500, 100, 1000), (5000, 1000, 10000), (50000, 1000, 10000), (1, 1, 2)],
)
def test_pods_shrink_with_the_nodes_and_do_not_grow(nodes: int, init: int, measured: int) -> None:
    row = rows()["SchedulingBasic"]
    assert (row.count("init", nodes), row.count("measured", nodes)) == (init, measured)


def test_label_values_are_assigned_round_robin() -> None:
    text = """
    {name: T, about: "", nodes: 4, variants: [{counts: {}}], ops: [
      {op: createNodes, template: node, labels: {zone: [a, b, c]}}]}
    """
    row = rows()["SchedulingBasic"]
    workload = read_workload(text, "t.yaml")
    plan = plan_of(type(row)("T", workload, workload.variants[0]))
    (step,) = plan.steps
    assert isinstance(step, PlannedObjects)
    assert [node.metadata.labels["zone"] for node in step.objects] == ["a", "b", "c", "a"]
    assert step.objects[0].metadata.labels["kubernetes.io/hostname"] == step.objects[0].metadata.name


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("schedulingbasic", "SchedulingBasic"),
        ("UNSCHEDULABLE/20KINIT", "Unschedulable/20kInit"),
        ("podAntiAffinity", "SchedulingPodAntiAffinity"),
        ("basic/50000pods", "SchedulingBasic/50000Pods"),
    ],
)
def test_neither_case_nor_scheduling_matters_in_names(asked: str, found: str) -> None:
    assert find(asked) == found


@pytest.mark.parametrize(
    ("asked", "hint"),
    [("SchedulingBasics", "SchedulingBasic?"), ("opnb", "openb?"), ("zzz", "--list")],
)
def test_an_unknown_name_is_answered_with_the_nearest(asked: str, hint: str) -> None:
    with pytest.raises(BenchError, match=f"{asked!r}") as caught:
        find(asked)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "t.yaml: while parsing"),
        ("{name: T, about: a, nodes: 1, variants: [], ops: [{op: dance}]}", "dance"),
        ("{name: T, about: a, nodes: 1, variants: [], ops: [], nods: 3}", "nods"),
    ],
)
def test_an_invalid_file_is_named(text: str, message: str) -> None:
    with pytest.raises(BenchError, match=r"t\.yaml") as caught:
        read_workload(text, "t.yaml")
    assert message in str(caught.value)


def test_missing_namespaces_are_named() -> None:
    text = """
    {name: T, about: "", nodes: 4, variants: [{counts: {}}], ops: [
      {op: createPods, template: pod, count: 1, namespaces: team}]}
    """
    row = rows()["SchedulingBasic"]
    workload = read_workload(text, "t.yaml")
    with pytest.raises(BenchError, match="team"):
        plan_of(type(row)("T", workload, workload.variants[0]))


def test_a_missing_count_is_named() -> None:
    with pytest.raises(BenchError, match="'extra'"):
        rows()["SchedulingBasic"].count("extra", 10)

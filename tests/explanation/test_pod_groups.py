"""What `explain` says of PodGroups of `scheduling.k8s.io` and their pods."""

from harness.objects import Raw, core_group, core_pods, node
from harness.world import World
from holdfast.explanation.explained_kinds import known_kinds
from holdfast.explanation.explainer import explain, find
from holdfast.explanation.report import Report
from holdfast.kube.decoding import WATCHED
from holdfast.local.setup import SchedulerFactory
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

RACK = "rack"
FACTORY = SchedulerFactory.of()


def report_on(kind: str, name: str, *objects: Raw) -> Report:
    for raw in objects:
        raw["metadata"]["uid"] = raw["metadata"]["name"]
        if raw["kind"] != "Node":
            raw["metadata"]["namespace"] = "default"
    world = World(*objects)
    snapshot = ClusterSnapshot(FACTORY.scheduler(), world.now)
    for watched in WATCHED:
        kinds = (watched.info.api_version, watched.info.kind)
        found = [r for r in world.objects.values() if (r["apiVersion"], r["kind"]) == kinds]
        snapshot.add(watched, found)
    explained = find(snapshot, known_kinds()[kind].infos, name, "default")
    assert explained is not None
    return explain(snapshot, explained)


def rack(name: str, cpu: int) -> Raw:
    return node(name, cpu, labels={RACK: name[0]})


def test_a_gang_that_lacks_pods() -> None:
    group, pods = core_group("g", 3), core_pods("g", 2)
    report = report_on("podgroup", "g", node("n1", 4), group, *pods)
    assert report.summary == (
        "0 of 2 members have a node, 3 are needed. It has too few pods: 2 of the 3 pods it needs."
    )
    created, lowered = report.advice
    assert created.text.startswith("create 1 more pod of PodGroup default/g")
    assert lowered.text.startswith("lower minCount of PodGroup default/g to 2")
    report = report_on("pod", "g-0", node("n1", 4), core_group("g", 3), *core_pods("g", 2))
    assert "waiting for minCount pods from a gang to appear in scheduling queue" in report.summary


def test_how_many_members_fit_in_each_domain() -> None:
    nodes = [rack("a1", 1), rack("b1", 2), node("elsewhere", 16)]
    group = core_group("g", 3, topology=RACK)
    report = report_on("podgroup", "g", *nodes, group, *core_pods("g", 3))
    assert report.phase == "Unschedulable"
    assert "Only 2 more fit now" in report.summary
    assert f"{RACK}=a: 1 of 3 pending members fit" in report.details
    assert f"{RACK}=b: 2 of 3 pending members fit" in report.details


def test_no_node_has_the_label() -> None:
    group = core_group("g", 1, topology=RACK)
    report = report_on("podgroup", "g", node("n1", 4), group, *core_pods("g", 1))
    text = f"all members must be on nodes with the same {RACK}, but no node has this label"
    assert text in report.details


def test_a_pod_is_bound_to_the_domain_of_its_group() -> None:
    nodes = [rack("a1", 1), node("elsewhere", 16)]
    pods = core_pods("g", 2)
    report = report_on("pod", "g-1", *nodes, core_group("g", None, topology=RACK), *pods)
    where = "PodGroup default/g is there"
    assert f"only nodes with {RACK}=a are considered: {where}" in report.details

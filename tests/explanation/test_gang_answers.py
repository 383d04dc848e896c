"""Random gangs: `explain` agrees with a scheduler that knows nothing of explanations.

It says that a gang starts now if and only if it does, and each piece of advice, applied to the objects,
makes it start.
"""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st

from explanation.test_situations import FACTORY, changed, in_default, world_of
from harness.objects import Raw, core_group, node, pod, pod_group
from harness.world import START
from holdfast.explanation.explainer import explain
from holdfast.explanation.report import Report
from holdfast.explanation.subjects.no_node import NOTHING_HELPS
from holdfast.kube.decoding import WATCHED
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


@st.composite
def nodes(draw: st.DrawFn) -> list[Raw]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        spec: Raw = {"unschedulable": True} if draw(st.integers(0, 7)) == 0 else {}
        labels = {"rack": draw(st.sampled_from("ab")), "disk": draw(st.sampled_from(["ssd", "hdd"]))}
        cpu = draw(st.sampled_from([2, 4, 6, 8]))
        found.append(node(f"n{number}", cpu, labels=labels, uid=f"n{number}", **spec))
    return found


@st.composite
def members(draw: st.DrawFn, spec: Raw) -> list[Raw]:
    found = []
    for name in draw(st.permutations("paqz").map(lambda names: names[: draw(st.integers(1, 4))])):
        own: Raw = dict(spec)
        if draw(st.integers(0, 5)) == 0:
            own["schedulingGates"] = [{"name": "example.com/quota"}]
        if draw(st.integers(0, 5)) == 0:
            own["nodeSelector"] = {"disk": "ssd"}
        if draw(st.integers(0, 9)) == 0:
            own["schedulerName"] = "other"
        created = f"2025-12-31T23:59:0{draw(st.integers(0, 3))}Z"
        metadata = {"namespace": "default", "uid": name, "creationTimestamp": created}
        found.append(pod(name, draw(st.integers(1, 6)), metadata=metadata, **own))
    return found


@st.composite
def gangs(draw: st.DrawFn) -> list[Raw]:
    if draw(st.booleans()):
        pods = draw(members({"group": "g"}))
        group = pod_group("g", draw(st.integers(1, len(pods) + 1)))
    else:
        pods = draw(members({"schedulingGroup": {"podGroupName": "g"}}))
        topology = draw(st.sampled_from(["", "rack"]))
        group = core_group("g", draw(st.integers(1, len(pods) + 1)), topology=topology)
    return [*draw(nodes()), in_default(group), *pods]


def report_of_group(objects: list[Raw]) -> Report:
    snapshot = ClusterSnapshot(FACTORY.scheduler(), START)
    for watched in WATCHED:
        kinds = (watched.info.api_version, watched.info.kind)
        if not watched.ended:
            found = [raw for raw in objects if (raw["apiVersion"], raw["kind"]) == kinds]
            snapshot.add(watched, copy.deepcopy(found))
    (group,) = [raw for raw in objects if raw["kind"] == "PodGroup"]
    return explain(snapshot, group)


def starts(objects: list[Raw]) -> bool:
    """Whether the scheduler binds as many members as the gang needs."""
    world = world_of(objects)
    bound = [name for kind, name in world.objects if kind == "Pod" and world.node_of(name)]
    spec = world.objects["PodGroup", "g"]["spec"]
    needed = spec.get("minMember") or spec["schedulingPolicy"]["gang"]["minCount"]
    return len(bound) >= int(needed)


@settings(max_examples=60)
@given(gangs())
def test_explain_agrees_with_the_scheduler(objects: list[Raw]) -> None:
    report = report_of_group(objects)
    assert ("it is queued" in report.summary) == starts(objects), report.summary
    for advice in report.advice:
        assert starts(changed(objects, advice.change)), advice.text
    is_without_advice = NOTHING_HELPS in report.details or "it is queued" in report.summary
    assert not (report.advice and is_without_advice), report


def test_a_gang_with_a_member_that_does_not_exist_on_a_cordoned_node() -> None:
    """Members that would have to be created can be given smaller requests, but are not there yet."""
    cordoned = node("n0", 2, labels={"disk": "ssd"})
    cordoned["spec"]["unschedulable"] = True
    gated = pod("p", 2, group="g", nodeSelector={"disk": "ssd"}, schedulingGates=[{"name": "a/quota"}])
    objects = [cordoned, in_default(pod_group("g", 2)), in_default(gated)]
    report = report_of_group(objects)
    assert "1 more must be created" in " ".join(report.details)
    for advice in report.advice:
        assert starts(changed(objects, advice.change)), advice.text

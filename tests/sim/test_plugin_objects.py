"""Scenarios with objects that only plugins read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.objects import pod
from harness.scenarios import step
from harness.team_quotas import FULL, QUOTA, TeamQuotas, config, quota
from holdfast.api.documents import Document
from holdfast.api.raw_objects import ObjectKind
from holdfast.local.setup import SchedulerFactory
from holdfast.scheduler.framework.config import load
from holdfast.scheduler.framework.interface import Plugin
from holdfast.scheduler.framework.registry import Registry
from holdfast.scheduler.plugins import IN_TREE
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Result, Simulation
from holdfast.snapshot.manifests import InvalidInput

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
}


def setup(*plugins: type[Plugin], on: bool = True) -> SchedulerFactory:
    registry = Registry([*IN_TREE, *plugins])
    mapping = config()
    enabled = [{"name": plugin.name} for plugin in plugins] if on else []
    mapping["profiles"][0]["plugins"]["multiPoint"]["enabled"] = enabled
    return SchedulerFactory(load(mapping, registry.implements()), registry)


def team_pod(name: str, team: str = "a", **times: str) -> dict[str, Any]:
    return pod(name, labels={"team": team}, annotations={}, **times)


def expect(**what: Any) -> dict[str, Any]:
    return {"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Expect", **what}


def documents(*objects: dict[str, Any]) -> list[Document]:
    return [
        Document("s.yaml", number, 1, json.loads(json.dumps(o))) for number, o in enumerate(objects)
    ]


def played(*objects: dict[str, Any], plugins: tuple[type[Plugin], ...] = (TeamQuotas,)) -> Result:
    made = setup(*plugins)
    result = Simulation(read_scenario(documents(*objects), made.object_kinds()), made).run(300.0)
    assert result.unmet == []
    return result


def refused(*objects: dict[str, Any], on: bool = True) -> list[str]:
    made = setup(TeamQuotas, on=on)
    with pytest.raises(InvalidInput) as caught:
        Simulation(read_scenario(documents(*objects), made.object_kinds()), made).run(300.0)
    return caught.value.problems


TARGET = {"kind": "TeamQuota", "name": "a"}
NONE = "0/1 nodes are available: no TeamQuota a. preemption: 0/1 nodes are available: "


def test_objects_are_created_changed_and_deleted_by_the_scenario() -> None:
    later = quota("a")
    later["metadata"]["annotations"] = {"sim.holdfast.io/at": "10s"}
    result = played(
        NODE,
        later,
        team_pod("p1"),
        team_pod("p2", at="11s"),
        step("30s", patch={**TARGET, "merge": {"spec": {"maxCPU": 2}}}),
        step("60s", apply=quota("a", maxCPU=2, closed=True)),
        team_pod("p3", at="61s"),
        step("70s", apply=quota("a", maxCPU=9)),
        step("80s", delete=TARGET),
        team_pod("p4", at="81s"),
        step("90s", restart="scheduler"),
        expect(at="5s", pending={"p1": ""}),
        expect(at="20s", bound={"p1": "n1"}, pending={"p2": f"0/1 nodes are available: 1 {FULL}. "
               "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."}),
        expect(at="40s", bound={"p2": "n1"}),
        expect(at="65s", pending={"p3": ""}),
        expect(at="75s", bound={"p3": "n1"}),
        expect(pending={"p4": ""}, absent=["TeamQuota/default/a"]),
    )  # fmt: skip
    entries = [(e.t, e.event) for e in result.timeline if e.object == "TeamQuota/default/a"]
    assert entries == [(10.0, "Created"), (80.0, "Deleted")]


def test_a_scheduler_that_restarts_knows_the_objects_again() -> None:
    played(
        NODE,
        quota("a"),
        step("10s", restart="scheduler"),
        team_pod("p", at="20s"),
        expect(bound={"p": "n1"}),
    )


def test_the_same_name_again_and_delete_at() -> None:
    short = quota("a", closed=True)
    short["metadata"]["annotations"] = {"sim.holdfast.io/delete-at": "10s"}
    played(NODE, short, step("20s", apply=quota("a")), team_pod("p"), expect(bound={"p": "n1"}))


def test_objects_end_with_their_namespace() -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    played(
        NODE,
        space,
        quota("a", "x"),
        step("10s", delete={"kind": "Namespace", "name": "x"}),
        expect(at="5s", absent=["TeamQuota/default/a"]),
        expect(absent=["TeamQuota/x/a"]),
    )


SITE = ObjectKind("example.com", "v1", "Reservation", "reservations", namespaced=False)


class Sites(Plugin):
    """Reads a cluster-scoped kind that has the name of another."""

    name = "Sites"
    reads_objects = (SITE,)

    def pre_enqueue(self, pod: Any) -> str:
        return "" if ("", "r") in self.handle.objects(SITE) else "closed"


def test_a_kind_of_the_same_name_in_another_group_is_another_kind() -> None:
    site = {
        "apiVersion": "example.com/v1",
        "kind": "Reservation",
        "metadata": {"name": "r", "namespace": "ignored"},
        "spec": {"template": None, "owners": "nobody"},
    }
    named = {"kind": "Reservation", "name": "r", "apiVersion": "example.com/v1"}
    result = played(
        NODE,
        team_pod("p"),
        step("10s", apply=site),
        step("20s", patch={**named, "merge": {"spec": {"owners": None}}}),
        expect(bound={"p": "n1"}),
        plugins=(Sites,),
    )
    [kept] = [raw for raw in result.objects if raw["apiVersion"] == "example.com/v1"]
    assert kept["spec"] == {"template": None}
    played(
        NODE,
        site,
        step("10s", delete=named),
        team_pod("p", at="20s"),
        expect(pending={"p": ""}, absent=["Reservation/r"]),
        plugins=(Sites,),
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"apiVersion": "example.com/v2"}, "no TeamQuota in 'example.com/v2'; known: example.com/v1"),
        ({"kind": "TeamQouta"}, "unknown kind 'TeamQouta'; did you mean TeamQuota?"),
        ({"apiVersion": "exmaple.com/v1"}, "no TeamQuota in 'exmaple.com/v1'; known: example.com/v1"),
        ({"metadata": {}}, "metadata.name: Required value: name or generateName is required"),
        ({"metadata": {"name": "A b"}}, "metadata.name: "),
        (
            {"metadata": "a"},
            "metadata: json: cannot unmarshal string into",
        ),
    ],
)
def test_errors_of_an_object_are_reported(wrong: dict[str, Any], message: str) -> None:
    [problem] = refused(NODE, {**quota("a"), **wrong})
    assert message in problem
    [problem] = refused(NODE, step("1s", apply={**quota("a"), **wrong}))
    assert message in problem


def test_a_step_on_an_unknown_kind_is_refused_with_a_suggestion() -> None:
    [problem] = refused(NODE, step("1s", delete={"kind": "TeamQuoat", "name": "a"}))
    assert "unknown kind 'TeamQuoat'; did you mean TeamQuota?" in problem
    [problem] = refused(NODE, step("1s", delete=TARGET), on=False)
    assert "unknown kind 'TeamQuota'" in problem
    [problem] = refused(NODE, step("1s", delete=TARGET))
    assert "there is no such object at this time" in problem


def test_other_kinds_of_other_groups_are_skipped_as_before() -> None:
    other = {"apiVersion": "example.com/v1", "kind": "Backup", "metadata": {"name": "b"}}
    scenario = read_scenario(documents(NODE, other), (QUOTA,))
    assert scenario.notes == ("skipped: 1 Backup",)
    assert read_scenario(documents(NODE, quota("a"))).notes == ("skipped: 1 TeamQuota",)


def test_a_run_whose_configuration_has_no_such_plugin_keeps_the_objects_unread() -> None:
    """As the runs with several configurations of one scenario do."""
    scenario = read_scenario(
        documents(NODE, quota("a", closed=True), team_pod("p"), step("9s", delete=TARGET)), (QUOTA,)
    )
    for on, bound in ((True, None), (False, "n1")):
        result = Simulation(scenario, setup(TeamQuotas, on=on)).run(5.0)
        [found] = [raw for raw in result.objects if raw["kind"] == "Pod"]
        assert found["spec"].get("nodeName") == bound
        assert "TeamQuota" in {raw["kind"] for raw in result.objects}


CONFIG_MAP = ObjectKind("", "v1", "ConfigMap", "configmaps")
SERVICE = ObjectKind("", "v1", "Service", "services")


class Maps(Plugin):
    """Reads a kind that Kubernetes has and Holdfast skips, and one it reads itself."""

    name = "Maps"
    reads_objects = (CONFIG_MAP, SERVICE)

    def pre_enqueue(self, pod: Any) -> str:
        objects = self.handle.objects
        found = objects(CONFIG_MAP).get(("default", "m")), objects(SERVICE).get(("default", "s"))
        return "" if all(found) else "closed"


def test_a_plugin_may_read_kinds_of_kubernetes_own() -> None:
    played(
        NODE,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}},
        team_pod("p"),
        step(
            "10s",
            apply={
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "s"},
                "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]},
            },
        ),
        expect(at="5s", pending={"p": ""}),
        expect(bound={"p": "n1"}),
        plugins=(Maps,),
    )


def test_jobs_and_reservations_wait_for_objects_as_pods_do() -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 2},
    }
    members = [team_pod(f"m{i}") for i in range(2)]
    for member in members:
        member["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "g"
    template = team_pod("t", team="b")
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {
            "template": {"metadata": {"labels": {"team": "b"}}, "spec": template["spec"]},
            "owners": [{"labelSelector": {"matchLabels": {"team": "b"}}}],
        },
    }
    second = {**NODE, "metadata": {"name": "n2"}}
    result = played(
        NODE,
        second,
        group,
        *members,
        reservation,
        step("60s", apply=quota("a")),
        step("90s", apply=quota("b", maxCPU=9)),
        expect(at="50s", pending={"m0": "", "m1": ""}),
        expect(at="80s", pending={}, bound={"m0": ["n1", "n2"], "m1": ["n1", "n2"]}),
    )
    times = {e.object: e.t for e in result.timeline if e.event in ("Bound", "Available")}
    assert 60 <= times["Pod/default/m0"] < 75 and 90 <= times["Reservation/r"] < 105


def test_many_kinds_of_pods_that_wait_for_one_object_are_all_placed() -> None:
    """More than those whose reasons are kept up to date at every change."""
    waiting = [team_pod(f"p{i}") for i in range(130)]
    for number, each in enumerate(waiting):
        each["metadata"]["labels"]["number"] = str(number)
        each["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1m"
    result = played(
        {**NODE, "status": {"allocatable": {"cpu": "8", "pods": "200"}}},
        *waiting,
        step("60s", apply=quota("a", maxCPU=9)),
    )
    assert sum(entry.event == "Bound" for entry in result.timeline) == 130

"""PodGroups and Workloads of `scheduling.k8s.io`: defaults, validation, updates, columns."""

from __future__ import annotations

from typing import Any

import pytest

from harness.apiserver import MERGE, LiveServer
from harness.objects import pod

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
WORKLOADS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/workloads"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PODS = "/api/v1/namespaces/default/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {**GANG, **spec}}


def messages(answer: Any) -> list[str]:
    causes = answer.body["details"]["causes"]
    return [f"{cause['field']}: {cause['message']}" for cause in causes]


def test_a_new_group_gets_defaults_and_a_priority(server: LiveServer) -> None:
    server.post(CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    made = server.post(GROUPS, group("g", priorityClassName="urgent")).body
    assert made["spec"]["disruptionMode"] == {"single": {}}
    assert made["spec"]["priority"] == 1000
    assert made["status"] == {}
    basic = server.post(GROUPS, group("b", schedulingPolicy={"basic": {}})).body
    assert basic["spec"]["schedulingPolicy"] == {"basic": {}}
    assert basic["spec"]["priority"] == 0


def test_a_priority_must_be_that_of_the_class(server: LiveServer) -> None:
    answer = server.post(GROUPS, group("g", priority=7))
    assert answer.code == 403
    assert (
        "priority set in the pod group (7) must match the priority computed (0) based on the priority "
        "class set in the spec" in answer.body["message"]
    )
    answer = server.post(GROUPS, group("g", priorityClassName="none"))
    assert "no PriorityClass with name none was found" in answer.body["message"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"schedulingPolicy": {}},
            'spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`',
        ),
        (
            {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}},
            'spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: '
            "`basic`, `gang`",
        ),
        (
            {"schedulingPolicy": {"gang": {}}},
            "spec.schedulingPolicy.gang.minCount: Required value",
        ),
        (
            {"schedulingPolicy": {"gang": {"minCount": -1}}},
            "spec.schedulingPolicy.gang.minCount: Invalid value: -1: "
            "must be greater than or equal to 1",
        ),
        (
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item",
        ),
        (
            {"schedulingConstraints": {"topology": [{}]}},
            "spec.schedulingConstraints.topology[0].key: Required value",
        ),
        (
            {"disruptionMode": {"single": {}, "all": {}}},
            'spec.disruptionMode: Invalid value: "{single, all}": must specify exactly one of: '
            "`single`, `all`",
        ),
        (
            {"workloadRef": {"workloadName": "w"}},
            "spec.workloadRef.templateName: Required value",
        ),
        (
            {"resourceClaims": [{"name": "c"}]},
            'spec.resourceClaims[0]: Invalid value: "": must specify one of: `resourceClaimName`, '
            "`resourceClaimTemplateName`",
        ),
    ],
)
def test_an_invalid_group_is_refused(server: LiveServer, spec: dict[str, Any], expected: str) -> None:
    answer = server.post(GROUPS, group("g", **spec))
    assert answer.code == 422
    assert messages(answer) == [expected]


def test_only_min_count_of_a_group_may_change(server: LiveServer) -> None:
    server.post(GROUPS, group("changed"))
    fewer = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    changed = server.patch(f"{GROUPS}/changed", fewer, MERGE)
    assert changed.body["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2
    assert "generation" not in changed.body["metadata"]
    patch: dict[str, Any] = {"schedulingPolicy": {"gang": None, "basic": {}}}
    patch |= {"disruptionMode": {"single": None, "all": {}}, "workloadRef": None}
    answer = server.patch(f"{GROUPS}/changed", {"spec": patch}, MERGE)
    assert messages(answer) == [
        "spec.schedulingPolicy.basic: Invalid value: null: field is immutable",
        "spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set",
        "spec.disruptionMode: Invalid value: null: field is immutable",
    ]


def test_the_status_is_a_subresource_and_shown_in_the_table(server: LiveServer) -> None:
    server.post(GROUPS, group("seen", workloadRef={"workloadName": "w", "templateName": "t"}))
    condition = {
        "type": "PodGroupInitiallyScheduled",
        "status": "True",
        "reason": "Scheduled",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"status": {"conditions": [condition]}}
    server.patch(f"{GROUPS}/seen", status, MERGE)
    assert server.get(f"{GROUPS}/seen").body["status"] == {}
    server.patch(f"{GROUPS}/seen/status", {**status, "spec": {"priority": 5}}, MERGE)
    found = server.get(f"{GROUPS}/seen").body
    assert found["status"]["conditions"] == [condition]
    assert found["spec"]["priority"] == 0
    table = server.get(GROUPS, accept=TABLE).body
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Policy",
        "Workload",
        "Status",
        "Age",
    ]
    assert ["seen", "Gang", "w", "Scheduled"] in [row["cells"][:4] for row in table["rows"]]


def test_conditions_of_the_status_are_validated(server: LiveServer) -> None:
    server.post(GROUPS, group("checked"))
    status = {"status": {"conditions": [{"type": "X", "status": "maybe"}]}}
    answer = server.patch(f"{GROUPS}/checked/status", status, MERGE)
    assert messages(answer) == [
        'status.conditions[0].status: Unsupported value: "maybe": supported values: "False", "True", '
        '"Unknown"',
        "status.conditions[0].lastTransitionTime: Required value",
        "status.conditions[0].reason: Required value",
    ]


def test_templates_of_a_workload_follow_the_rules_of_groups(server: LiveServer) -> None:
    template = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}
    answer = server.post(WORKLOADS, {"metadata": {"name": "w"}, "spec": {}})
    assert messages(answer) == [
        'spec: Invalid value: "": must specify one of: `podGroupTemplates`, '
        "`compositePodGroupTemplates`"
    ]
    made = server.post(
        WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}}
    )
    assert made.code == 201
    more = {"spec": {"podGroupTemplates": [template, {**template, "name": "u"}]}}
    answer = server.patch(f"{WORKLOADS}/w", more, MERGE)
    assert messages(answer) == ["spec.podGroupTemplates[1]: Forbidden: item may not be added"]


def test_a_pod_names_its_group(server: LiveServer) -> None:
    member = pod("p")
    member["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    made = server.post(PODS, member).body
    assert made["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    member["spec"]["schedulingGroup"] = {"podGroupName": "G"}
    answer = server.post(PODS, member)
    assert answer.body["details"]["causes"][0]["field"] == "spec.schedulingGroup.podGroupName"

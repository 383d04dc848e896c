"""Invalid PodGroups and Workloads of `scheduling.k8s.io`, and invalid changes of them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
LONG = "x" * 70
BASIC: Json = {"basic": {}}


def gang(count: Any = 2) -> Json:
    return {"gang": {"minCount": count}}


def group(**spec: Any) -> Json:
    return {"schedulingPolicy": gang(), **spec}


def template(name: str = "t", **spec: Any) -> Json:
    return {"name": name, **group(**spec)}


def claims(*entries: Json) -> Json:
    return group(resourceClaims=list(entries))


GROUPS: dict[str, Json] = {
    "nothing": {},
    "no policy": {"schedulingPolicy": {}},
    "both policies": {"schedulingPolicy": {**BASIC, **gang()}},
    "no count": {"schedulingPolicy": {"gang": {}}},
    "count": {"schedulingPolicy": gang(-1)},
    "count of zero": {"schedulingPolicy": gang(0)},
    "count as a text": {"schedulingPolicy": gang("2")},
    "unknown field": group(minCount=2),
    "empty reference": group(workloadRef={}),
    "reference": group(workloadRef={"workloadName": "A_", "templateName": "a.b"}),
    "long reference": group(workloadRef={"workloadName": "w", "templateName": LONG}),
    "two topology keys": group(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}),
    "topology key": group(schedulingConstraints={"topology": [{"key": "a b/c"}]}),
    "no topology key": group(schedulingConstraints={"topology": [{}]}),
    "no mode": group(disruptionMode={}),
    "both modes": group(disruptionMode={"single": {}, "all": {}}),
    "priority": group(priority=1_000_000_001),
    "priority of no class": group(priority=5),
    "class that does not exist": group(priorityClassName="none-such"),
    "class name": group(priorityClassName="A_"),
    "claim without a source": claims({"name": "c"}),
    "claim with both sources": claims(
        {"name": "c", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}
    ),
    "claim names": claims({"name": "C_", "resourceClaimName": "A_"}),
    "claim without a name": claims({"resourceClaimName": "a"}),
    "same claim name": claims(
        {"name": "c", "resourceClaimName": "a"}, {"name": "c", "resourceClaimTemplateName": "b"}
    ),
    "five invalid claims": claims(*({"name": "c"} for _ in range(5))),
    "five claims": claims(*({"name": f"c{i}", "resourceClaimName": "a"} for i in range(5))),
    "template name": claims({"name": "c", "resourceClaimTemplateName": f"{LONG * 4}"}),
}
WORKLOADS: dict[str, Json] = {
    "nothing": {},
    "no templates": {"podGroupTemplates": []},
    "nine templates": {"podGroupTemplates": [template(f"t{i}") for i in range(9)]},
    "same name": {"podGroupTemplates": [template(), template()]},
    "name": {"podGroupTemplates": [template("T.")]},
    "no name": {"podGroupTemplates": [template("")]},
    "policy": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {}}]},
    "controller": {
        "podGroupTemplates": [template()],
        "controllerRef": {"apiGroup": "A_", "kind": "a/b", "name": "%"},
    },
    "empty controller": {"podGroupTemplates": [template()], "controllerRef": {}},
    "two priorities": {"podGroupTemplates": [template("a", priority=1), template("b", priority=2)]},
    "claims of a template": {
        "podGroupTemplates": [template(resourceClaims=[{"name": "c"}])],
    },
}
STORED = group(
    disruptionMode={"all": {}},
    workloadRef={"workloadName": "w", "templateName": "t"},
    resourceClaims=[{"name": "c", "resourceClaimName": "a"}],
)
"""What is changed."""
CHANGES: dict[str, Json] = {
    "count": {"spec": {"schedulingPolicy": {"gang": {"minCount": 0}}}},
    "policy": {"spec": {"schedulingPolicy": {"gang": None, "basic": {}}}},
    "reference": {"spec": {"workloadRef": {"workloadName": "other"}}},
    "no reference": {"spec": {"workloadRef": None}},
    "mode": {"spec": {"disruptionMode": {"all": None, "single": {}}}},
    "claims": {"spec": {"resourceClaims": None}},
    "claim": {"spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "b"}]}},
    "priority": {"spec": {"priority": 7}},
    "class": {"spec": {"priorityClassName": "system-node-critical"}},
    "topology": {"spec": {"schedulingConstraints": {"topology": [{"key": "a"}]}}},
}
STATUSES: dict[str, Json] = {
    "condition": {"conditions": [{"type": "a b", "status": "x", "reason": "", "message": ""}]},
    "claim status": {"resourceClaimStatuses": [{"name": "nope", "resourceClaimName": "a"}]},
    "claim status without a name": {"resourceClaimStatuses": [{"resourceClaimName": "a"}]},
    "claim status name": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "A_"}]},
    "claim statuses": {"resourceClaimStatuses": [{"name": "c"}, {"name": "c"}]},
    "many claim statuses": {"resourceClaimStatuses": [{"name": "c"}] * 5},
    "long claim status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": LONG * 4}]},
}
STORED_WORKLOAD: Json = {"podGroupTemplates": [template("a"), template("b")]}
WORKLOAD_CHANGES: dict[str, Json] = {
    "less": {"spec": {"podGroupTemplates": [template("a")]}},
    "more": {"spec": {"podGroupTemplates": [template("a"), template("b"), template("c")]}},
    "policy": {"spec": {"podGroupTemplates": [template("a", schedulingPolicy=BASIC), template("b")]}},
    "controller": {"spec": {"controllerRef": {"kind": "Job", "name": "j"}}},
}

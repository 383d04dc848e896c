"""Invalid claims, classes, slices, and pods with claims."""

from __future__ import annotations

from typing import Any

from harness.objects import pod

Json = dict[str, Any]
LONG = "x" * 70


def exactly(**fields: Any) -> Json:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", **fields}}


def devices(*requests: Json, **fields: Any) -> Json:
    return {"devices": {"requests": list(requests), **fields}}


def selector(expression: str) -> Json:
    return {"selectors": [{"cel": {"expression": expression}}]}


def opaque(**fields: Any) -> Json:
    return {"opaque": {"driver": "d.io", "parameters": {"a": 1}, **fields}}


CLAIMS: dict[str, Json] = {
    "no request kind": devices({"name": "r"}),
    "both request kinds": devices(
        {**exactly(), "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]}
    ),
    "names": devices({"name": "R_", "exactly": {"deviceClassName": "G_"}}),
    "no names": devices({"name": "", "exactly": {"deviceClassName": ""}}),
    "same name": devices(exactly(), exactly()),
    "count": devices(exactly(count=-1)),
    "count of all": devices(exactly(allocationMode="All", count=2)),
    "mode": devices(exactly(allocationMode="Some")),
    "many": devices(*({"name": f"r{i}", "exactly": {"deviceClassName": "g"}} for i in range(33))),
    "alternatives": devices(
        {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "a", "count": -1}] * 2}
    ),
    "many alternatives": devices(
        {
            "name": "r",
            "firstAvailable": [{"name": f"s{i}", "deviceClassName": "a"} for i in range(9)],
        }
    ),
    "selector without cel": devices(exactly(selectors=[{}])),
    "selector that is too long": devices(exactly(**selector("true || " * 1400 + "true"))),
    "constraints": devices(
        exactly(),
        constraints=[
            {"requests": ["nope", "r", "r"], "matchAttribute": "bare"},
            {"requests": ["a/b/c", "r/x"], "matchAttribute": "a.io/1x"},
            {"matchAttribute": f"/{LONG}"},
            {"matchAttribute": "a.io/"},
        ],
    ),
    "config": devices(
        exactly(),
        config=[
            {},
            opaque(driver=""),
            opaque(driver="_"),
            opaque(driver=LONG),
            opaque(parameters=None),
            opaque(parameters=[1]),
            opaque(parameters={"a": "x" * 11_000}),
            {"requests": ["nope"], **opaque()},
        ],
    ),
}
CLASSES: dict[str, Json] = {
    "selector": {"selectors": [{}]},
    "config": {"config": [{}]},
    "many selectors": selector("true") | {"selectors": [{"cel": {"expression": "true"}}] * 33},
}


def sliced(*all_devices: Json, **fields: Any) -> Json:
    pool = {"name": "p", "resourceSliceCount": 1}
    return {"driver": "d.io", "pool": pool, "allNodes": True, "devices": list(all_devices), **fields}


SLICES: dict[str, Json] = {
    "empty": {},
    "driver and pool": sliced(
        driver="_", pool={"name": "a/_", "resourceSliceCount": 0, "generation": -1}
    ),
    "no nodes": sliced(allNodes=None),
    "not all nodes": sliced(allNodes=False),
    "nodes twice": sliced(nodeName="n"),
    "empty node name": sliced(nodeName="", allNodes=None),
    "node name": sliced(nodeName="N_", allNodes=None),
    "node selector": sliced(
        allNodes=None,
        nodeSelector={
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In"}]},
            ]
        },
    ),
    "device names": sliced({"name": "A"}, {"name": "b"}, {"name": "b"}),
    "many devices": sliced(*({"name": f"d{i}"} for i in range(129))),
    "attributes": sliced(
        {
            "name": "d",
            "attributes": {
                "none": {},
                "long": {"string": LONG},
                "version": {"version": "1.2"},
            },
        }
    ),
    "many attributes": sliced({"name": "d", "attributes": {f"a{i}": {"int": i} for i in range(33)}}),
}


def using(claims: list[Json], of_container: list[Json] | None = None) -> Json:
    resources = {"claims": of_container} if of_container is not None else {}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    return pod("p", resourceClaims=claims, containers=containers)


BY_NAME = {"name": "a", "resourceClaimName": "x"}
PODS: dict[str, Json] = {
    "claim without a name": using([{"resourceClaimName": "x"}]),
    "same claim": using([BY_NAME, BY_NAME]),
    "names": using([{"name": "A_", "resourceClaimName": "X_"}]),
    "template name": using([{"name": "a", "resourceClaimTemplateName": "X_"}]),
    "claim of a container": using([BY_NAME], [{"name": "b"}]),
    "no claims": using([], [{"name": "b"}]),
    "claim of a container twice": using([BY_NAME], [{"name": "a"}, {"name": "a"}]),
    "claim and request": using([BY_NAME], [{"name": "a", "request": "r"}, {"name": "a"}]),
    "request twice": using([BY_NAME], [{"name": "a", "request": "r"}] * 2),
    "request name": using([BY_NAME], [{"name": "a", "request": "R_"}]),
    "container claim without a name": using([BY_NAME], [{"name": ""}]),
}

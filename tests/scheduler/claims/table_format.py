"""The tables of allocation cases, and a cluster for one case.

A table is a YAML list. A case has slices, claims, devices in use, and what the claims get on a node:

    - case: what it shows
      node: alpha                       default; its labels are `region` (east) and `world` (one)
      classes: {gpus: gpu}              default: the class gpus has all devices of the driver gpu
      slices:
        - {slice: slice-1, pool: gpu/rack-1, of: 1, generation: 1, at: alpha, devices: [dev-1, dev-2]}
      in_use: [gpu/rack-1/dev-2]
      shares: {gpu/rack-1/dev-1: {memory: 2}}
      claims:
        job: {requests: {main: gpus x 2}, match: [gpu/socket]}
      gives:
        job: [{main: gpu/rack-1/dev-1}]

`at` is a node name, `all`, `each` (devices have their own), or labels. A request is a class, a class
and a number (or `all`), a map of all fields, or a list of alternatives. `gives` lists devices in order;
with `at` and `config` where they are not the node and nothing. A case without `gives` has `error`,
`refused`, or is refused for lack of devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from holdfast.api.meta import ObjectMeta
from holdfast.api.node import Node
from holdfast.api.resource_claims import (
    AllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaimSpec,
)
from holdfast.api.resource_slices import ResourceSlice
from holdfast.scheduler.cluster.node_table import NodeTable, node_info
from holdfast.scheduler.managers.claims import (
    ClaimName,
    ClaimsAllocator,
    DeviceCatalogue,
    DeviceUse,
)

Case = dict[str, Any]
TABLES = Path(__file__).parent / "tables"
_RUN = re.compile(r"(.*-)(\d+)\.\.(\d+)")
_TAINT = re.compile(r"([^=:]*)(?:=([^:]*))?:(.*)")


def cases() -> Iterator[tuple[str, Case]]:
    for path in sorted(TABLES.glob("*.yaml")):
        for case in yaml.safe_load(path.read_text()):
            yield f"{path.stem}: {case['case']}", case


class CaseCluster:
    """The cluster of one case, with the allocator."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.node = case.get("node", "alpha")
        self.nodes = NodeTable()
        labels = {"region": case.get("region", "east"), "world": "one"}
        self.row = self.nodes.open_row(self.node)
        metadata = ObjectMeta(name=self.node, labels=labels)
        self.nodes.put(self.row, node_info(Node(metadata=metadata)))
        self.catalogue = DeviceCatalogue(self.nodes)
        self.use = DeviceUse(self.catalogue.table)
        self.allocator = ClaimsAllocator(self.catalogue, self.nodes)
        for name, given in case.get("classes", {"gpus": "gpu"}).items():
            self.catalogue.put_class(device_class(name, given))
        for given in case.get("slices", ()):
            self.catalogue.put_slice(slice_of(given))
        for number, id in enumerate(case.get("in_use", ())):
            self.use.add(f"user-{number}", (_use(id),))
        for id, consumed in case.get("shares", {}).items():
            self.use.add(f"sharer of {id}", (_use(id, shareID="share", consumedCapacity=consumed),))
        self.claims = {name: claim_spec(given) for name, given in case.get("claims", {}).items()}
        self.names = [ClaimName("", name) for name in self.claims]
        self.request = self.allocator.request(list(self.claims.values()))


def device_class(name: str, given: Any) -> DeviceClass:
    if isinstance(given, str):
        given = {"where": [f'device.driver == "{given}"']}
    spec = {
        "selectors": [{"cel": {"expression": text}} for text in given["where"]],
        "config": [_config(each) for each in given.get("config", ())],
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)


def slice_of(given: Case) -> ResourceSlice:
    driver, pool = given["pool"].split("/")
    devices = given.get("devices", ())
    spec = {
        "driver": driver,
        "pool": {
            "name": pool,
            "generation": given.get("generation", 1),
            "resourceSliceCount": given.get("of", 1),
        },
        **_where(given.get("at", "alpha")),
        "devices": [_device(each) for each in (_run(devices) if isinstance(devices, str) else devices)],
        "sharedCounters": [
            {"name": name, "counters": _counters(counters)}
            for each in given.get("counters", ())
            for name, counters in each.items()
        ],
    }
    return msgspec.convert({"metadata": {"name": given["slice"]}, "spec": spec}, ResourceSlice)


def claim_spec(given: Case) -> ResourceClaimSpec:
    constraints = [
        {
            **({f"{kind}Attribute": _attribute_name(each)} if kind != "empty" else {}),
            "requests": each["of"] if isinstance(each, dict) else [],
        }
        for kind in ("match", "distinct", "empty")
        for each in given.get(kind, ())
    ]
    requests = [
        {"name": name, "firstAvailable": [_alternative(each) for each in asked]}
        if isinstance(asked, list)
        else {"name": name, "exactly": _demand(asked)}
        for name, asked in given["requests"].items()
    ]
    devices = {
        "requests": requests,
        "constraints": constraints,
        "config": [_config(each) for each in given.get("config", ())],
    }
    return msgspec.convert({"devices": devices}, ResourceClaimSpec)


def expected(given: Any, node: str) -> Case:
    """What a claim gets, in the form of `shown`."""
    if isinstance(given, list):
        given = {"devices": given}
    devices: list[Case] = []
    for each in given["devices"]:
        (request, id), *rest = each.items()
        devices += [{request: one, **dict(rest)} for one in (_run(id) if ".." in id else [id])]
    for each in devices:
        if "share" in each:
            each["share"] = {name: str(amount) for name, amount in each["share"].items()}
    return {"devices": devices, "at": given.get("at", node), "config": given.get("config", [])}


def shown(result: AllocationResult) -> Case:
    devices = []
    for each in result.devices.results:
        line: Case = {each.request: str(each.device_id)}
        if each.share_id is not None:
            line["share"] = dict(each.consumed_capacity)
        if each.admin_access:
            line["admin"] = True
        devices.append(line)
    config = [
        {
            "driver": each.opaque.driver if each.opaque else "",
            "profile": each.opaque.parameters["profile"] if each.opaque else "",
            **({"requests": list(each.requests)} if each.requests else {}),
            "from": each.source,
        }
        for each in result.devices.config
    ]
    return {"devices": devices, "at": _shown_selector(result), "config": config}


def _shown_selector(result: AllocationResult) -> Any:
    if result.node_selector is None:
        return "all"
    (term,) = result.node_selector.node_selector_terms
    if term.match_fields:
        (field,) = term.match_fields
        return field.values[0]
    found: dict[str, list[Any]] = {}
    for each in term.match_expressions:
        found.setdefault(each.key, []).append(each.values)
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


def _run(text: str) -> list[str]:
    found = _RUN.fullmatch(text)
    assert found, text
    return [f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1)]


def _use(id: str, **fields: Any) -> DeviceRequestAllocationResult:
    driver, pool, device = id.split("/")
    result = {"driver": driver, "pool": pool, "device": device, **fields}
    return msgspec.convert(result, DeviceRequestAllocationResult)


def _where(at: Any) -> Case:
    if isinstance(at, dict):
        expressions = [{"key": k, "operator": "In", "values": v} for k, v in at.items()]
        return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {
        "all": {"allNodes": True},
        "each": {"perDeviceNodeSelection": True},
    }.get(at, {"nodeName": at})


def _device(given: Any) -> Case:
    if isinstance(given, str):
        return {"name": given}
    found: Case = {
        "name": given["device"],
        "attributes": {name: _attribute(value) for name, value in given.get("attributes", {}).items()},
        "capacity": {name: _capacity(value) for name, value in given.get("capacity", {}).items()},
        "taints": [_taint(text) for text in given.get("taints", ())],
        "consumesCounters": [
            {
                "counterSet": name,
                "counters": _counters(counters),
                "compatibilityGroups": given.get("groups", ()),
            }
            for name, counters in given.get("consumes", {}).items()
        ],
        "bindingConditions": given.get("conditions", ()),
        "bindingFailureConditions": given.get("failures", ()),
        "bindsToNode": given.get("binds", False),
        "allowMultipleAllocations": given.get("shared", False),
    }
    return {**found, **(_where(given["at"]) if "at" in given else {})}


def _attribute(value: Any) -> Case:
    if isinstance(value, dict):
        return value if "nothing" not in value else {}
    if isinstance(value, list):
        return {"strings": value}
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def _capacity(value: Any) -> Case:
    if not isinstance(value, dict):
        return {"value": value}
    policy: Case = {}
    bounds = {name: value[name] for name in ("min", "max", "step") if name in value}
    if "default" in value:
        policy["default"] = value["default"]
    if bounds:
        policy["validRange"] = bounds
    if "values" in value:
        policy["validValues"] = value["values"]
    return {"value": value["value"], "requestPolicy": policy}


def _counters(given: Case) -> Case:
    return {name: {"value": amount} for name, amount in given.items()}


def _taint(text: str) -> Case:
    found = _TAINT.fullmatch(text)
    assert found, text
    return {"key": found[1], "value": found[2] or "", "effect": found[3]}


def _toleration(text: str) -> Case:
    return {**_taint(text), "operator": "Equal" if "=" in text else "Exists"}


def _attribute_name(given: Any) -> str:
    return str(given["attribute"] if isinstance(given, dict) else given)


def _alternative(given: Case) -> Case:
    ((name, asked),) = given.items()
    return {"name": name, **_demand(asked)}


def _demand(given: Any) -> Case:
    if isinstance(given, str):
        name, _, count = given.partition(" x ")
        given = {"class": name, "count": count or 1}
    count = given.get("count", 1)
    mode = "All" if count == "all" else given.get("mode", "ExactCount")
    found: Case = {
        "deviceClassName": given["class"],
        "allocationMode": mode,
        "count": 0 if count == "all" else int(count),
        "selectors": [
            {"cel": {"expression": text}} if text is not None else {} for text in given.get("where", ())
        ],
        "tolerations": [_toleration(text) for text in given.get("tolerates", ())],
    }
    if given.get("admin"):
        found["adminAccess"] = True
    if "capacity" in given:
        found["capacity"] = {"requests": given["capacity"]}
    return found


def _config(given: Case) -> Case:
    opaque = {"driver": given["driver"], "parameters": {"profile": given["profile"]}}
    return {"requests": given.get("requests", ()), "opaque": opaque}

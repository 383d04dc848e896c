"""Devices by claim, added to a life: slices and classes, claims of pods, gangs and reservations, edits.

It draws from random numbers of its own, so that the life without devices stays the same.
"""

import copy

from harness.claim_objects import (
    claim_spec,
    device,
    device_class,
    first_available,
    request,
    resource_slice,
)
from holdfast.api.names import HELD_DEVICES
from holdfast.local.store.objects import Key, SeededNames
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.managers.claims.held_devices import holder_key
from mixtures.making import SIM, Making, Raw, annotate

API = "resource.k8s.io/v1"
GPU, NET, PART, NIC = "gpu.example.com", "net.example.com", "part.example.com", "nic.example.com"
EXTENDED = "example.com/gpu"
_MODELS = ("a", "a", "b")
_TAINT = {"key": "sick", "effect": "NoSchedule"}
_ADMIN = {"resource.kubernetes.io/admin-access": "true"}
_TEMPLATES = "one two big model list all pair half quarter share net mix slow admin".split()
_USUAL = "one one one two model list half share net".split()
_GROUPED = ("scheduling.k8s.io/group-name", "pod-group.scheduling.sigs.k8s.io")
SEED = 0
"""Of the uids in a simulation, from which the names of claims of reservations are derived."""
_GANG = "gang.scheduling.koordinator.sh/name"


def add_claims(making: Making) -> None:
    """Adds devices by claim to a life that is complete otherwise."""
    making.add("v1", "Namespace", "default", metadata={"labels": _ADMIN})
    slices = [each for name in making.nodes for each in _of_node(making, name)]
    slices += _of_all_nodes(making)
    slices = slices or [resource_slice(making.nodes[0], 2, name="only")]
    for made in slices:
        making.documents.append(made)
    _classes(making)
    specs = _specs(making)
    for name, spec in specs.items():
        making.documents.append(_template(name, spec))
    claims = [_claim(making, f"dc{i}", specs) for i in range(making.some(1, 4))]
    making.documents += claims
    names = [each["metadata"]["name"] for each in claims]
    _use(making, names)
    if making.chance(0.6):
        _lone_pods(making, names)
    if making.chance(0.2):
        making.plugin_args("DynamicResources", bindingTimeout=f"{making.pick((5, 30, 90))}s")
    for _ in range(making.some(0, 6)):
        making.pick(_EDITS)(making, slices, claims)


# Devices


def _of_node(making: Making, node: str) -> list[Raw]:
    """The slices of a node: GPUs, some of them in two slices, and partitions of one device."""
    found = []
    if making.chance(0.85):
        gpus = [_gpu(making, i) for i in range(making.some(1, 4))]
        half = len(gpus) // 2 if making.chance(0.2) else 0
        parts = [part for part in (gpus[:half], gpus[half:]) if part]
        for i, devices in enumerate(parts):
            made = resource_slice(node, devices, driver=GPU, name=f"{node}-gpu-{i}")
            made["spec"]["pool"]["resourceSliceCount"] = len(parts)
            found.append(made)
    if making.chance(0.35):
        found += _partitions(node)
    if making.chance(0.3):
        shared = [
            device(
                f"nic-{i}",
                allowMultipleAllocations=True,
                capacity={"bandwidth": {"value": "10", **_policy(making)}},
            )
            for i in range(making.some(1, 2))
        ]
        found.append(resource_slice(node, shared, driver=NIC, name=f"{node}-nic"))
    return found


def _policy(making: Making) -> Raw:
    if making.chance(0.5):
        return {}
    return {"requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2"}}}


def _gpu(making: Making, number: int) -> Raw:
    more: Raw = {}
    if making.chance(0.1):
        more["taints"] = [_TAINT]
    if making.chance(0.05):
        more["bindingConditions"] = ["attached"]
        more["bindingFailureConditions"] = ["broken"]
    return device(f"gpu-{number}", model=making.pick(_MODELS), numa=number // 2, **more)


def _partitions(node: str) -> list[Raw]:
    """One device as a whole, in halves or in quarters."""
    counters = resource_slice(node, 0, driver=PART, name=f"{node}-part-counters")
    del counters["spec"]["devices"]
    counters["spec"]["sharedCounters"] = [{"name": "whole", "counters": {"units": {"value": "4"}}}]
    sizes = [("whole", 4), ("half-0", 2), ("half-1", 2), *((f"quarter-{i}", 1) for i in range(4))]
    devices = [
        device(
            name,
            units=size,
            consumesCounters=[{"counterSet": "whole", "counters": {"units": {"value": str(size)}}}],
        )
        for name, size in sizes
    ]
    found = [counters, resource_slice(node, devices, driver=PART, name=f"{node}-part")]
    for made in found:
        made["spec"]["pool"]["resourceSliceCount"] = 2
    return found


def _of_all_nodes(making: Making) -> list[Raw]:
    """Devices that several nodes can use: all, those of a zone, or some of both."""
    if making.chance(0.5):
        return []
    devices = [device(f"net-{i}") for i in range(making.some(1, 3))]
    reach: Raw = {"allNodes": True}
    if making.chance(0.4):
        in_zone = {"key": "zone", "operator": "In", "values": ["za"]}
        reach = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}}
    elif making.chance(0.3):
        reach = {"perDeviceNodeSelection": True}
        for each in devices:
            each.update(making.pick(({"allNodes": True}, {"nodeName": making.pick(making.nodes)})))
    elif making.chance(0.3):
        devices[0]["bindsToNode"] = True
    return [resource_slice("", devices, driver=NET, pool="fabric", name="fabric", **reach)]


def _classes(making: Making) -> None:
    for name, driver in (("gpu", GPU), ("net", NET), ("part", PART), ("nic", NIC)):
        more = {"extendedResourceName": EXTENDED} if name == "gpu" and making.chance(0.5) else {}
        making.documents.append(device_class(name, f'device.driver == "{driver}"', **more))


# Claims


def _model(model: str) -> str:
    return f'device.attributes["{GPU}"].model == "{model}"'


def _specs(making: Making) -> dict[str, Raw]:
    """What claims request, by the name of a template."""
    pair = [request("x", 2), request("y", 1, _model("a"))]
    nic = request("nic", of="nic", capacity={"requests": {"bandwidth": making.pick(("3", "5", "6"))}})
    tolerates = [{"key": "sick", "operator": "Exists"}]
    specs = {
        "one": claim_spec(request()),
        "two": claim_spec(request("r", 2)),
        "big": claim_spec(request("r", 4)),
        "model": claim_spec(request("r", 1, _model(making.pick(_MODELS)))),
        "list": claim_spec(
            first_available(
                "r", request("best", 1, _model("b")), request("two", 2), request("net", of="net")
            )
        ),
        "all": claim_spec(request("r", allocationMode="All")),
        "pair": claim_spec(*pair, constraints=[{"matchAttribute": f"{GPU}/numa", "requests": ["x"]}]),
        "half": claim_spec(request("r", 1, f'device.attributes["{PART}"].units == 2', of="part")),
        "quarter": claim_spec(
            request("r", making.some(1, 2), f'device.attributes["{PART}"].units == 1', of="part")
        ),
        "share": claim_spec(nic),
        "net": claim_spec(request("r", of="net")),
        "mix": claim_spec(request("g"), request("n", of="net")),
        "slow": claim_spec(request("r", tolerations=tolerates)),
        "admin": claim_spec(request("r", adminAccess=True)),
    }
    return {name: specs[name] for name in _TEMPLATES}


def _template(name: str, spec: Raw) -> Raw:
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": spec},
    }


def _claim(making: Making, name: str, specs: dict[str, Raw]) -> Raw:
    made: Raw = {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": specs[making.pick(_USUAL if making.chance(0.8) else _TEMPLATES)],
    }
    if making.chance(0.3):
        annotate(made["metadata"], SIM + "at", f"{making.time()}s")
    return made


# Who uses them


def _use(making: Making, claims: list[str]) -> None:
    shared: dict[str, str | None] = {}
    for raw in making.documents:
        if raw["kind"] == "Pod":
            gang = _gang_of(raw)
            if gang and gang not in shared:
                shared[gang] = making.pick(claims) if making.chance(0.4) else None
            if gang and shared[gang]:
                _add(raw["spec"], making, resourceClaimName=shared[gang])
            elif making.chance(0.6):
                _request(making, raw["spec"], claims)
        elif raw["kind"] == "Deployment" and making.chance(0.6):
            _request(making, raw["spec"]["template"]["spec"], claims)
        elif raw["kind"] == "Reservation" and making.chance(0.6):
            _reserve(making, raw["spec"]["template"]["spec"])


def _gang_of(pod: Raw) -> str:
    metadata = pod["metadata"]
    given = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    named = [given[key] for key in (*_GROUPED, _GANG) if key in given]
    return (
        str(named[0]) if named else (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
    )


def _request(making: Making, spec: Raw, claims: list[str]) -> None:
    if making.chance(0.12):
        resources = spec["containers"][0]["resources"]
        name = EXTENDED if making.chance(0.6) else "deviceclass.resource.kubernetes.io/gpu"
        for amounts in (resources["requests"], resources.setdefault("limits", {})):
            amounts[name] = "1"
        return
    for _ in range(1 if making.chance(0.85) else 2):
        if claims and making.chance(0.3):
            _add(spec, making, resourceClaimName=making.pick(claims))
        else:
            name = making.pick(_USUAL if making.chance(0.8) else _TEMPLATES)
            _add(spec, making, resourceClaimTemplateName=name)


def _add(spec: Raw, making: Making, **entry: str | None) -> None:
    entries = spec.setdefault("resourceClaims", [])
    name = f"d{len(entries)}"
    entries.append({"name": name, **entry})
    if making.chance(0.9):
        resources = spec["containers"][0].setdefault("resources", {})
        resources.setdefault("claims", []).append({"name": name})


def _reserve(making: Making, spec: Raw) -> None:
    for _ in range(1 if making.chance(0.85) else 2):
        _add(spec, making, resourceClaimTemplateName=making.pick((*_USUAL, "two", "all", "big")))


def _lone_pods(making: Making, claims: list[str]) -> None:
    """Pods that are about devices only, so that nothing else decides where they go."""
    for _ in range(making.some(2, 6)):
        at = making.time()
        metadata: Raw = {"namespace": "default", "annotations": {SIM + "at": f"{at}s"}}
        if making.chance(0.8):
            metadata["annotations"][SIM + "runs-for"] = f"{making.some(5, 200)}s"
        requests = {"cpu": "100m"}
        spec: Raw = {
            "containers": [{"name": "main", "image": "x", "resources": {"requests": requests}}]
        }
        if making.chance(0.4):
            spec["priorityClassName"] = making.pick(("low", "mid", "high"))
        _request(making, spec, claims)
        name = making.name("dp")
        making.pods.append(name)
        making.add("v1", "Pod", name, metadata=metadata, spec=spec)


# Edits


def _withdraw(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    """A slice goes, and mostly comes back, perhaps as another generation."""
    made, at = making.pick(slices), making.time()
    making.delete(at, "ResourceSlice", made["metadata"]["name"])
    if making.chance(0.8):
        again = copy.deepcopy(made)
        if making.chance(0.5):
            again["spec"]["pool"]["generation"] += 1
        making.step(at + making.pick((0, 1, 20, 90)), apply=again)


def _republish(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    """A driver publishes fewer devices, or others, or with taints."""
    made = copy.deepcopy(making.pick(slices))
    devices = made["spec"].get("devices") or []
    if making.chance(0.6):
        made["spec"]["pool"]["generation"] += making.some(1, 2)
    if devices and making.chance(0.5):
        devices.pop(making.some(0, len(devices) - 1))
    for each in devices:
        if making.chance(0.3):
            each["taints"] = [{**_TAINT, "effect": making.pick(("NoSchedule", "NoExecute", "None"))}]
    making.step(making.time(), apply=made)


def _taint_rule(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    at, name = making.time(), making.name("rule")
    spec = making.pick(slices)["spec"]
    selector: Raw = {"driver": spec["driver"]}
    if making.chance(0.6):
        selector["pool"] = spec["pool"]["name"]
    if spec.get("devices") and making.chance(0.6):
        selector["device"] = making.pick(spec["devices"])["name"]
    effect = making.pick(("NoSchedule", "NoExecute"))
    rule: Raw = {
        "apiVersion": API,
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": "sick", "effect": effect}},
    }
    making.step(at, apply=rule)
    if making.chance(0.7):
        making.delete(at + making.some(1, 100), "DeviceTaintRule", name)


def _change_class(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    at = making.time()
    original = next(raw for raw in making.documents if raw["kind"] == "DeviceClass")
    if making.chance(0.5):
        making.delete(at, "DeviceClass", original["metadata"]["name"])
    else:
        more = {} if making.chance(0.5) else {"extendedResourceName": EXTENDED}
        expressions = (f'device.driver == "{GPU}"', _model("a"), 'device.driver == "none.example.com"')
        making.step(at, apply=device_class("gpu", making.pick(expressions), **more))
    if making.chance(0.8):
        making.step(at + making.pick((0, 5, 60)), apply=original)


def _recreate_claim(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    """A claim is deleted, and another of its name comes."""
    made, at = making.pick(claims), making.time(0.1, 0.9)
    making.delete(at, "ResourceClaim", made["metadata"]["name"])
    if making.chance(0.7):
        again = copy.deepcopy(made)
        again["metadata"].pop("annotations", None)
        again["spec"] = making.pick(claims)["spec"]
        making.step(at + making.pick((0, 1, 60)), apply=again)


def _lose_template(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    name, at = making.pick(_USUAL), making.time()
    made = next(
        raw
        for raw in making.documents
        if raw["kind"] == "ResourceClaimTemplate" and raw["metadata"]["name"] == name
    )
    making.delete(at, "ResourceClaimTemplate", name)
    making.step(at + making.pick((0, 10, 60)), apply=made)


def _lose_node(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    """With its slices, which its drivers publish again when it is back."""
    name, at = making.pick(making.nodes), making.time(0.2, 0.8)
    node = next(
        raw for raw in making.documents if raw["kind"] == "Node" and raw["metadata"]["name"] == name
    )
    making.delete(at, "Node", name)
    if making.chance(0.7):
        back_at = at + making.pick((0, 1, 60))
        again = copy.deepcopy(node)
        again["metadata"].pop("annotations", None)
        making.step(back_at, apply=again)
        for made in slices:
            if made["spec"].get("nodeName") == name:
                making.step(back_at + making.pick((0, 0, 5)), apply=made)


def _touch_holder(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    """Somebody deletes or edits a claim of a reservation that holds devices, or names it in a pod."""
    holding = [
        (raw["metadata"]["name"], entry["name"])
        for raw in making.documents
        if raw["kind"] == "Reservation"
        for entry in raw["spec"]["template"]["spec"].get("resourceClaims") or ()
    ]
    if not holding:
        return
    reservation, entry = making.pick(holding)
    uid = SeededNames(SEED).uid(Key("scheduling.koordinator.sh", "Reservation", "", reservation))
    name = holder_key(ObjectRef("Reservation", "", reservation, uid), "default", entry).name
    at = making.time(0.1, 0.9)
    match making.some(0, 4):
        case 0 | 1:
            making.delete(at, "ResourceClaim", name)
        case 2:
            annotations = {HELD_DEVICES: making.pick(("{", "{}", None))}
            making.patch(at, "ResourceClaim", name, {"metadata": {"annotations": annotations}})
        case 3:
            making.patch(at, "ResourceClaim", name, {"status": {"allocation": None}})
        case _:
            spec: Raw = {
                "containers": [{"name": "main", "image": "x"}],
                "resourceClaims": [{"name": "d0", "resourceClaimName": name}],
            }
            metadata = {"namespace": "default", "annotations": {SIM + "at": f"{at}s"}}
            pod = making.name("thief")
            making.pods.append(pod)
            making.add("v1", "Pod", pod, metadata=metadata, spec=spec)


def _restart(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    making.step(making.time(0.05, 0.95), restart="scheduler")


def _delete_pod(making: Making, slices: list[Raw], claims: list[Raw]) -> None:
    making.delete(making.time(0.1, 0.9), "Pod", making.pick(making.pods))


_EDITS = (
    _withdraw,
    _republish,
    _republish,
    _taint_rule,
    _change_class,
    _recreate_claim,
    _recreate_claim,
    _lose_template,
    _lose_node,
    _touch_holder,
    _touch_holder,
    _restart,
    _restart,
    _delete_pod,
)

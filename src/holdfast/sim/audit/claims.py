"""Devices by claim: what the audit checks of ResourceClaims.

* A device is allocated to one claim, unless with admin access, or in shares whose capacity fits.
* It is published when a claim first gets it. A reservation may take back one that was withdrawn since.
* Counters that devices of a pool share are not exceeded by the allocated ones.
* An allocation does not change; it can only be cleared. Nobody is reserved without one.
* A pod is bound only with claims that are allocated, reserved for it or its PodGroup, and available on
  its node.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.sim.audit.facts import Raw, milli

Device = tuple[str, str, str]
"""Driver, pool and name."""
Key = tuple[str, str]

_HELD_DEVICES = "holdfast.io/held-devices"
_IMPLICIT = "deviceclass.resource.kubernetes.io/"


class ClaimAudit:
    """ResourceClaims, slices and device classes, as of the last change."""

    def __init__(self) -> None:
        self._claims: dict[Key, Raw] = {}
        self._slices: dict[str, Raw] = {}
        self._classes: dict[str, Raw] = {}
        self._had: dict[str, set[Device]] = {}
        """Devices that a claim of a reservation ever had, by its uid."""

    def changed(self, kind: str, key: Key, before: Raw | None, after: Raw | None) -> Iterator[str]:
        """Follows an object; the rules that a write of the scheduler breaks with it."""
        if kind == "ResourceSlice":
            _put(self._slices, key[1], after)
        elif kind == "DeviceClass":
            _put(self._classes, key[1], after)
        else:
            _put(self._claims, key, after)
            if after is not None:
                yield from self._judge(key, before, after)
            elif before is not None:
                self._had.pop(before["metadata"]["uid"], None)

    def serves(self, resource: str) -> bool:
        """Whether a device class serves an extended resource on nodes that have none of it."""
        return any(
            resource in (_IMPLICIT + name, (raw.get("spec") or {}).get("extendedResourceName"))
            for name, raw in self._classes.items()
        )

    # Claims

    def _judge(self, key: Key, before: Raw | None, after: Raw) -> Iterator[str]:
        named = f"ResourceClaim/{key[0]}/{key[1]}"
        status = after.get("status") or {}
        then, now = _allocation(before), _allocation(after)
        if status.get("reservedFor") and not now:
            yield f"claim reserved without an allocation: {named}"
        same = before is not None and before["metadata"]["uid"] == after["metadata"]["uid"]
        if not now or (same and then == now):
            return
        if same and then:
            yield f"allocation of a claim changed: {named}"
        holds = _HELD_DEVICES in (after["metadata"].get("annotations") or {})
        had = self._had.setdefault(after["metadata"]["uid"], set()) if holds else set()
        for result in _results(now):
            device = _device(result)
            if self._published(device) is None and device not in had:
                yield f"device that is not published: {named}: {'/'.join(device)}"
            elif not result.get("adminAccess"):
                yield from self._judge_device(key, named, device)
            had.add(device)
        for pool in sorted({_device(result)[:2] for result in _results(now)}):
            yield from self._judge_counters(named, pool)

    def _judge_device(self, key: Key, named: str, device: Device) -> Iterator[str]:
        users = [
            (other, result)
            for other, raw in self._claims.items()
            for result in _results(_allocation(raw))
            if _device(result) == device and not result.get("adminAccess")
        ]
        whole = [other for other, result in users if not result.get("shareID")]
        if whole and len(users) > 1:
            others = sorted("/".join(other) for other, _ in users)
            yield f"device allocated twice: {'/'.join(device)}: {', '.join(others)}"
        if whole:
            return
        published = self._published(device) or {}
        for name, capacity in (published.get("capacity") or {}).items():
            used = sum(milli(str((r.get("consumedCapacity") or {}).get(name, 0))) for _, r in users)
            if used > milli(str(capacity["value"])):
                yield f"capacity of a device exceeded: {'/'.join(device)}: {name} (by {named})"

    def _judge_counters(self, named: str, pool: tuple[str, ...]) -> Iterator[str]:
        left: dict[tuple[str, str], int] = {}
        devices: dict[str, Raw] = {}
        for spec in self._newest(pool):
            for each in spec.get("sharedCounters") or ():
                for name, counter in each["counters"].items():
                    left[each["name"], name] = milli(str(counter["value"]))
            devices |= {each["name"]: each for each in spec.get("devices") or ()}
        if not left:
            return
        used = {
            _device(result)[2]
            for raw in self._claims.values()
            for result in _results(_allocation(raw))
            if _device(result)[:2] == pool and not result.get("adminAccess")
        }
        for device in sorted(used & devices.keys()):
            for each in devices[device].get("consumesCounters") or ():
                for name, counter in each["counters"].items():
                    left[each["counterSet"], name] -= milli(str(counter["value"]))
        for (counters, name), amount in left.items():
            if amount < 0:
                yield f"counter exceeded: {'/'.join(pool)}: {counters}/{name} (by {named})"

    def _published(self, device: Device) -> Raw | None:
        for spec in self._newest(device[:2]):
            for each in spec.get("devices") or ():
                if each["name"] == device[2]:
                    found: Raw = each
                    return found
        return None

    def _newest(self, pool: tuple[str, ...]) -> list[Raw]:
        """The specs of a pool's slices of the highest generation."""
        specs = [raw["spec"] for raw in self._slices.values()]
        found = [spec for spec in specs if (spec["driver"], spec["pool"]["name"]) == pool]
        newest = max((spec["pool"]["generation"] for spec in found), default=0)
        return [spec for spec in found if spec["pool"]["generation"] == newest]

    # Pods

    def bound(self, pod: Raw, labels: Mapping[str, str]) -> Iterator[str]:
        """The rules that a pod bound to a node with these labels breaks."""
        metadata, status = pod["metadata"], pod.get("status") or {}
        namespace, node = metadata.get("namespace", ""), pod["spec"]["nodeName"]
        made = {
            each["name"]: each.get("resourceClaimName")
            for each in status.get("resourceClaimStatuses") or ()
        }
        for entry in pod["spec"].get("resourceClaims") or ():
            name = entry.get("resourceClaimName") or made.get(entry["name"])
            if not name:
                if entry["name"] not in made:
                    yield f"pod bound without its claim: {_named(pod)}: {entry['name']}"
                continue
            claim = self._claims.get((namespace, name))
            allocation = _allocation(claim)
            consumers = ((claim or {}).get("status") or {}).get("reservedFor") or ()
            if not allocation:
                yield f"pod bound with a claim that is not allocated: {_named(pod)}: {name}"
            elif not any(_is_consumer(each, pod) for each in consumers):
                yield f"pod bound with a claim that is not reserved for it: {_named(pod)}: {name}"
            elif not _selects(allocation.get("nodeSelector"), node, labels):
                yield f"pod bound where its claim is not available: {_named(pod)}: {name} on {node}"


def _put(table: dict[Any, Raw], key: Any, raw: Raw | None) -> None:
    if raw is None:
        table.pop(key, None)
    else:
        table[key] = raw


def _is_consumer(consumer: Raw, pod: Raw) -> bool:
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    if consumer["resource"] == "podgroups" and group:
        return bool(consumer["name"] == group)
    return bool(consumer["uid"] == pod["metadata"]["uid"])


def _named(pod: Raw) -> str:
    return f"Pod/{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def _allocation(claim: Raw | None) -> Raw:
    found: Raw = ((claim or {}).get("status") or {}).get("allocation") or {}
    return found


def _results(allocation: Raw) -> list[Raw]:
    found: list[Raw] = (allocation.get("devices") or {}).get("results") or []
    return found


def _device(result: Raw) -> Device:
    return result["driver"], result["pool"], result["device"]


def _selects(selector: Raw | None, node: str, labels: Mapping[str, str]) -> bool:
    """Whether an allocation can be used from a node; of operators, those that allocations have."""
    if selector is None:
        return True
    return any(
        all(node in each["values"] for each in term.get("matchFields") or ())
        and all(_matches(each, labels) for each in term.get("matchExpressions") or ())
        for term in selector["nodeSelectorTerms"]
    )


def _matches(requirement: Raw, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement["key"]), requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return True

"""Devices by claim: what the audit checks of ResourceClaims.

* A device is allocated to one claim, unless with admin access, or in shares whose capacity fits.
* It is published when a claim gets it. A claim of a reservation may keep one that was withdrawn, while
  its other devices change.
* Counters that devices of a pool share are not exceeded by the allocated ones.
* An allocation does not change; it can only be cleared. Nobody is reserved without one.
* A pod is bound only with claims that are allocated, reserved for it or its PodGroup, and available on
  its node. They stay so as long as it runs there.

At rest, when nothing more happens at a moment:

* A claim is reserved for pods that exist, and that have a node or wait for their devices to get ready.
* A claim that the scheduler created belongs to a pod with a node, or to a live reservation.
* An Available reservation holds the devices that it got and that no other claim has, unless they are
  withdrawn, with one claim for each entry of its template. A Waiting one holds none but those.
* A claim that is to be deleted and that nobody uses is gone.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.sim.audit.facts import ENDED, Raw, milli

Device = tuple[str, str, str]
"""Driver, pool and name."""
Key = tuple[str, str]

_HELD_DEVICES = "holdfast.io/held-devices"
_EXTENDED = "resource.kubernetes.io/extended-resource-claim"
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_DRIVER_ONLY = 'device.driver == "'


class ClaimAudit:
    """ResourceClaims, slices and device classes, as of the last change."""

    def __init__(self, pods: Mapping[str, Raw]) -> None:
        """`pods` are those that exist, by uid."""
        self._pods = pods
        self._claims: dict[Key, Raw] = {}
        self._reservations: dict[str, Raw] = {}
        self._rules: dict[str, Raw] = {}
        self._slices: dict[str, Raw] = {}
        self._classes: dict[str, Raw] = {}
        self._had: dict[str, set[Device]] = {}
        """Devices that a claim of a reservation had before its allocation was cleared, by its uid."""

    def changed(self, kind: str, key: Key, before: Raw | None, after: Raw | None) -> Iterator[str]:
        """Follows an object; the rules that a write of the scheduler breaks with it."""
        if kind == "ResourceSlice":
            _put(self._slices, key[1], after)
        elif kind == "DeviceClass":
            _put(self._classes, key[1], after)
        elif kind == "DeviceTaintRule":
            _put(self._rules, key[1], after)
        elif kind == "Reservation":
            some = after or before
            assert some is not None
            _put(self._reservations, some["metadata"]["uid"], after)
        else:
            _put(self._claims, key, after)
            yield from self._judge_consumers(key, before, after)
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
        if same and then and not now and _HELD_DEVICES in (after["metadata"].get("annotations") or {}):
            self._had[after["metadata"]["uid"]] = {_device(result) for result in _results(then)}
        if not now or (same and then == now):
            return
        if same and then:
            yield f"allocation of a claim changed: {named}"
        had = self._had.pop(after["metadata"]["uid"], set())
        for result in _results(now):
            device = _device(result)
            if self._published(device) is None and device not in had:
                yield f"device that is not published: {named}: {'/'.join(device)}"
            elif not result.get("adminAccess"):
                yield from self._judge_device(key, named, device)
        for pool in sorted({_device(result)[:2] for result in _results(now)}):
            yield from self._judge_counters(named, pool)

    def _judge_consumers(self, key: Key, before: Raw | None, after: Raw | None) -> Iterator[str]:
        """A claim is not taken from a pod that runs."""
        same = after is not None and before is not None and _uid(before) == _uid(after)
        left = _consumers(after) if same and _allocation(after) else set()
        for uid in sorted(_consumers(before) - left):
            pod = self._pods.get(uid)
            if pod is not None and _runs(pod):
                yield f"claim taken from a pod: ResourceClaim/{'/'.join(key)}: {_named(pod)}"

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

    def _is_usable(self, device: Device) -> bool:
        """Whether a device is published in a complete pool."""
        specs = self._newest(device[:2])
        if len(specs) != (specs[0]["pool"]["resourceSliceCount"] if specs else 0):
            return False
        return self._published(device) is not None

    def _newest(self, pool: tuple[str, ...]) -> list[Raw]:
        """The specs of a pool's slices of the highest generation."""
        specs = [raw["spec"] for raw in self._slices.values()]
        found = [spec for spec in specs if (spec["driver"], spec["pool"]["name"]) == pool]
        newest = max((spec["pool"]["generation"] for spec in found), default=0)
        return [spec for spec in found if spec["pool"]["generation"] == newest]

    # At rest

    def at_rest(self) -> Iterator[str]:
        """The rules that are broken once nothing more happens at a moment."""
        held: dict[str, int] = {}
        used = self._used() if any(map(_held, self._claims.values())) else {}
        waiting = {
            uid for each in self._claims.values() if _awaits_devices(each) for uid in _consumers(each)
        }
        for key, claim in self._claims.items():
            named = f"ResourceClaim/{'/'.join(key)}"
            consumers = _consumers(claim)
            reserved = (claim.get("status") or {}).get("reservedFor")
            if "deletionTimestamp" in claim["metadata"] and not reserved:
                yield f"unused claim is not deleted: {named}"
            for uid in sorted(consumers):
                pod = self._pods.get(uid)
                if pod is None:
                    yield f"claim reserved for a pod that is gone: {named}: {uid}"
                elif not pod["spec"].get("nodeName") and uid not in waiting:
                    yield f"claim reserved for a pod without a node: {named}: {_named(pod)}"
            owner = _owner(claim)
            if owner.get("kind") == "Reservation":
                held[owner["uid"]] = held.get(owner["uid"], 0) + 1
                yield from self._judge_holder(key, named, claim, used)
            elif owner.get("kind") == "Pod":
                yield from self._judge_owned(named, claim, owner["uid"])
        for uid, reservation in self._reservations.items():
            if not _is_live(reservation):
                continue
            spec = (reservation["spec"].get("template") or {}).get("spec") or {}
            entries = spec.get("resourceClaims") or ()
            # A claim that an entry names may be allocated already; then nothing is held for it.
            least = sum(bool(each.get("resourceClaimTemplateName")) for each in entries)
            if _reports_devices(reservation):
                least = 0
            if not least <= held.get(uid, 0) <= len(entries):
                name = reservation["metadata"]["name"]
                has = f"{held.get(uid, 0)} for {len(entries)} entries"
                yield f"claims of a reservation: Reservation/{name} has {has}"

    def _used(self) -> dict[Device, set[Key]]:
        """The claims with each device."""
        found: dict[Device, set[Key]] = {}
        for key, claim in self._claims.items():
            for result in _results(_allocation(claim)):
                if not result.get("adminAccess"):
                    found.setdefault(_device(result), set()).add(key)
        return found

    def _judge_holder(
        self, key: Key, named: str, claim: Raw, used: Mapping[Device, set[Key]]
    ) -> Iterator[str]:
        """An Available reservation holds the devices that it got, that are published and that no other
        claim has; a Waiting one no others."""
        reservation = self._reservations.get(_owner(claim)["uid"])
        if reservation is None or not _is_live(reservation):
            yield f"claim of a reservation that is gone or finished: {named}"
            return
        if not _held(claim) and _reports_devices(reservation):
            return  # somebody made the annotation invalid, and it cannot be corrected yet
        has = [_device(result) for result in _results(_allocation(claim))]
        is_available = reservation["status"]["phase"] == "Available"
        wanted = [
            device
            for device, is_admin in ((_device(r), r.get("adminAccess")) for r in _held(claim))
            if (is_admin or not used.get(device, set()) - {key})
            and (device in has or (is_available and self._is_usable(device)))
        ]
        if any(result.get("shareID") for result in _held(claim)):
            return  # what is left of a share is not a matter of devices
        if has != wanted:
            listed = [", ".join("/".join(each) for each in found) or "none" for found in (has, wanted)]
            yield f"devices of a reservation: {named}: holds {listed[0]}, should hold {listed[1]}"

    def _judge_owned(self, named: str, claim: Raw, uid: str) -> Iterator[str]:
        pod = self._pods.get(uid)
        if pod is None:
            yield f"claim of a pod that is gone: {named}"
        elif _EXTENDED in (claim["metadata"].get("annotations") or {}) and not (
            pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ENDED
        ):
            yield f"claim for extended resources of a pod without a node: {named}: {_named(pod)}"

    # Liveness

    def waiting_pods(self) -> list[Raw]:
        """The pods without a node that claims are reserved for: they wait for devices to get ready."""
        uids = {uid for each in self._claims.values() for uid in _consumers(each)}
        found = (self._pods.get(uid) for uid in sorted(uids))
        return [pod for pod in found if pod is not None and not pod["spec"].get("nodeName")]

    def certainly_fits(self, pod: Raw, node: str) -> bool:
        """Whether the claims of a pod are of the simplest kind and their devices are free on a node:
        a number of devices of a driver, of pools of the node without any further feature."""
        wanted: dict[str, int] = {}
        entries = pod["spec"].get("resourceClaims") or ()
        for entry in entries:
            claim = self._claims.get((pod["metadata"].get("namespace", ""), _name(pod, entry)))
            if self._rules or claim is None or "deletionTimestamp" in claim["metadata"]:
                return False
            if "resourceClaimName" not in entry and _owner(claim).get("uid") != _uid(pod):
                return False
            if _allocation(claim):
                return False
            if not self._add_plain(claim, wanted):
                return False
        used = self._used() if wanted else {}
        return all(self._free_on(node, driver, used) >= count for driver, count in wanted.items())

    def certainly_gets(self, reservation: str, node: str) -> bool:
        """Whether the devices that a Waiting reservation needs are certainly free on its node: it needs
        none, or any devices of a driver as in `certainly_fits`."""
        raw = self._reservations[reservation]
        spec = (raw["spec"].get("template") or {}).get("spec") or {}
        entries = spec.get("resourceClaims") or ()
        ours = {
            key: each for key, each in self._claims.items() if _owner(each).get("uid") == reservation
        }
        if len(ours) != len(entries) or (entries and self._is_unclear()):
            return False
        wanted: dict[str, int] = {}
        for claim in ours.values():
            if not self._add_plain(claim, wanted):
                return False
        used = {device: keys - ours.keys() for device, keys in self._used().items()} if wanted else {}
        waited_for = {
            _device(result)
            for each in self._claims.values()
            if _owner(each).get("uid") != reservation
            for result in _held(each)
        }
        return all(
            self._free_on(node, driver, used, waited_for) >= count for driver, count in wanted.items()
        )

    def _is_unclear(self) -> bool:
        """Whether devices may be set aside, or not allocatable, for reasons that no slice or claim
        shows: taint rules, and pods that wait for others whose devices are not ready."""
        return bool(self._rules) or any(map(_awaits_devices, self._claims.values()))

    def _add_plain(self, claim: Raw, wanted: dict[str, int]) -> bool:
        """Adds the number of devices that a claim requests of each driver; False if it requests
        anything else."""
        devices = claim["spec"].get("devices") or {}
        for request in devices.get("requests") or ():
            driver = self._plain_driver(request)
            if driver is None or devices.get("constraints"):
                return False
            wanted[driver] = wanted.get(driver, 0) + int(request["exactly"].get("count") or 1)
        return True

    def _plain_driver(self, request: Raw) -> str | None:
        """The driver of which a request needs any devices; None if it is not that simple."""
        exactly = request.get("exactly") or {}
        plain = {"deviceClassName", "allocationMode", "count"}
        if not exactly or exactly.keys() - plain or exactly.get("allocationMode") == "All":
            return None
        spec = (self._classes.get(exactly["deviceClassName"]) or {}).get("spec") or {}
        selectors = [each["cel"]["expression"] for each in spec.get("selectors") or ()]
        if len(selectors) != 1 or not selectors[0].startswith(_DRIVER_ONLY):
            return None
        driver = selectors[0].removeprefix(_DRIVER_ONLY).removesuffix('"')
        return None if '"' in driver else str(driver)

    def _free_on(
        self,
        node: str,
        driver: str,
        used: Mapping[Device, set[Key]],
        waited_for: Collection[Device] = (),
    ) -> int:
        pools = {
            raw["spec"]["pool"]["name"]
            for raw in self._slices.values()
            if raw["spec"]["driver"] == driver and raw["spec"].get("nodeName") == node
        }
        free = 0
        for pool in sorted(pools):
            specs = self._newest((driver, pool))
            if len(specs) != specs[0]["pool"]["resourceSliceCount"]:
                continue
            if any(spec.get("nodeName") != node or spec.get("sharedCounters") for spec in specs):
                continue
            devices = [each for spec in specs for each in spec.get("devices") or ()]
            if len({each["name"] for each in devices}) == len(devices):
                plain = [each for each in devices if not each.keys() - {"name", "attributes"}]
                listed = ((driver, pool, each["name"]) for each in plain)
                free += sum(1 for each in listed if not used.get(each) and each not in waited_for)
        return free

    # Pods

    def bound(self, pod: Raw, labels: Mapping[str, str]) -> Iterator[str]:
        """The rules that a pod bound to a node with these labels breaks."""
        metadata = pod["metadata"]
        namespace, node = metadata.get("namespace", ""), pod["spec"]["nodeName"]
        made = _generated(pod)
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


def _reports_devices(reservation: Raw) -> bool:
    """Whether a reservation says that devices are not held."""
    conditions = (reservation.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "DevicesHeld" and c["status"] == "False" for c in conditions)


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


def _uid(raw: Raw) -> str:
    uid: str = raw["metadata"]["uid"]
    return uid


def _generated(pod: Raw) -> dict[str, str | None]:
    """The claims generated for a pod, by entry; None for one that is not needed."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {each["name"]: each.get("resourceClaimName") for each in statuses}


def _name(pod: Raw, entry: Raw) -> str:
    """The claim behind an entry of a pod; empty if there is none."""
    return str(entry.get("resourceClaimName") or _generated(pod).get(entry["name"]) or "")


def _runs(pod: Raw) -> bool:
    """Whether a pod has a node and has not ended."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["spec"].get("nodeName")) and phase not in ENDED


def _consumers(claim: Raw | None) -> set[str]:
    """The uids of the pods that a claim is reserved for."""
    status = (claim or {}).get("status") or {}
    listed = status.get("reservedFor") or ()
    return {each["uid"] for each in listed if each.get("resource") == "pods"}


def _owner(claim: Raw) -> Raw:
    """The controlling owner; empty if there is none."""
    for each in claim["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            found: Raw = each
            return found
    return {}


def _held(claim: Raw) -> list[Raw]:
    """What a reservation holds with a claim, whoever uses it; nothing if somebody made the annotation
    invalid."""
    text = (claim["metadata"].get("annotations") or {}).get(_HELD_DEVICES)
    try:
        return _results(json.loads(text)) if text else []
    except ValueError:
        return []


def _is_live(reservation: Raw) -> bool:
    status = reservation.get("status") or {}
    return status.get("phase") in ("Available", "Waiting") and bool(status.get("nodeName"))


def _awaits_devices(claim: Raw) -> bool:
    return any(result.get("bindingConditions") for result in _results(_allocation(claim)))


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

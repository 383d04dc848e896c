"""The rules, checked on the server's objects alone.

After every accepted write: the capacity rule, one node per pod, no write after leadership is
lost. At rest: no gang half bound, nothing pending that fits, nothing written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping

from faults.model import (
    CLAIMS,
    CLASSES,
    GROUPS,
    LEASES,
    NODES,
    OTHER_GROUPS,
    PODS,
    QUEUES,
    QUOTAS,
    RESERVATIONS,
    SLICES,
    Model,
    Raw,
)
from faults.network import Network, Sent
from holdfast.sim.audit.claims import ClaimAudit, Device, Key

GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
PARTNERS = "gang.scheduling.koordinator.sh/groups"
"""The annotation of a group (of scheduling.sigs.k8s.io) with the names of all groups that start
together."""
HOLD = "holdfast.io/hold"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
_ENDED = ("Succeeded", "Failed")
_DEVICE_KINDS = {
    CLAIMS: "ResourceClaim",
    SLICES: "ResourceSlice",
    CLASSES: "DeviceClass",
    RESERVATIONS: "Reservation",
}


_WATCH_DELAY = 30.0
"""Seconds for which a process may not know of a change: longer than a watch is interrupted."""


class Violation(Exception):
    pass


class _DeviceAudit(ClaimAudit):
    """In which a device that was withdrawn a moment ago may be allocated: the process that does it may
    not know yet."""

    def __init__(self, pods: Mapping[str, Raw], now: Callable[[], float]) -> None:
        super().__init__(pods)
        self._now = now
        self._seen: dict[Device, tuple[float, Raw]] = {}
        """When each device was last seen published."""

    def changed(self, kind: str, key: Key, before: Raw | None, after: Raw | None) -> Iterator[str]:
        if kind == "ResourceSlice" and before is not None:
            spec = before["spec"]
            for each in spec.get("devices") or ():
                device = spec["driver"], spec["pool"]["name"], each["name"]
                self._seen[device] = self._now(), each
        yield from super().changed(kind, key, before, after)

    def _published(self, device: Device) -> Raw | None:
        found = super()._published(device)
        at, known = self._seen.get(device, (-math.inf, None))
        return found if found is not None or at + _WATCH_DELAY < self._now() else known


class Audit:
    def __init__(self, model: Model, network: Network) -> None:
        self._model = model
        self._network = network
        self._used_up: dict[str, str] = {}
        """Reservations that a pod was bound through, by uid, with the uid of the last one."""
        self._nodes_of: dict[str, str] = {}
        """Where each pod was bound, by uid."""
        self.broken_up: set[str] = set()
        """Gangs that lost members together with a node, or the place some of them were to have, or
        a member that a user deleted."""
        self._pods: dict[str, Raw] = {}
        self.devices = _DeviceAudit(self._pods, lambda: network.timeline.now)

    def written(self, path: str, old: Raw | None, new: Raw | None) -> None:
        """Raises Violation."""
        sent = self._network.accepting
        if path == LEASES:
            if new is not None:
                self._network.lease_taken(new["spec"].get("holderIdentity") or "")
            return
        if sent is not None and sent.what in ("bind", "write"):
            self._check_fence(sent)
        if path in _DEVICE_KINDS:
            self._check_devices(path, old, new, sent)
        if path == PODS:
            some = new or old
            assert some is not None
            if new is None:
                self._pods.pop(some["metadata"]["uid"], None)
            else:
                self._pods[some["metadata"]["uid"]] = new
            self._check_pod(old, new)
        elif path == RESERVATIONS and new is not None:
            node = new.get("status", {}).get("nodeName")
            if node:
                self._check_node(node)

    def _check_devices(self, path: str, old: Raw | None, new: Raw | None, sent: Sent | None) -> None:
        meta = (new or old or {})["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        for problem in self.devices.changed(_DEVICE_KINDS[path], key, old, new):
            if sent is not None:
                raise Violation(problem)

    def _check_fence(self, sent: Sent) -> None:
        own = self._network.leases.get(sent.process)
        for lease in self._model.all(LEASES):
            if own and lease["metadata"]["name"] != own:
                continue
            holder = lease["spec"].get("holderIdentity")
            if holder and sent.identity and holder != sent.identity:
                raise Violation(
                    f"{sent.process} wrote as {sent.identity} though {holder} leads: "
                    f"{sent.method} {sent.url}"
                )

    def _check_pod(self, old: Raw | None, new: Raw | None) -> None:
        if new is None:
            return
        node = new["spec"].get("nodeName")
        if not node:
            return
        uid = new["metadata"]["uid"]
        before = self._nodes_of.setdefault(uid, node)
        if before != node:
            raise Violation(f"pod {new['metadata']['name']} moved from {before} to {node}")
        taken = allocated_from(new)
        if taken:
            self._used_up[taken] = new["metadata"]["uid"]
        if old is None or not old["spec"].get("nodeName"):
            self._check_node(node)
            self._check_queue(new)
            for problem in self.devices.bound(new, {}):
                raise Violation(problem)

    def _check_node(self, name: str) -> None:
        node = self._model.find(NODES, name, "")
        if node is None:
            return
        size = milli(node["status"]["allocatable"]["cpu"])
        pods = self.pods_on(name)
        used = sum(map(request, pods))
        if used > size:
            raise Violation(f"{name} has {size}m and its pods {used}m: {_names(pods)}")
        held = {r["metadata"]["name"]: self.remaining(r, pods) for r in self.available_on(name)}
        if used + sum(held.values()) > size:
            raise Violation(
                f"{name} has {size}m, its pods {used}m ({_names(pods)}) and reservations {held}"
            )

    def _check_queue(self, pod: Raw) -> None:
        limit = self._limit(pod)
        pods = self.pods_in(queue_of(pod))
        used = sum(map(request, pods))
        if limit is not None and used > limit:
            raise Violation(f"queue {queue_of(pod)} allows {limit}m and has {used}m: {_names(pods)}")

    def new_leader(self) -> None:
        """A process that begins to lead knows what the objects say: not that a pod which is gone was
        bound through a reservation whose status could not be written meanwhile."""
        there = {pod["metadata"]["uid"] for pod in self._model.all(PODS)}
        self._used_up = {r: pod for r, pod in self._used_up.items() if pod in there}

    # Facts of the objects

    def pods_on(self, node: str) -> list[Raw]:
        return [
            pod
            for pod in self._model.all(PODS)
            if pod["spec"].get("nodeName") == node and not has_ended(pod)
        ]

    def pods_in(self, queue: str) -> list[Raw]:
        """The pods of a queue that have a node."""
        return [
            pod
            for pod in self._model.all(PODS)
            if queue_of(pod) == queue and pod["spec"].get("nodeName") and not has_ended(pod)
        ]

    def _limit(self, pod: Raw) -> int | None:
        """What the pod's queue allows; None if it is in no queue."""
        name = queue_of(pod)
        queue = self._model.find(QUEUES, name, "") if name else None
        return None if queue is None else milli(queue["spec"]["capability"]["cpu"])

    def _queue_allows(self, pod: Raw) -> bool:
        """Whether the pod's queue allows it besides the pods that have a node or a starvation hold."""
        limit = self._limit(pod)
        held = [each for each in self._pods_held_for() if queue_of(each) == queue_of(pod)]
        others = [each for each in held if each is not pod and not each["spec"].get("nodeName")]
        used = sum(map(request, (*self.pods_in(queue_of(pod)), *others)))
        return limit is None or used + request(pod) <= limit

    def _pods_held_for(self) -> Iterator[Raw]:
        """The pods that have a starvation hold."""
        for each in self._model.all(RESERVATIONS):
            is_hold = (each["metadata"].get("labels") or {}).get(HOLD) == "starvation"
            if is_hold and each.get("status", {}).get("phase") in ("Available", "Waiting"):
                found = (self._model.find(PODS, o["object"]["name"]) for o in each["spec"]["owners"])
                yield from (pod for pod in found if pod is not None and not has_ended(pod))

    def available_on(self, node: str) -> Iterator[Raw]:
        for each in self._model.all(RESERVATIONS):
            status = each.get("status", {})
            if status.get("phase") == "Available" and status.get("nodeName") == node:
                yield each

    def remaining(self, reservation: Raw, pods: list[Raw]) -> int:
        uid = reservation["metadata"]["uid"]
        if reservation["spec"].get("allocateOnce", True) and uid in self._used_up:
            return 0
        owners = {
            owner["object"].get("uid")
            for owner in reservation["spec"].get("owners", [])
            if owner.get("object")
        }
        if any(pod["metadata"]["uid"] in owners for pod in pods):
            return 0  # a hold whose pod is there
        used = sum(request(pod) for pod in pods if allocated_from(pod) == uid)
        return max(0, reserved(reservation) - used)

    # At rest

    def at_rest(self) -> Iterator[str]:
        """What is not as it should be when nothing happens any more."""
        free = self._free()
        yield from self.devices.at_rest()
        for pod in self._model.all(PODS):
            meta = pod["metadata"]
            if pod["spec"].get("nodeName") or has_ended(pod) or meta.get("deletionTimestamp"):
                continue
            if group_of(pod) or not self._has_quota(pod) or not self._queue_allows(pod):
                continue
            if pod["spec"].get("resourceClaims"):
                for name, amount in free.items():
                    if request(pod) <= amount and self.devices.certainly_fits(pod, name):
                        yield f"pod {meta['name']} has no node though {name} has what it needs"
                continue
            best = max(free.values(), default=0)
            if request(pod) <= best:
                yield f"pod {meta['name']} ({request(pod)}m) has no node though one has {best}m free"
            for name, amount in free.items():
                lower = [
                    each
                    for each in self.pods_on(name)
                    if priority(each) < priority(pod)
                    and not allocated_from(each)
                    and queue_of(each) == queue_of(pod)
                ]
                if lower and request(pod) <= amount + sum(map(request, lower)):
                    yield f"pod {meta['name']} waits though {_names(lower)} on {name} could go"
        for reservation in self._model.all(RESERVATIONS):
            status = reservation.get("status", {})
            best = max(free.values(), default=0)
            moves = reservation["metadata"]["name"].startswith("room-")  # not to where the pod is
            waits = not moves and status.get("phase", "Pending") in ("", "Pending")
            claims = reservation["spec"]["template"]["spec"].get("resourceClaims")
            if waits and reserved(reservation) <= best and not claims:
                name = reservation["metadata"]["name"]
                yield f"reservation {name} is Pending though {best}m are free"
            conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
            if conditions.get("Planned") == "True":  # all starts are before that
                yield f"reservation {reservation['metadata']['name']} is planned after its start"
            once = reservation["spec"].get("allocateOnce", True)
            is_used = once and reservation["metadata"]["uid"] in self._used_up
            if is_used and status.get("phase") == "Available":
                yield f"reservation {reservation['metadata']['name']} is Available though used up"
        yield from self._gangs(free)

    def _has_quota(self, pod: Raw) -> bool:
        """Whether the plugin for teams has nothing against the pod."""
        team = pod["metadata"].get("labels", {}).get("team")
        quota = self._model.find(QUOTAS, team) if team else None
        return not team or (quota is not None and not quota["spec"].get("closed"))

    def _groups(self) -> list[Raw]:
        return self._model.all(GROUPS) + self._model.all(OTHER_GROUPS)

    def _members(self, group: Raw) -> list[Raw]:
        return [
            pod
            for pod in self._model.all(PODS)
            if group_of(pod) == group["metadata"]["name"]
            and not pod["metadata"].get("deletionTimestamp")
        ]

    def _gangs(self, free: dict[str, int]) -> Iterator[str]:
        for group in self._groups():
            name, least = group["metadata"]["name"], group["spec"]["minMember"]
            members = self._members(group)
            bound = [pod for pod in members if pod["spec"].get("nodeName")]
            waiting = [pod for pod in members if not pod["spec"].get("nodeName")]
            is_half = 0 < len(bound) < least <= len(members) and name not in self.broken_up
            if is_half and not any(self._lacks_claim(pod) for pod in waiting):
                yield f"gang {name} is half bound: {len(bound)} of {least} ({_names(bound)})"
            if any(pod["spec"].get("resourceClaims") for pod in waiting):
                continue
            if PARTNERS in (group["metadata"].get("annotations") or {}):
                yield from self._partners(group, len(bound) >= least)
                continue
            if len(members) >= least and waiting and self._fits(waiting, dict(free)):
                yield f"gang {name} waits ({_names(waiting)}) though it fits: {free}"

    def _partners(self, group: Raw, is_ready: bool) -> Iterator[str]:
        """Groups that start together are all bound, or none of them."""
        named = [name.split("/")[1] for name in json.loads(group["metadata"]["annotations"][PARTNERS])]
        if not is_ready or self.broken_up & set(named):
            return
        for other in self._groups():
            members, least = self._members(other), other["spec"]["minMember"]
            bound = [pod for pod in members if pod["spec"].get("nodeName")]
            if other["metadata"]["name"] in named and len(bound) < least <= len(members):
                yield (
                    f"gang {group['metadata']['name']} is bound without {other['metadata']['name']}: "
                    f"{len(bound)} of {least}"
                )

    def _lacks_claim(self, pod: Raw) -> bool:
        """Whether a claim that the pod names was deleted by its user, or is being deleted: no scheduler
        can bind the pod then."""
        named = [each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims") or ()]
        claims = [self._model.find(CLAIMS, name) for name in named if name]
        return any(each is None or each["metadata"].get("deletionTimestamp") for each in claims)

    def _fits(self, pods: list[Raw], free: dict[str, int]) -> bool:
        for pod in sorted(pods, key=request, reverse=True):
            node = max(free, key=lambda name: free[name], default=None)
            if node is None or free[node] < request(pod):
                return False
            free[node] -= request(pod)
        return True

    def _free(self) -> dict[str, int]:
        """What anybody may have of each node."""
        free = {}
        for node in self._model.all(NODES):
            name = node["metadata"]["name"]
            pods = self.pods_on(name)
            held = sum(self.remaining(each, pods) for each in self._live_on(name))
            free[name] = milli(node["status"]["allocatable"]["cpu"]) - sum(map(request, pods)) - held
        return free

    def _live_on(self, node: str) -> Iterator[Raw]:
        for each in self._model.all(RESERVATIONS):
            status = each.get("status", {})
            if status.get("phase") in ("Available", "Waiting") and status.get("nodeName") == node:
                yield each


def group_of(pod: Raw) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(GROUP_NAME, ""))


def queue_of(pod: Raw) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(QUEUE_NAME, ""))


def has_ended(pod: Raw) -> bool:
    return pod["status"].get("phase") in _ENDED


def allocated_from(pod: Raw) -> str:
    text = (pod["metadata"].get("annotations") or {}).get(ALLOCATED)
    uid = json.loads(text).get("uid", "") if text else ""
    return str(uid)


def request(pod: Raw) -> int:
    return sum(milli(c["resources"]["requests"]["cpu"]) for c in pod["spec"]["containers"])


def priority(pod: Raw) -> int:
    return int(pod["spec"].get("priority") or 0)


def reserved(reservation: Raw) -> int:
    allocatable = reservation.get("status", {}).get("allocatable")
    if allocatable:
        return milli(allocatable.get("cpu", "0"))
    template = reservation["spec"]["template"]["spec"]
    return sum(
        milli(c.get("resources", {}).get("requests", {}).get("cpu", "0"))
        for c in template["containers"]
    )


def milli(quantity: str) -> int:
    text = str(quantity)
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def _names(pods: list[Raw]) -> str:
    return ", ".join(f"{pod['metadata']['name']} {request(pod)}m" for pod in pods)

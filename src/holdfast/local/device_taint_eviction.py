"""Device taint eviction: deletes pods whose devices have a NoExecute taint that their claim does not
tolerate.

Taints come from ResourceSlices and DeviceTaintRules. `tolerationSeconds` counts from when the taint was
added. A rule's condition EvictionInProgress says how many pods are still to be evicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject, TimeError
from holdfast.api.names import NO_EXECUTE
from holdfast.api.plurals import number_of
from holdfast.api.raw_objects import Key, Raw, with_condition
from holdfast.api.resource_claims import DeviceRequestAllocationResult, ResourceClaim
from holdfast.api.resource_slices import (
    DeviceID,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceSlice,
)
from holdfast.api.times import parse_time
from holdfast.local.claim_references import (
    CLAIM,
    POD_GROUP,
    RULE,
    SLICE,
    claim_key,
    claim_names,
    group_key,
    is_group,
    is_owned_by,
    is_reserved_for,
)
from holdfast.local.clock import ComponentTimers, LocalClock, Timer
from holdfast.local.component import ENDED, ObjectWriter, Steps
from holdfast.local.kubelet import Kubelets
from holdfast.local.store.objects import POD, StoreChange, pod_key
from holdfast.local.stored_events import StoredEvents
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

_SOURCE = "device-taint-eviction-controller"
_EVENT = "DeviceTaintManagerEviction"
_CONDITION = "EvictionInProgress"
_MESSAGE = "Device Taint manager: deleting due to NoExecute taint"
_NOT_UPDATED = (
    "if the effect was NoExecute. This information will not be updated again. Recreate the "
    "DeviceTaintRule to trigger an update."
)


class _Eviction(NamedTuple):
    """When a pod is due, and the rules among the reasons."""

    at: float
    rules: frozenset[str]


class DeviceTaintEviction:
    def __init__(
        self,
        objects: ObjectWriter,
        clock: LocalClock,
        timers: ComponentTimers,
        kubelets: Kubelets,
        recorder: StoredEvents,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._kubelets = kubelets
        self._recorder = recorder
        self._tainted: dict[str, dict[DeviceID, tuple[DeviceTaint, ...]]] = {}
        """By slice, its devices with NoExecute taints."""
        self._generations: dict[tuple[str, str], dict[str, int]] = {}
        """By driver and pool, the generation of each slice."""
        self._rules: dict[str, DeviceTaintRule] = {}
        self._stale_pods: dict[Key, None] = {}
        self._all_stale = False
        self._new_rules: dict[str, None] = {}
        self._planned: dict[Key, tuple[_Eviction, Timer]] = {}
        self._members: dict[Key, dict[Key, None]] = {}
        """Pods with claims by their PodGroup."""
        self._evicted: dict[str, int] = {}
        """Pods evicted because of a rule, by its UID."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == POD:
            self._member_changed(key, before, after)
            if after is None:
                self._planned.pop(key, None)
            elif self._is_active and after["spec"].get("resourceClaims"):
                self._stale_pods[key] = None
        elif key[:2] == CLAIM:
            if self._is_active:
                self._stale_pods.update(dict.fromkeys(self._consumers(after or before or {})))
        elif key[:2] == SLICE:
            self._slice_changed(key, before, after)
        elif key[:2] == RULE:
            self._rule_changed(key, before, after)

    def _member_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        some = after if after is not None else before
        group = group_key(some) if some is not None and some["spec"].get("resourceClaims") else None
        if group is None:
            return
        members = self._members.setdefault(group, {})
        if after is not None:
            members[key] = None
        else:
            members.pop(key, None)
            if not members:
                del self._members[group]

    def _consumers(self, claim: Raw) -> Iterator[Key]:
        """The pods that a claim is reserved for, themselves or by their PodGroup."""
        for consumer in (claim.get("status") or {}).get("reservedFor") or ():
            place = claim["metadata"]["namespace"], consumer.get("name", "")
            if is_group(consumer):
                yield from self._members.get(Key(*POD_GROUP, *place), ())
            else:
                yield pod_key(*place)

    @property
    def _is_active(self) -> bool:
        return bool(self._tainted or self._rules)

    def _slice_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        if before is not None:
            slices = self._generations[_pool_of(before)]
            slices.pop(key.name, None)
            if not slices:
                del self._generations[_pool_of(before)]
        if after is not None:
            slices = self._generations.setdefault(_pool_of(after), {})
            slices[key.name] = int(after["spec"]["pool"].get("generation", 0))
        was = self._tainted.pop(key.name, None)
        now = _tainted_devices(after)
        if now:
            self._tainted[key.name] = now
        if was or now:
            self._all_stale = True

    def _rule_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        if before is not None and after is not None and before.get("spec") == after.get("spec"):
            return
        rule = _rule(after)
        if rule is not None:
            self._rules[key.name] = rule
            self._new_rules[key.name] = None
        else:
            self._rules.pop(key.name, None)
        self._all_stale = True

    def settle(self) -> Steps:
        if self._all_stale:
            self._all_stale = False
            for claim in [*self._objects.scan(*CLAIM)]:
                self._stale_pods.update(dict.fromkeys(self._consumers(claim)))
            yield None
        stale, self._stale_pods = self._stale_pods, {}
        concerned = dict.fromkeys(self._new_rules)
        self._new_rules = {}
        for key in stale:
            before = self._planned.get(key)
            self._judge(key)
            after = self._planned.get(key)
            for each in (before, after):
                concerned.update(dict.fromkeys(each[0].rules if each is not None else ()))
            yield None
        for name in concerned:
            self._report(name)
            yield None

    # Pods

    def _judge(self, key: Key) -> None:
        pod = self._objects.get(key)
        if (
            pod is None
            or pod["metadata"].get("deletionTimestamp")
            or pod["status"].get("phase") in ENDED
        ):
            self._cancel(key)
            return
        eviction = self._eviction_of(pod)
        planned = self._planned.get(key)
        if eviction is None:
            if planned is not None:
                self._cancel(key)
                self._emit(pod, "Cancelling deletion")
            return
        if planned is not None:
            if planned[0] == eviction:
                return
            self._cancel(key)
        wait = eviction.at - self._clock.epoch()
        if wait <= 0:
            self._evict(key, eviction)
            return
        timer = self._timers.when_due(key, self._clock.t + wait, lambda: self._evict(key, eviction))
        self._planned[key] = eviction, timer

    def _cancel(self, key: Key) -> None:
        planned = self._planned.pop(key, None)
        if planned is not None:
            self._timers.cancel(planned[1])

    def _evict(self, key: Key, eviction: _Eviction) -> None:
        self._planned.pop(key, None)
        pod = self._objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        self._emit(pod, "Marking for deletion")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": _MESSAGE,
        }
        conditions = pod["status"].get("conditions") or []
        conditions = with_condition(conditions, condition, self._clock.stamp())
        self._objects.update(key, {**pod, "status": {**pod["status"], "conditions": conditions}})
        self._kubelets.delete(key)
        for name in eviction.rules:
            rule = self._rules.get(name)
            if rule is not None:
                uid = rule.metadata.uid
                self._evicted[uid] = self._evicted.get(uid, 0) + 1
                self._new_rules[name] = None

    def _eviction_of(self, pod: Raw, pretended: str = "") -> _Eviction | None:
        """Whether the pod must go: None if not. The rule `pretended` counts as if it evicted pods."""
        if not pod["spec"].get("nodeName"):
            return None
        namespace = pod["metadata"]["namespace"]
        at: float | None = None
        rules: set[str] = set()
        for entry, name, _ in claim_names(pod):
            raw = self._objects.get(claim_key(namespace, name)) if name is not None else None
            if raw is None or not is_reserved_for(raw, pod):
                continue
            if entry.get("resourceClaimName") is None and not is_owned_by(raw, pod):
                continue
            for when, rule in self._evictions_of_claim(raw, pretended):
                at = when if at is None else min(at, when)
                if rule:
                    rules.add(rule)
        return None if at is None else _Eviction(at, frozenset(rules))

    def _evictions_of_claim(self, raw: Raw, pretended: str) -> Iterator[tuple[float, str]]:
        """The times at which taints of the claim's devices end its use, and the rules that set them."""
        try:
            allocation = convert(raw, ResourceClaim).status.allocation
        except InvalidObject:
            return
        for result in allocation.devices.results if allocation is not None else ():
            for taint, rule in self._taints_of(result, pretended):
                seconds = _tolerated_for(result.tolerations, taint)
                if seconds is not None:
                    yield self._added(taint) + seconds, rule

    def _taints_of(
        self, result: DeviceRequestAllocationResult, pretended: str
    ) -> Iterator[tuple[DeviceTaint, str]]:
        device = result.device_id
        for name, devices in self._tainted.items():
            if device in devices and self._is_current(name, device):
                for taint in devices[device]:
                    yield taint, ""
        for name, rule in sorted(self._rules.items()):
            selector, taint = rule.spec.device_selector, rule.spec.taint
            if selector is None or not selector.selects(device):
                continue
            if taint.effect == NO_EXECUTE:
                yield taint, name
            elif name == pretended:
                yield (
                    DeviceTaint(
                        key=taint.key,
                        value=taint.value,
                        effect=NO_EXECUTE,
                        time_added=taint.time_added,
                    ),
                    name,
                )

    def _is_current(self, name: str, device: DeviceID) -> bool:
        """Whether no slice of the pool has a newer generation."""
        slices = self._generations[device.driver, device.pool]
        return slices[name] == max(slices.values())

    def _added(self, taint: DeviceTaint) -> float:
        try:
            return parse_time(taint.time_added) if taint.time_added else self._clock.epoch()
        except TimeError:
            return self._clock.epoch()

    def _emit(self, pod: Raw, text: str) -> None:
        metadata = pod["metadata"]
        about = ObjectRef("Pod", metadata["namespace"], metadata["name"], metadata["uid"])
        self._recorder.emit(Emit(about, "Normal", _EVENT, text), _SOURCE)

    # The status of rules

    def _report(self, name: str) -> None:
        key = Key(*RULE, "", name)
        raw, rule = self._objects.get(key), self._rules.get(name)
        if raw is None or rule is None:
            return
        status = raw.get("status") or {}
        before = status.get("conditions") or []
        known = next((each for each in before if each.get("type") == _CONDITION), None)
        generation = raw["metadata"].get("generation", 1)
        if (
            rule.spec.taint.effect == "None"
            and known is not None
            and known.get("observedGeneration") == generation
        ):
            return
        reason, message = self._progress(name, rule)
        condition = {
            "type": _CONDITION,
            "status": "True" if reason == "PodsPendingEviction" else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
        }
        if known is not None and all(known.get(field) == value for field, value in condition.items()):
            return
        others = [each for each in before if each.get("type") != _CONDITION]
        conditions = [*others, {**condition, "lastTransitionTime": self._clock.stamp()}]
        self._objects.update(key, {**raw, "status": {**status, "conditions": conditions}})

    def _progress(self, name: str, rule: DeviceTaintRule) -> tuple[str, str]:
        evicted = self._evicted.get(rule.metadata.uid, 0)
        since = f"{number_of(evicted, 'pod')} evicted since starting the controller." if evicted else ""
        match rule.spec.taint.effect:
            case "NoExecute":
                pods, namespaces = self._pending(name)
                if pods:
                    need = number_of(pods, "pod needs", "pods need")
                    text = f"{need} to be evicted in {_places(namespaces)}."
                    return "PodsPendingEviction", f"{text} {since}".strip()
                return ("Completed" if evicted else "NotStarted"), since
            case "None":
                pods, namespaces = self._pending(name)
                published, allocated = self._selected(rule)
                text = (
                    f"{number_of(published, 'published device')} selected. "
                    f"{number_of(allocated, 'allocated device')} selected. "
                    f"{number_of(pods, 'pod')} would be evicted in {_places(namespaces)} {_NOT_UPDATED}"
                )
                return "NoEffect", f"{text} {since}".strip()
            case _:
                text = "Eviction only happens for the NoExecute effect."
                return "OtherEffect", f"{text} {since}".strip()

    def _pending(self, name: str) -> tuple[int, int]:
        """How many pods the rule evicts, or would, and in how many namespaces."""
        namespaces: dict[str, None] = {}
        count = 0
        for pod in self._objects.scan(*POD):
            if not pod["spec"].get("resourceClaims") or pod["metadata"].get("deletionTimestamp"):
                continue
            eviction = self._eviction_of(pod, pretended=name)
            if eviction is not None and name in eviction.rules:
                count += 1
                namespaces[pod["metadata"]["namespace"]] = None
        return count, len(namespaces)

    def _selected(self, rule: DeviceTaintRule) -> tuple[int, int]:
        """How many devices of slices the rule selects, and how many allocated ones."""
        selector = rule.spec.device_selector
        if selector is None:
            return 0, 0
        published = sum(
            selector.selects(DeviceID(spec.get("driver", ""), spec["pool"]["name"], device["name"]))
            for spec in (raw["spec"] for raw in self._objects.scan(*SLICE))
            for device in spec.get("devices") or ()
        )
        allocated = 0
        for raw in self._objects.scan(*CLAIM):
            allocation = (raw.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                device = DeviceID(result["driver"], result["pool"], result["device"])
                allocated += selector.selects(device)
        return published, allocated


def _tainted_devices(raw: Raw | None) -> dict[DeviceID, tuple[DeviceTaint, ...]]:
    devices = ((raw or {}).get("spec") or {}).get("devices") or ()
    if raw is None or not any(device.get("taints") for device in devices):
        return {}
    try:
        spec = convert(raw, ResourceSlice).spec
    except InvalidObject:
        return {}
    found = {
        DeviceID(spec.driver, spec.pool.name, device.name): tuple(
            taint for taint in device.taints if taint.effect == NO_EXECUTE
        )
        for device in spec.devices
    }
    return {device: taints for device, taints in found.items() if taints}


def _pool_of(raw: Raw) -> tuple[str, str]:
    return raw["spec"]["driver"], raw["spec"]["pool"]["name"]


def _rule(raw: Raw | None) -> DeviceTaintRule | None:
    if raw is None:
        return None
    try:
        return convert(raw, DeviceTaintRule)
    except InvalidObject:
        return None


def _tolerated_for(tolerations: tuple[DeviceToleration, ...], taint: DeviceTaint) -> float | None:
    """Seconds until the taint ends the use of the device; None if it is tolerated for ever."""
    shortest: int | None = None
    for toleration in tolerations:
        if toleration.effect == NO_EXECUTE and toleration.tolerates(taint):
            if toleration.toleration_seconds is None:
                return None
            seconds = max(toleration.toleration_seconds, 0)
            shortest = seconds if shortest is None else min(shortest, seconds)
    return float(shortest or 0)


def _places(namespaces: int) -> str:
    return number_of(namespaces, "namespace", "different namespaces")

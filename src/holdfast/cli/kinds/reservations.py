"""Output of reservations: amounts, owners, phase, expiry; and of starvation holds, which are
reservations.
"""

from collections.abc import Sequence
from contextlib import suppress
from math import floor
from typing import Any, ClassVar

import msgspec

from holdfast.api.calendar import BeforeStart
from holdfast.api.decode import convert
from holdfast.api.errors import DurationError, InvalidObject, TimeError
from holdfast.api.kinds import KINDS
from holdfast.api.names import (
    AT_END,
    BEFORE_START,
    DEFAULT_NAMESPACE,
    DEVICE_CLASS_RESOURCE_PREFIX,
    HELD_DEVICES,
    HOLD_EXPECTED_START,
    HOLD_JOB,
    HOLD_LABEL,
    LEAD,
    RELEASE_IF_UNUSED_AFTER,
    RESOURCE_API,
    STARTS_AT,
)
from holdfast.api.pod import Pod
from holdfast.api.quantity import QuantityError, amount, shown
from holdfast.api.reservation import DEFAULT_TTL, NODE_GONE, unused_for
from holdfast.api.resources import pod_requests
from holdfast.api.times import format_time, parse_duration, parse_time, span_text
from holdfast.cli.client import RESERVATION, ObjectLister, Raw
from holdfast.cli.kinds.kind import OutputColumn, PlainKind
from holdfast.cli.printing import (
    NEVER,
    UNKNOWN,
    Description,
    age,
    events,
    pairs,
    since,
    some,
    taint_text,
)
from holdfast.kube.errors import KubernetesError
from holdfast.local.apiserver.tables.columns import human_duration, selector_text

_CLAIM = KINDS[RESOURCE_API, "ResourceClaim"]
_CLAIM_TEMPLATE = KINDS[RESOURCE_API, "ResourceClaimTemplate"]
_ENDED = ("Succeeded", "Failed")


class ReservationKind(PlainKind):
    infos = (RESERVATION,)
    status = "PHASE"
    columns: ClassVar[tuple[OutputColumn, ...]] = (
        OutputColumn("NAME"),
        OutputColumn("PHASE"),
        OutputColumn("STATE", optional=True),
        OutputColumn("NODE"),
        OutputColumn("OWNERS"),
        OutputColumn("ALLOCATED"),
        OutputColumn("NEXT", optional=True),
        OutputColumn("TTL"),
        OutputColumn("EXPIRES"),
        OutputColumn("AGE"),
        OutputColumn("FOR", wide=True),
        OutputColumn("ONCE", wide=True),
        OutputColumn("POLICY", wide=True),
        OutputColumn("REQUESTS", wide=True),
        OutputColumn("MESSAGE", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        owners = [owner.get("name") or "" for owner in status.get("currentOwners") or ()]
        return [
            raw["metadata"]["name"],
            phase(raw),
            calendar_state(raw),
            status.get("nodeName") or "",
            some(owners),
            taken(raw),
            time_until(start_time(raw), now),
            lifetime(spec),
            expiry(raw, now),
            age(raw, now),
            " | ".join(owner_text(owner) for owner in spec.get("owners") or ()),
            _yes(spec.get("allocateOnce", True)),
            spec.get("allocatePolicy") or "",
            pairs(requests(spec.get("template"))),  # with devices: see `filled`
            message(raw),
        ]

    async def filled(self, server: ObjectLister, objects: Sequence[Raw], now: float) -> list[list[str]]:
        cells = await super().filled(server, objects, now)
        names = [column.name for column in self.columns]
        if "REQUESTS" in names:
            at, devices = names.index("REQUESTS"), await _requested_devices(server, objects)
            for row, requested in zip(cells, devices, strict=True):
                row[at] = ",".join(filter(None, (row[at], *requested)))
        return cells

    async def describe(self, server: ObjectLister, raw: Raw) -> str:
        now = server.now()
        text = Description()
        metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        text.field("Name", metadata["name"])
        text.listed("Labels", [f"{k}={v}" for k, v in sorted((metadata.get("labels") or {}).items())])
        text.field("Created", f"{metadata.get('creationTimestamp')} ({age(raw, now)} ago)")
        text.field("Phase", phase(raw))
        text.field("Node", status.get("nodeName"))
        text.listed("For", [owner_text(owner) for owner in spec.get("owners") or ()])
        text.field("Policy", spec.get("allocatePolicy") or "Default")
        text.field("Allocate Once", _yes(spec.get("allocateOnce", True)))
        text.field("Pre-allocation", _yes(spec.get("preAllocation", False)))
        text.field("Unschedulable", _yes(spec.get("unschedulable", False)))
        text.field("TTL", lifetime(spec))
        if has_ended(raw):
            text.field("Ended", _end_with_time(raw, now))
        else:
            text.field("Expires", _expiry_with_time(raw, now))
        _describe_calendar(text, raw, now)
        text.listed("Taints", [taint_text(taint) for taint in spec.get("taints") or ()])
        (devices,) = await _requested_devices(server, [raw])
        requested = (pairs(requests(spec.get("template"))), *devices)
        text.field("Requests", ",".join(filter(None, requested)))
        pod = (spec.get("template") or {}).get("spec") or {}
        if pod.get("nodeName"):
            text.field("Requested Node", pod["nodeName"])
        if pod.get("nodeSelector"):
            text.field("Node-Selectors", pairs(pod["nodeSelector"]))
        text.table("Resources", ("Resource", "Reserved", "Allocated", "Left"), _resources(raw))
        if pod.get("resourceClaims"):
            text.table("Devices", ("Device", "State"), await _devices(server, raw))
        owners = status.get("currentOwners") or ()
        text.listed("Current Owners", [f"{o.get('namespace')}/{o.get('name')}" for o in owners])
        conditions = status.get("conditions") or ()
        headers = ("Type", "Status", "Reason", "Since", "Message")
        text.table("Conditions", headers, [_condition(each) for each in conditions])
        events(text, await server.events(raw), now)
        if phase(raw) in ("Pending", "Waiting"):
            name = metadata["name"]
            text.note(f"holdfast explain reservation {name}: why it is {phase(raw).lower()}")
        return text.text()

    def has_ended(self, raw: Raw) -> bool:
        return has_ended(raw)


async def _requested_devices(server: ObjectLister, objects: Sequence[Raw]) -> list[list[str]]:
    """Of each reservation, the devices that its claims request, by the extended resources of their
    classes: `deviceclass.resource.kubernetes.io/gpu=2`."""
    if not any(map(_claims_of, objects)):
        return [[] for _ in objects]
    specs: dict[tuple[str, str, str], Raw] = {}
    for info, field in ((_CLAIM_TEMPLATE, "resourceClaimTemplateName"), (_CLAIM, "resourceClaimName")):
        with suppress(KubernetesError):
            for each in (await server.listed(info))[0]:
                metadata, spec = each["metadata"], each.get("spec") or {}
                key = field, metadata.get("namespace") or DEFAULT_NAMESPACE, metadata["name"]
                specs[key] = (spec.get("spec") or {}) if info is _CLAIM_TEMPLATE else spec
    found = []
    for raw in objects:
        template = (raw.get("spec") or {}).get("template") or {}
        namespace = (template.get("metadata") or {}).get("namespace") or DEFAULT_NAMESPACE
        wanted = [
            specs.get((field, namespace, str(entry[field])), {})
            for entry in _claims_of(raw)
            for field in ("resourceClaimTemplateName", "resourceClaimName")
            if entry.get(field)
        ]
        devices = [(spec.get("devices") or {}).get("requests") or () for spec in wanted]
        found.append([_device_request(each) for part in devices for each in part])
    return found


def _claims_of(raw: Raw) -> list[Raw]:
    template = (raw.get("spec") or {}).get("template") or {}
    return (template.get("spec") or {}).get("resourceClaims") or []


def _device_request(request: Raw) -> str:
    alternatives = [request["exactly"]] if request.get("exactly") else request.get("firstAvailable")
    return " or ".join(
        f"{DEVICE_CLASS_RESOURCE_PREFIX}{each.get('deviceClassName')}="
        f"{'all' if each.get('allocationMode') == 'All' else each.get('count', 1)}"
        for each in alternatives or ()
    )


async def _devices(server: ObjectLister, raw: Raw) -> list[list[str]]:
    """The devices that a reservation holds by its claims, and whether an owner uses them."""
    try:
        claims, _ = await server.listed(_CLAIM)
    except KubernetesError:
        return []
    found = []
    for claim in claims:
        metadata = claim["metadata"]
        text = (metadata.get("annotations") or {}).get(HELD_DEVICES)
        owners = metadata.get("ownerReferences") or ()
        if not text or raw["metadata"].get("uid") not in [each.get("uid") for each in owners]:
            continue
        idle = _results((claim.get("status") or {}).get("allocation"))
        with suppress(msgspec.DecodeError):
            found += [
                [device, "held" if device in idle else "in use by an owner"]
                for device in _results(msgspec.json.decode(text))
            ]
    return sorted(found)


def _results(allocation: Any) -> list[str]:
    """`gpu.example.com/node-1/gpu-0` for each device of an allocation."""
    devices = (allocation or {}).get("devices") or {}
    return [f"{r['driver']}/{r['pool']}/{r['device']}" for r in devices.get("results") or ()]


def has_ended(raw: Raw) -> bool:
    """Whether it reserves nothing and never will again."""
    return (raw.get("status") or {}).get("phase") in _ENDED


def phase(raw: Raw) -> str:
    if raw["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return (raw.get("status") or {}).get("phase") or "Pending"


def lifetime(spec: Raw) -> str:
    """The ttl. The default is not written, since an explicit end switches it off."""
    text = spec.get("ttl") or ("" if spec.get("expires") else DEFAULT_TTL)
    return NEVER if _seconds(text) == 0 else text


def expiry(raw: Raw, now: float) -> str:
    """`in 23h`, `never`, `expired 5m ago`; `node gone 5m ago` of one that was lost with its node,
    `unused for 10m, released 5m ago` of one that had no owner; empty for one that ended otherwise."""
    if has_ended(raw):
        expired = _condition_of(raw, "Ready", "Expired")
        if expired is None:
            return ""
        message = str(expired.get("message") or "")
        what = "expired"
        if message == NODE_GONE.format((raw.get("status") or {}).get("nodeName")):
            what = "node gone"
        elif unused := unused_for(message):
            what = f"unused for {unused}, released"
        ago = since(expired.get("lastTransitionTime"), now)
        return f"{what} {ago} ago" if ago != UNKNOWN else what
    end = end_time(raw)
    if end is None:
        return NEVER
    if end < now:
        return f"expired {human_duration(now - end)} ago"
    return f"in {span_text(floor(end - now))}"


def end_time(raw: Raw) -> float | None:
    """When it expires; None if never, or if the object does not say so in a valid way."""
    spec = raw.get("spec") or {}
    try:
        if spec.get("expires"):
            return parse_time(str(spec["expires"]))
        seconds = _seconds(spec.get("ttl") or DEFAULT_TTL)
        begins = start_time(raw)
        created = raw["metadata"].get("creationTimestamp")
        if begins is None and created:
            begins = parse_time(str(created))
        return begins + seconds if seconds and begins is not None else None
    except TimeError:
        return None


def _seconds(duration: Any) -> float | None:
    try:
        return parse_duration(str(duration))
    except DurationError:
        return None


def _expiry_with_time(raw: Raw, now: float) -> str:
    text, end = expiry(raw, now), end_time(raw)
    return f"{format_time(end)} ({text})" if end is not None and text else text


def _end_with_time(raw: Raw, now: float) -> str:
    """When and how it ended."""
    ended = condition(raw, "Ready").get("lastTransitionTime")
    how = expiry(raw, now) or phase(raw).lower()
    return f"{ended} ({how})" if ended else how


def taken(raw: Raw) -> str:
    """`cpu=2/4,memory=4Gi/8Gi`: allocated of reserved. A reservation that has ended reserves nothing,
    so that only what its pods use is shown.
    """
    status = raw.get("status") or {}
    allocated = status.get("allocated") or {}
    ended = has_ended(raw)
    return ",".join(
        f"{name}={allocated.get(name, 0)}" + ("" if ended else f"/{quantity}")
        for name, quantity in sorted((status.get("allocatable") or {}).items())
        if not ended or _amount(name, allocated.get(name, 0))
    )


def owner_text(owner: Raw) -> str:
    """The owners, in short form: `app=web (namespace shop)`, `Job/shop/train`."""
    parts = []
    reference = owner.get("object") or {}
    only_namespace = {key for key, value in reference.items() if value} == {"namespace"}
    for kind in ("object", "controller"):
        reference = owner.get(kind)
        if reference is None or (kind == "object" and only_namespace):
            continue
        name = reference.get("name") or reference.get("uid") or "*"
        title = reference.get("kind") or ("Pod" if kind == "object" else "controller")
        where = reference.get("namespace")
        parts.append(f"{title}/{where}/{name}" if where else f"{title}/{name}")
    if owner.get("labelSelector") is not None:
        parts.append(selector_text(owner["labelSelector"]))
    text = " & ".join(parts) or "any pod"
    return f"{text} (namespace {owner['object']['namespace']})" if only_namespace else text


def message(raw: Raw) -> str:
    """Its current message: why it has no node, or how it ended; or whether it can start as planned."""
    if feasible := condition(raw, "Feasible").get("message"):
        return str(feasible)
    conditions = (raw.get("status") or {}).get("conditions") or ()
    said = [each.get("message") or "" for each in conditions if each.get("status") == "False"]
    return said[-1] if said else ""


def condition(raw: Raw, type: str) -> Raw:
    """Empty if it is not there."""
    found: list[Raw] = (raw.get("status") or {}).get("conditions") or []
    return next((each for each in found if each.get("type") == type), {})


def plan_text(raw: Raw) -> str:
    """`starts at 2027-01-01T00:00:00Z on n1; Feasible: True`, of a reservation that starts later."""
    feasible = condition(raw, "Feasible")
    said = [str(condition(raw, "Planned").get("message") or "")]
    if feasible:
        detail = feasible.get("message")
        said.append(f"Feasible: {feasible.get('status')}" + (f" ({detail})" if detail else ""))
    return "; ".join(said)


def start_time(raw: Raw) -> float | None:
    """When it starts; None if at once, or if the object does not say so in a valid way."""
    text = (raw["metadata"].get("annotations") or {}).get(STARTS_AT)
    try:
        return None if text is None else parse_time(str(text))
    except TimeError:
        return None


def calendar_state(raw: Raw) -> str:
    """`Planned`, `Draining`, `NotPlanned` or `Started` of one with a start; else empty."""
    return "" if has_ended(raw) else str(condition(raw, "Planned").get("reason") or "")


def time_until(time: float | None, now: float) -> str:
    """`in 3h`; empty if the time has passed."""
    return "" if time is None or time <= now else f"in {span_text(floor(time - now))}"


def _describe_calendar(text: Description, raw: Raw, now: float) -> None:
    """The start, what happens before and at the end, and whether the plan can be kept."""
    annotations, start = raw["metadata"].get("annotations") or {}, start_time(raw)
    if start is not None:
        until = time_until(start, now) or f"{human_duration(now - start)} ago"
        text.field("Starts", f"{format_time(start)} ({until})")
        text.field("State", calendar_state(raw))
        text.field("Lead", annotations.get(LEAD, "0"))
        text.field("Before Start", annotations.get(BEFORE_START, BeforeStart.BACKFILL))
    if feasible := condition(raw, "Feasible"):
        detail = feasible.get("message")
        text.field("Feasible", f"{feasible.get('status')}" + (f": {detail}" if detail else ""))
    if AT_END in annotations:
        text.field("At End", annotations[AT_END])
    if RELEASE_IF_UNUSED_AFTER in annotations:
        text.field("Release Unused", f"after {annotations[RELEASE_IF_UNUSED_AFTER]}")


def requests(pod: Raw | None) -> dict[str, str]:
    """The requests of a pod or a pod template, as the scheduler counts them; none of an invalid one."""
    try:
        found = pod_requests(convert(pod or {}, Pod))
    except InvalidObject:
        return {}
    return {name: shown(name, value) for name, value in found.items()}


def _amount(name: str, quantity: Any) -> int:
    try:
        return amount(name, quantity)
    except QuantityError:
        return 0


def _resources(raw: Raw) -> list[list[str]]:
    status = raw.get("status") or {}
    allocated = status.get("allocated") or {}
    rows = []
    for name, quantity in sorted((status.get("allocatable") or {}).items()):
        used = allocated.get(name, 0)
        left = max(0, _amount(name, quantity) - _amount(name, used)) if not has_ended(raw) else 0
        rows.append([name, str(quantity), str(used), shown(name, left)])
    return rows


def _condition_of(raw: Raw, type: str, reason: str) -> Raw | None:
    for each in (raw.get("status") or {}).get("conditions") or ():
        if (each.get("type"), each.get("reason")) == (type, reason):
            return dict(each)
    return None


def _condition(raw: Raw) -> list[str]:
    keys = ("type", "status", "reason", "lastTransitionTime", "message")
    return [str(raw.get(key) or "") for key in keys]


def _yes(value: Any) -> str:
    return "true" if value else "false"


# Starvation holds


class HoldKind(ReservationKind):
    selector = HOLD_LABEL
    columns = (
        OutputColumn("NAME"),
        OutputColumn("JOB"),
        OutputColumn("PHASE"),
        OutputColumn("NODE"),
        OutputColumn("HOLDS"),
        OutputColumn("EXPECTED-START"),
        OutputColumn("AGE"),
        OutputColumn("MESSAGE", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        metadata, status = raw["metadata"], raw.get("status") or {}
        said = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        amounts = status.get("allocatable") or requests((raw.get("spec") or {}).get("template"))
        return [
            metadata["name"],
            said.get(HOLD_JOB, ""),
            phase(raw),
            status.get("nodeName") or "",
            pairs(amounts),
            said.get(HOLD_EXPECTED_START, ""),
            age(raw, now),
            message(raw),
        ]

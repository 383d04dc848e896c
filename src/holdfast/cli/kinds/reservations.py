"""Output of reservations: amounts, owners, phase; and of starvation holds, which are reservations."""

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from holdfast.api.names import HOLD_EXPECTED_START, HOLD_JOB, HOLD_LABEL
from holdfast.api.quantity import QuantityError, amount
from holdfast.api.reservation import DEFAULT_TTL
from holdfast.cli.client import RESERVATION, Raw, Server
from holdfast.cli.kinds.kind import OutputColumn, PlainKind
from holdfast.cli.printing import Description, age, events, pairs, some, taint_text
from holdfast.local.apiserver.tables.columns import selector_text
from holdfast.snapshot.cluster_snapshot import shown


class ReservationKind(PlainKind):
    info = RESERVATION
    columns: ClassVar[tuple[OutputColumn, ...]] = (
        OutputColumn("NAME"),
        OutputColumn("PHASE"),
        OutputColumn("NODE"),
        OutputColumn("OWNERS"),
        OutputColumn("ALLOCATED"),
        OutputColumn("TTL"),
        OutputColumn("EXPIRES"),
        OutputColumn("AGE"),
        OutputColumn("FOR", wide=True),
        OutputColumn("ONCE", wide=True),
        OutputColumn("POLICY", wide=True),
        OutputColumn("MESSAGE", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        owners = [owner.get("name") or "" for owner in status.get("currentOwners") or ()]
        return [
            raw["metadata"]["name"],
            phase(raw),
            status.get("nodeName") or "",
            some(owners),
            taken(status),
            lifetime(spec),
            spec.get("expires") or "",
            age(raw, now),
            " | ".join(owner_text(owner) for owner in spec.get("owners") or ()),
            _yes(spec.get("allocateOnce", True)),
            spec.get("allocatePolicy") or "",
            message(raw),
        ]

    async def describe(self, server: Server, raw: Raw) -> str:
        now = time.time()
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
        text.field("Expires", spec.get("expires"))
        text.listed("Taints", [taint_text(taint) for taint in spec.get("taints") or ()])
        text.field("Requests", pairs(requests(spec.get("template"))))
        pod = (spec.get("template") or {}).get("spec") or {}
        if pod.get("nodeName"):
            text.field("Requested Node", pod["nodeName"])
        if pod.get("nodeSelector"):
            text.field("Node-Selectors", pairs(pod["nodeSelector"]))
        text.table("Resources", ("Resource", "Reserved", "Allocated", "Left"), _resources(status))
        owners = status.get("currentOwners") or ()
        text.listed("Current Owners", [f"{o.get('namespace')}/{o.get('name')}" for o in owners])
        conditions = status.get("conditions") or ()
        headers = ("Type", "Status", "Reason", "Since", "Message")
        text.table("Conditions", headers, [_condition(each) for each in conditions])
        events(text, await server.events(raw), now)
        return text.text()


def phase(raw: Raw) -> str:
    if raw["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return (raw.get("status") or {}).get("phase") or "Pending"


def lifetime(spec: Raw) -> str:
    """The ttl or expiry. The default ttl is not written, since an explicit end switches it off."""
    return spec.get("ttl") or ("" if spec.get("expires") else DEFAULT_TTL)


def taken(status: Raw) -> str:
    """`cpu=2/4,memory=4Gi/8Gi`: allocated of allocatable."""
    allocated = status.get("allocated") or {}
    return ",".join(
        f"{name}={allocated.get(name, 0)}/{quantity}"
        for name, quantity in sorted((status.get("allocatable") or {}).items())
    )


def owner_text(owner: Raw) -> str:
    """The owners, in short form."""
    parts = []
    for kind in ("object", "controller"):
        reference = owner.get(kind)
        if reference is None:
            continue
        name = reference.get("name") or reference.get("uid") or "*"
        title = reference.get("kind") or ("Pod" if kind == "object" else "controller")
        where = reference.get("namespace")
        parts.append(f"{title}/{where}/{name}" if where else f"{title}/{name}")
    if owner.get("labelSelector") is not None:
        parts.append(selector_text(owner["labelSelector"]))
    return " & ".join(parts)


def message(raw: Raw) -> str:
    """Its current message: why it has no node, or how it ended."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    said = [each.get("message") or "" for each in conditions if each.get("status") == "False"]
    return said[-1] if said else ""


def requests(template: Raw | None) -> dict[str, str]:
    """The requests of a template's containers."""
    total: dict[str, int] = {}
    for container in ((template or {}).get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        asked: Mapping[str, Any] = {
            **(resources.get("limits") or {}),
            **(resources.get("requests") or {}),
        }
        for name, quantity in asked.items():
            total[name] = total.get(name, 0) + _amount(name, quantity)
    return {name: shown(name, value) for name, value in total.items()}


def _amount(name: str, quantity: Any) -> int:
    try:
        return amount(name, quantity)
    except QuantityError:
        return 0


def _resources(status: Raw) -> list[list[str]]:
    allocated = status.get("allocated") or {}
    rows = []
    for name, quantity in sorted((status.get("allocatable") or {}).items()):
        used = allocated.get(name, 0)
        left = max(0, _amount(name, quantity) - _amount(name, used))
        rows.append([name, str(quantity), str(used), shown(name, left)])
    return rows


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

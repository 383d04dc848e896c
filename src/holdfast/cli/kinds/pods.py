"""Output of pods: where each one is, and the reservation that it uses."""

import json
from collections.abc import Sequence
from typing import Any

from holdfast.api.names import RESERVATION_AFFINITY, RESERVATION_ALLOCATED
from holdfast.cli.client import POD, RESERVATION, ObjectLister, Raw
from holdfast.cli.kinds.kind import OutputColumn, PlainKind
from holdfast.cli.kinds.reservations import owner_text, requests
from holdfast.cli.kinds.reservations import phase as reservation_phase
from holdfast.cli.printing import Description, age, events, pairs
from holdfast.kube.errors import ApiError, KubernetesError
from holdfast.local.apiserver.tables.workloads import PODS

_READY, _STATUS = 1, 2
"""Columns of kubectl's table of pods."""


class PodOutputKind(PlainKind):
    infos = (POD,)
    status = "STATUS"
    columns = (
        OutputColumn("NAME"),
        OutputColumn("READY"),
        OutputColumn("STATUS"),
        OutputColumn("NODE"),
        OutputColumn("RESERVATION"),
        OutputColumn("JOB"),
        OutputColumn("AGE"),
        OutputColumn("PRIORITY", wide=True),
        OutputColumn("SCHEDULER", wide=True),
        OutputColumn("NOMINATED", wide=True),
        OutputColumn("MESSAGE", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        as_kubectl = PODS.cells(raw, now)
        return [
            raw["metadata"]["name"],
            str(as_kubectl[_READY]),
            str(as_kubectl[_STATUS]),
            spec.get("nodeName") or "",
            "",  # see `filled`
            job_name(raw),
            age(raw, now),
            str(spec.get("priority") or 0),
            spec.get("schedulerName") or "",
            status.get("nominatedNodeName") or "",
            why_pending(raw),
        ]

    async def filled(self, server: ObjectLister, objects: Sequence[Raw], now: float) -> list[list[str]]:
        cells = await super().filled(server, objects, now)
        at = [column.name for column in self.columns].index("RESERVATION")
        for row, name in zip(cells, await _used_reservations(server, objects), strict=True):
            row[at] = name
        return cells

    async def describe(self, server: ObjectLister, raw: Raw) -> str:
        now = server.now()
        metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
        annotations = metadata.get("annotations") or {}
        text = Description()
        text.field("Name", metadata["name"])
        text.field("Namespace", metadata.get("namespace"))
        text.listed("Labels", [f"{k}={v}" for k, v in sorted((metadata.get("labels") or {}).items())])
        text.field("Created", f"{metadata.get('creationTimestamp')} ({age(raw, now)} ago)")
        text.field("Status", PODS.cells(raw, now)[_STATUS])
        text.field("Node", spec.get("nodeName"))
        text.field("Nominated Node", status.get("nominatedNodeName"))
        text.field("Scheduler", spec.get("schedulerName"))
        text.field("Priority", spec.get("priority") or 0)
        text.field("Job", job_name(raw))
        text.field("Requests", pairs(requests(raw)))
        if annotations.get(RESERVATION_AFFINITY):
            text.field("Reservation Affinity", annotations[RESERVATION_AFFINITY])
        text.listed("Reservation", await _reservation(server, raw))
        if why_pending(raw):
            text.field("Message", why_pending(raw))
        events(text, await server.events(raw), now)
        name, namespace = metadata["name"], metadata.get("namespace")
        text.note(f"holdfast explain pod {name} -n {namespace}: {_question(spec)}")
        return text.text()


def _question(spec: Raw) -> str:
    return "why it is on its node" if spec.get("nodeName") else "why it is pending, and what would help"


async def _used_reservations(server: ObjectLister, pods: Sequence[Raw]) -> list[str]:
    """The names of the reservations that pods use; as the annotations have them, if reservations
    cannot be read."""
    names = [str(_allocated(raw).get("name") or "") for raw in pods]
    wanted = sorted({name for name in names if name})
    if not wanted:
        return names
    try:
        if len(wanted) == 1:
            found = [await server.get(RESERVATION, wanted[0])]
        else:
            found = (await server.listed(RESERVATION))[0]
    except KubernetesError as error:
        if not isinstance(error, ApiError) or error.status != 404:
            return names
        found = []
    known = {raw["metadata"]["name"]: raw for raw in found}
    return [
        name if name in known and _uses(pod, known[name]) else ""
        for pod, name in zip(pods, names, strict=True)
    ]


def _uses(pod: Raw, reservation: Raw) -> bool:
    """Whether the reservation counts the pod among its owners: it is the one that the pod was allocated
    from, on the pod's node, and neither has ended. One to allocate once has succeeded with its pod."""
    status = reservation.get("status") or {}
    return (
        _is_allocated_from(pod, reservation)
        and status.get("nodeName") == (pod.get("spec") or {}).get("nodeName")
        and status.get("phase") != "Failed"
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    )


def _is_allocated_from(pod: Raw, reservation: Raw) -> bool:
    return _allocated(pod).get("uid") in (None, "", reservation["metadata"].get("uid"))


def _allocated(raw: Raw) -> dict[str, Any]:
    text = (raw["metadata"].get("annotations") or {}).get(RESERVATION_ALLOCATED)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _reservation(server: ObjectLister, raw: Raw) -> list[str]:
    """The reservation with its phase and owners, or that it is gone."""
    name = str(_allocated(raw).get("name") or "")
    if not name:
        return []
    try:
        found = await server.get(RESERVATION, name)
    except ApiError as error:
        return [f"{name} (deleted)" if error.status == 404 else name]
    if not _is_allocated_from(raw, found):
        return [f"{name} (deleted; there is another of that name)"]
    owners = [f"for {owner_text(owner)}" for owner in (found.get("spec") or {}).get("owners") or ()]
    return [f"{name} ({reservation_phase(found)})", *owners]


def job_name(raw: Raw) -> str:
    """The pod group that the pod is a member of."""
    from holdfast.api.meta import ObjectMeta
    from holdfast.scheduler.jobs.job import named_in

    if name := group_name(raw):
        return name
    metadata = raw["metadata"]
    found = named_in(
        ObjectMeta(
            namespace=metadata.get("namespace") or "",
            labels=metadata.get("labels") or {},
            annotations=metadata.get("annotations") or {},
        )
    )
    return found.name if found is not None else ""


def group_name(raw: Raw) -> str:
    """The PodGroup of `scheduling.k8s.io` that the pod is a member of."""
    group = (raw.get("spec") or {}).get("schedulingGroup") or {}
    return str(group.get("podGroupName") or "")


def why_pending(raw: Raw) -> str:
    """The message of the condition that says why it has no node."""
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or "")
    return ""

"""Output of PodGroups, of any API group."""

from holdfast.api.kinds import KINDS
from holdfast.api.names import (
    QUEUE_NAME_ANNOTATION,
    SIGS_PODGROUP_API,
    VOLCANO_API,
    WORKLOAD_API,
)
from holdfast.api.pod_groups import INITIALLY_SCHEDULED, group_state
from holdfast.cli.client import ObjectLister, Raw
from holdfast.cli.kinds.kind import OutputColumn, PlainKind
from holdfast.cli.printing import Description, age, events, pairs


class PodGroupKind(PlainKind):
    infos = tuple(KINDS[api, "PodGroup"] for api in (VOLCANO_API, SIGS_PODGROUP_API, WORKLOAD_API))
    status = "PHASE"
    columns = (
        OutputColumn("NAME"),
        OutputColumn("PHASE"),
        OutputColumn("MIN-MEMBER"),
        OutputColumn("RUNNING"),
        OutputColumn("QUEUE"),
        OutputColumn("AGE"),
        OutputColumn("MIN-RESOURCES", wide=True),
        OutputColumn("PRIORITY-CLASS", wide=True),
        OutputColumn("MESSAGE", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        metadata, is_core = raw["metadata"], raw["apiVersion"] == WORKLOAD_API
        phase = group_state(raw) if is_core else status.get("phase")
        needs = spec.get("minMember")
        if is_core:
            needs = ((spec.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount")
        queue = (metadata.get("annotations") or {}).get(QUEUE_NAME_ANNOTATION) if is_core else None
        return [
            metadata["name"],
            ("Terminating" if metadata.get("deletionTimestamp") else phase) or "Pending",
            str(needs or 1),
            "" if is_core else str(status.get("running") or 0),
            queue or spec.get("queue") or "",
            age(raw, now),
            pairs(spec.get("minResources")),
            spec.get("priorityClassName") or "",
            _message(status),
        ]

    async def describe(self, server: ObjectLister, raw: Raw) -> str:
        now = server.now()
        metadata, status = raw["metadata"], raw.get("status") or {}
        text = Description()
        text.field("API Version", raw["apiVersion"])
        text.field("Namespace", metadata.get("namespace"))
        for column, cell in zip(self.columns, self.cells(raw, now), strict=True):
            text.field(column.name.capitalize(), cell)
        for counted in () if raw["apiVersion"] == WORKLOAD_API else ("succeeded", "failed"):
            text.field(f"{counted.capitalize()} Pods", status.get(counted, 0))
        events(text, await server.events(raw), now)
        name, namespace = metadata["name"], metadata.get("namespace")
        text.note(f"holdfast explain podgroup {name} -n {namespace}: which members fit, and why not")
        return text.text()


_WHY = (("Unschedulable", "True"), (INITIALLY_SCHEDULED, "False"))


def _message(status: Raw) -> str:
    """The message of the condition that holds, other than that it is scheduled."""
    for each in status.get("conditions") or ():
        if (each.get("type"), each.get("status")) in _WHY:
            return str(each.get("message") or "")
    return ""

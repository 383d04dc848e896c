"""Output of PodGroups, of either API group."""

import time

from holdfast.api.kinds import KINDS
from holdfast.api.names import SIGS_PODGROUP_API, VOLCANO_API
from holdfast.cli.client import Raw, Server
from holdfast.cli.kinds.kind import OutputColumn, PlainKind
from holdfast.cli.printing import Description, age, events, pairs


class PodGroupKind(PlainKind):
    infos = (KINDS[VOLCANO_API, "PodGroup"], KINDS[SIGS_PODGROUP_API, "PodGroup"])
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
        phase = "Terminating" if raw["metadata"].get("deletionTimestamp") else status.get("phase")
        return [
            raw["metadata"]["name"],
            phase or "Pending",
            str(spec.get("minMember") or 1),
            str(status.get("running") or 0),
            spec.get("queue") or "",
            age(raw, now),
            pairs(spec.get("minResources")),
            spec.get("priorityClassName") or "",
            _message(status),
        ]

    async def describe(self, server: Server, raw: Raw) -> str:
        now = time.time()
        metadata, status = raw["metadata"], raw.get("status") or {}
        text = Description()
        text.field("API Version", raw["apiVersion"])
        text.field("Namespace", metadata.get("namespace"))
        for column, cell in zip(self.columns, self.cells(raw, now), strict=True):
            text.field(column.name.capitalize(), cell)
        for counted in ("succeeded", "failed"):
            text.field(f"{counted.capitalize()} Pods", status.get(counted, 0))
        events(text, await server.events(raw), now)
        name, namespace = metadata["name"], metadata.get("namespace")
        text.note(f"holdfast explain podgroup {name} -n {namespace}: which members fit, and why not")
        return text.text()


def _message(status: Raw) -> str:
    """The message of the condition that holds, other than that it is scheduled."""
    for each in status.get("conditions") or ():
        if each.get("type") == "Unschedulable" and each.get("status") == "True":
            return str(each.get("message") or "")
    return ""

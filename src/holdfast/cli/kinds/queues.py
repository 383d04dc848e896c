"""Output of Queues: their shares of the cluster, and how much of them is in use."""

from holdfast.api.kinds import KINDS
from holdfast.api.names import VOLCANO_API
from holdfast.cli.client import ObjectLister, Raw
from holdfast.cli.kinds.kind import OutputColumn, PlainKind
from holdfast.cli.printing import Description, age, events, pairs


class QueueKind(PlainKind):
    infos = (KINDS[VOLCANO_API, "Queue"],)
    status = "STATE"
    columns = (
        OutputColumn("NAME"),
        OutputColumn("WEIGHT"),
        OutputColumn("STATE"),
        OutputColumn("ALLOCATED"),
        OutputColumn("DESERVED"),
        OutputColumn("CAPABILITY"),
        OutputColumn("AGE"),
        OutputColumn("GUARANTEE", wide=True),
        OutputColumn("RECLAIMABLE", wide=True),
    )

    def cells(self, raw: Raw, now: float) -> list[str]:
        spec, status = raw.get("spec") or {}, raw.get("status") or {}
        return [
            raw["metadata"]["name"],
            str(spec.get("weight", 1)),
            status.get("state") or "Open",
            pairs(status.get("allocated")),
            pairs(spec.get("deserved")),
            pairs(spec.get("capability")),
            age(raw, now),
            pairs((spec.get("guarantee") or {}).get("resource")),
            "false" if spec.get("reclaimable") is False else "true",
        ]

    async def describe(self, server: ObjectLister, raw: Raw) -> str:
        now = server.now()
        text = Description()
        for column, cell in zip(self.columns, self.cells(raw, now), strict=True):
            text.field(column.name.capitalize(), cell)
        status = raw.get("status") or {}
        for counted in ("pending", "inqueue", "running", "completed"):
            text.field(f"{counted.capitalize()} Jobs", status.get(counted, 0))
        events(text, await server.events(raw), now)
        return text.text()

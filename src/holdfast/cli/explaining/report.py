"""What there is to say of one object, as data and as text."""

from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.api.events import last_said
from holdfast.cli.asking.printing import event_cells, table
from holdfast.cli.asking.server import Raw


@dataclass(slots=True)
class Reason:
    """Why some nodes will not do."""

    reason: str
    plugin: str
    nodes: list[str]
    resolvable: bool
    """Whether pods that leave could change it."""


@dataclass(slots=True)
class Ranked:
    """A node that will do."""

    node: str
    score: int
    reservation: str = ""
    """The one that would be used there."""


@dataclass(slots=True)
class Promised:
    """A reservation that is meant for the pod."""

    name: str
    phase: str
    node: str
    usable: bool
    why: str
    left: str = ""


@dataclass(slots=True)
class Report:
    object: str
    phase: str
    summary: str
    node: str = ""
    reservation: str = ""
    told: str = ""
    """What the object itself says, if that is something else."""
    would_say: str = ""
    """What it would be told now."""
    nodes: list[Reason] = field(default_factory=list)
    ranked: list[Ranked] = field(default_factory=list)
    reservations: list[Promised] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    """Of a reservation: pods that use it, or wait and could."""
    members: list[str] = field(default_factory=list)
    """Of a group: its pods."""
    help: list[str] = field(default_factory=list)
    events: list[Raw] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        found = asdict(self)
        found["events"] = [
            {
                "time": last_said(each),
                "type": each.get("type", ""),
                "reason": each.get("reason", ""),
                "message": each.get("message", ""),
            }
            for each in self.events
        ]
        return {_camel(key): value for key, value in found.items()}

    def text(self, now: float) -> str:
        lines = [f"{self.object}: {self.phase}", "", f"  {self.summary}"]
        if self.told:
            lines += ["", "Told", f"  {self.told}"]
        if self.would_say and self.would_say != self.told:
            lines += ["", "Would be told now", f"  {self.would_say}"]
        lines += _part(
            "Nodes that will not do", ("REASON", "COUNT", "PLUGIN", "NODES"), self._reasons()
        )
        ranked = [[each.node, str(each.score), each.reservation or "-"] for each in self.ranked]
        lines += _part("Nodes that will do, best first", ("NODE", "SCORE", "RESERVATION"), ranked)
        promised = [[p.name, p.phase, p.node or "-", p.left or "-", p.why] for p in self.reservations]
        headers = ("NAME", "PHASE", "NODE", "LEFT", "")
        lines += _part("Reservations meant for it", headers, promised)
        if self.owners:
            lines += ["", "Owners", *(f"  {owner}" for owner in self.owners)]
        if self.members:
            lines += ["", "Members", *(f"  {member}" for member in self.members)]
        if self.help:
            lines += ["", "What would help", *(f"  * {each}" for each in self.help)]
        told = [event_cells(each, now) for each in self.events]
        lines += _part("Events", ("TYPE", "REASON", "AGE", "FROM", "MESSAGE"), told)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _reasons(self) -> list[list[str]]:
        return [
            [each.reason, str(len(each.nodes)), each.plugin, few(each.nodes)] for each in self.nodes
        ]


def few(names: list[str], most: int = 8) -> str:
    """The first of them, and how many there are besides."""
    shown = ", ".join(names[:most])
    return f"{shown}, and {len(names) - most} more" if len(names) > most else shown


def _part(title: str, headers: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    return ["", title, *(f"  {line}" for line in table(headers, rows))]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

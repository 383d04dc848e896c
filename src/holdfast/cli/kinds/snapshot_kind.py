"""Types whose rows depend on the whole cluster, so that a scheduler counts: nodes, and what is
pending.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from holdfast.api.kinds import KindInfo
from holdfast.api.selectors import parse_label_selector
from holdfast.cli.client import ObjectLister, Raw
from holdfast.cli.kinds.kind import Found, OutputKind, Query, similar_name
from holdfast.cli.options import Failure
from holdfast.cli.snapshot import warned_snapshot
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


class SnapshotKind(OutputKind):
    reads: ClassVar[tuple[KindInfo, ...]]
    """The kinds that rows depend on."""
    unsteady: ClassVar[frozenset[str]] = frozenset({"AGE"})
    """Columns that change by themselves, so that a change of them is not shown."""

    @abstractmethod
    def rows(self, snapshot: ClusterSnapshot, query: Query) -> Found:
        """A row for each queried object of the snapshot."""

    def is_changed(self, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Whether a watch shows the row again; cells are given by column."""
        return any(
            before.get(name, "") != cell for name, cell in after.items() if name not in self.unsteady
        )

    def last_status(self, snapshot: ClusterSnapshot, raw: Raw) -> str:
        """What the status column says of an object that is no longer among the rows."""
        return "Deleted"

    async def find(self, server: ObjectLister, query: Query) -> Found:
        return self.rows(await warned_snapshot(server, only=self.reads), query)


def matching(query: Query) -> Callable[[Raw], bool]:
    """Whether an object has the labels and fields of a query. Raises Failure."""
    selector = parse_label_selector(query.selector)
    fields = [_requirement(part) for part in query.fields.split(",") if part.strip()]

    def matches(raw: Raw) -> bool:
        return selector.matches(raw["metadata"].get("labels") or {}) and all(
            (_field(raw, path) == value) is equal for path, value, equal in fields
        )

    return matches


def _requirement(text: str) -> tuple[str, str, bool]:
    for sign, equal in (("!=", False), ("==", True), ("=", True)):
        path, found, value = text.partition(sign)
        if found:
            return path.strip(), value.strip(), equal
    raise Failure(1, [f"--field-selector: expected FIELD=VALUE, got {text!r}"])


def _field(raw: Raw, path: str) -> str:
    value: Any = raw
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def not_found(info: KindInfo, name: str, others: Iterable[Raw], namespace: str = "") -> str:
    """The server's message for a name that it does not have, with the nearest one it has."""
    hint = similar_name(others, name, namespace)
    return f'Error from server (NotFound): {info.resource} "{name}" not found{hint}'

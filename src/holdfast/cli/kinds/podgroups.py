"""Output of PodGroups, of any API group."""

from collections import Counter
from collections.abc import Iterable

from holdfast.api.kinds import KINDS
from holdfast.api.names import (
    QUEUE_NAME_ANNOTATION,
    SIGS_PODGROUP_API,
    VOLCANO_API,
    WORKLOAD_API,
)
from holdfast.api.pod_groups import INITIALLY_SCHEDULED, group_state
from holdfast.cli.client import POD, ObjectLister, Raw
from holdfast.cli.kinds.kind import Found, OutputColumn, OutputRow, Query
from holdfast.cli.kinds.pods import group_name
from holdfast.cli.kinds.snapshot_kind import SnapshotKind, matching
from holdfast.cli.printing import Description, age, events, pairs
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_Name = tuple[str, str]
"""Namespace and name."""
_INFOS = tuple(KINDS[api, "PodGroup"] for api in (VOLCANO_API, SIGS_PODGROUP_API, WORKLOAD_API))


class PodGroupKind(SnapshotKind):
    """The status of a PodGroup of `scheduling.k8s.io` has no number of running members: its pods are
    counted."""

    infos = _INFOS
    reads = (*_INFOS, POD)
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

    async def find(self, server: ObjectLister, query: Query) -> Found:
        objects, missing = await self.objects(server, query)
        running: Counter[_Name] = Counter()
        if any(raw["apiVersion"] == WORKLOAD_API for raw in objects):
            pods, _ = await server.listed(POD, query.namespace, fields="status.phase=Running")
            running = _running(pods)
        return self._found(objects, running, server.now(), missing)

    def rows(self, snapshot: ClusterSnapshot, query: Query) -> Found:
        matches = matching(query)
        objects = [
            raw
            for info in self.infos
            for raw in snapshot.all(info)
            if query.namespace in ("", raw["metadata"].get("namespace"))
            and (not query.names or raw["metadata"]["name"] in query.names)
            and matches(raw)
        ]
        return self._found(sorted(objects, key=self.order), _running(snapshot.all(POD)), snapshot.now)

    def _found(
        self, objects: list[Raw], running: Counter[_Name], now: float, missing: tuple[str, ...] = ()
    ) -> Found:
        rows = [OutputRow(raw, self._cells(raw, running[_name(raw)], now)) for raw in objects]
        return Found(rows, self.columns, missing)

    def _cells(self, raw: Raw, running: int, now: float) -> list[str]:
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
            str(running if is_core else status.get("running") or 0),
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
        query = Query((metadata["name"],), metadata.get("namespace") or "")
        rows = (await self.find(server, query)).rows
        (cells,) = [row.cells for row in rows if row.object["apiVersion"] == raw["apiVersion"]]
        for column, cell in zip(self.columns, cells, strict=True):
            text.field(column.name.capitalize(), cell)
        for counted in () if raw["apiVersion"] == WORKLOAD_API else ("succeeded", "failed"):
            text.field(f"{counted.capitalize()} Pods", status.get(counted, 0))
        events(text, await server.events(raw), now)
        name, namespace = metadata["name"], metadata.get("namespace")
        text.note(f"holdfast explain podgroup {name} -n {namespace}: which members fit, and why not")
        return text.text()


def _name(raw: Raw) -> _Name:
    return raw["metadata"].get("namespace") or "", raw["metadata"]["name"]


def _running(pods: Iterable[Raw]) -> Counter[_Name]:
    """The number of running members of each PodGroup of `scheduling.k8s.io`."""
    found: Counter[_Name] = Counter()
    for raw in pods:
        name = group_name(raw)
        if name and (raw.get("status") or {}).get("phase") == "Running":
            found[raw["metadata"].get("namespace") or "", name] += 1
    return found


_WHY = (("Unschedulable", "True"), (INITIALLY_SCHEDULED, "False"))


def _message(status: Raw) -> str:
    """The message of the condition that holds, other than that it is scheduled."""
    for each in status.get("conditions") or ():
        if (each.get("type"), each.get("status")) in _WHY:
            return str(each.get("message") or "")
    return ""

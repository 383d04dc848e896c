"""Placements: the topology domains in which a job with a topology constraint may be placed.

A PodGroup of `scheduling.k8s.io` may name a node label that must have the same value for all members.
Each value that nodes have is a placement; while members are on nodes, only theirs is. A whole job is
tried in one placement after the other, with `NodeSearch.within`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.node_labels import LabelColumn
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS
from holdfast.scheduler.framework.feasibility.node_search import ColumnStore
from holdfast.scheduler.framework.profile import Profile
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.state.cluster import Cluster

Bools = NDArray[np.bool_]


class TopologyPlacement(NamedTuple):
    """One value of the label, and the nodes that have it."""

    domain: str
    code: int
    rows: Bools


class PlacementGenerator:
    """Finds the placements of jobs, and the order in which to try them."""

    def __init__(self, cluster: Cluster, profiles: Mapping[str, Profile], columns: ColumnStore) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._profiles = profiles
        self._columns = columns
        self._labels: dict[str, LabelColumn] = {}
        """The columns of the keys that jobs name; kept, since each use needs all rows."""

    def of(self, job: Job) -> list[TopologyPlacement] | None:
        """The placements of the job, by name; None if it has no topology constraint. None of them is
        possible if `domain_error`."""
        key = job.topology_key
        if not key:
            return None
        own = {int(self._column(key).codes[pod.row]) for pod in job.placed()}
        return [each for each in self.domains(key) if own <= {each.code}]

    def domains(self, key: str) -> list[TopologyPlacement]:
        """All values that nodes have for a label, by name."""
        column, nodes = self._column(key), self._nodes
        codes = np.where(nodes.alive[: nodes.size], column.codes[: nodes.size], -1)
        found = sorted((column.values[code], int(code)) for code in np.unique(codes) if code >= 0)
        return [TopologyPlacement(name, code, codes == code) for name, code in found]

    def domain_error(self, job: Job) -> str:
        """Why no placement is possible because of members that are on nodes; empty if some is."""
        key = job.topology_key
        placed = job.placed() if key else []
        if not placed:
            return ""
        column, seen = self._column(key), ""
        for pod in placed:
            code = int(column.codes[pod.row])
            if code < 0:
                return f"no topology domain found for pod {pod.namespace}/{pod.name}"
            domain = column.values[code]
            if seen and domain != seen:
                return f"more than 1 domain found for pod group: {seen}, {domain}"
            seen = domain
        return ""

    def _column(self, key: str) -> LabelColumn:
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = self._nodes.labels.column(key)
        return column

    # The order in which to try them

    def ordered(
        self, job: Job, members: list[PodRecord], placements: list[TopologyPlacement]
    ) -> list[tuple[int, TopologyPlacement]]:
        """The placements in which enough members may fit, with the most that do. Those with more
        members come first, then those with the least capacity left (kube-scheduler: PodGroupPodsCount,
        and NodeResourcesFit with MostAllocated)."""
        if not placements:
            return []
        most = self._most_members(job, members)
        needed = max(1, job.still_needs - job.ready_members)
        found = [(min(len(members), int(most[each.code])), each) for each in placements]
        scores = {each.code: self._allocated(each, members) for _, each in found}
        found = [(count, each) for count, each in found if count >= needed]
        return sorted(found, key=lambda pair: (-pair[0], -scores[pair[1].code], pair[1].domain))

    def _most_members(self, job: Job, members: list[PodRecord]) -> NDArray[np.int64]:
        """By code of a domain, an upper bound of how many of the members fit there."""
        labels, nodes = self._column(job.topology_key), self._nodes
        total = np.zeros(max(1, len(labels.values)), dtype=np.int64)
        classes: dict[tuple[str, int], list[PodRecord]] = {}
        for pod in members:
            classes.setdefault((pod.scheduler, pod.cls.id), []).append(pod)
        for pods in classes.values():
            pod = pods[0]
            column = self._columns.column(self._profiles[pod.scheduler], pod.cls)
            if (
                column.owned
                or not column.is_local
                or pod.cls.volumes
                or any(p.nominated or p.pinned_node is not None for p in pods)
            ):
                total += len(pods)
                continue
            at = np.flatnonzero(column.fits & (labels.codes[: nodes.size] >= 0))
            each = nodes.allocatable[PODS, at] - nodes.claimed[PODS, at]
            for slot, asked in pod.cls.requests:
                free = nodes.allocatable[slot, at] - nodes.claimed[slot, at]
                each = np.minimum(each, free // asked)
            each = np.clip(each, 0, len(pods))
            counts = np.bincount(labels.codes[at], weights=each, minlength=len(total))
            total += np.minimum(counts.astype(np.int64), len(pods))
        return total

    def _allocated(self, placement: TopologyPlacement, members: list[PodRecord]) -> int:
        """The percentage of the domain's cpu and memory that is claimed once all members are there."""
        nodes, rows = self._nodes, placement.rows
        score = 0
        for i, (slot, claimed) in enumerate(((CPU, NONZERO_CPU), (MEMORY, NONZERO_MEMORY))):
            capacity = int(nodes.allocatable[slot, : nodes.size][rows].sum())
            used = int(nodes.claimed[claimed, : nodes.size][rows].sum())
            used += sum(pod.cls.nonzero[i] for pod in members)
            score += 100 * min(used, capacity) // capacity if capacity else 0
        return score // 2

"""Higher ratios of limits to allocatable for a node, which then takes pods with more limits."""

import json
from collections.abc import Iterable, Iterator

from holdfast.api.annotations import limit_to_allocatable
from holdfast.api.errors import InvalidObject
from holdfast.api.names import LIMIT_TO_ALLOCATABLE
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.other_pods import waiting_replicas
from holdfast.explanation.facts.rehearsed_rounds import started_before
from holdfast.explanation.repairs.details import limits_on
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair
from holdfast.scheduler.cluster.limit_sums import UNLIMITED
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import applied, patch
from holdfast.snapshot.cluster_snapshot import NODE, ClusterSnapshot

_MOST_RAISES = 5


def consider_limit_ratios(advisor: Advisor, pod: PodRecord, rows: Iterable[int]) -> None:
    """The lowest ratios with which a node takes all waiting pods of the workload or gang, on the first
    node where these help; or as many of them as it has capacity for."""
    for row in rows:
        for count in _counts_to_try(advisor, pod, row):
            for higher in _ratios_to_try(advisor, pod, row, count):
                if advisor.propose_once(("RaiseLimitRatio",), higher):
                    return


def _counts_to_try(advisor: Advisor, pod: PodRecord, row: int) -> Iterator[int]:
    """For how many pods the ratio is raised."""
    job = advisor.snapshot.cluster.jobs.of(pod)
    if job is not None and not job.is_ready:
        yield from range(1, min(len(job.waiting()), _MOST_RAISES) + 1)
        return
    count = waiting_replicas(advisor.snapshot, advisor.subject) if advisor.has_siblings else 1
    higher = _higher(advisor.snapshot, pod, row, count) if count > 1 else None
    if higher is not None:
        yield max(1, advisor.replicas_started(higher))
    else:
        yield 1


def _ratios_to_try(advisor: Advisor, pod: PodRecord, row: int, count: int) -> Iterator[Repair]:
    """For so many such pods alone; then with those that are tried before it and start there with a
    higher ratio."""
    snapshot = advisor.snapshot
    higher = _higher(snapshot, pod, row, count)
    for _ in range(_MOST_RAISES):
        if higher is None:
            return
        yield higher
        with applied(snapshot, higher.change.objects), started_before(snapshot, advisor.goal):
            higher = _higher(snapshot, pod, row, count)


def _higher(snapshot: ClusterSnapshot, pod: PodRecord, row: int, count: int) -> Repair | None:
    """The node with the lowest ratios that allow the limits of so many such pods; None if they are
    allowed."""
    name, over = snapshot.cluster.nodes.name(row), limits_on(snapshot, pod, row, count)
    raw, allocatable = snapshot.find(NODE, name), snapshot.cluster.nodes.info[row].allocatable
    if raw is None or not over or not all(allocatable.get(resource) for resource in over):
        return None
    ratios = _ratios(snapshot, row)
    for resource, (own, there, _) in over.items():
        ratios[resource] = -(-100 * (there + count * own) // allocatable[resource])
    value = json.dumps({resource: f"{percent}%" for resource, percent in sorted(ratios.items())})
    is_given = LIMIT_TO_ALLOCATABLE in snapshot.cluster.nodes.info[row].annotations
    more = " --overwrite" if is_given else ""
    percents = ", ".join(f"{ratios[resource]}% of {resource}" for resource in over)
    text = (
        f"allow limits of {percents} on {name} (kubectl annotate node {name} "
        f"{LIMIT_TO_ALLOCATABLE}='{value}'{more})"
    )
    body = {"metadata": {"annotations": {LIMIT_TO_ALLOCATABLE: value}}}
    return repair(text, "RaiseLimitRatio", [patch(NODE, raw, body)], RESIZE)


def _ratios(snapshot: ClusterSnapshot, row: int) -> dict[str, int]:
    """The ratios that apply to the node: those of its annotation, or else the configured ones."""
    cluster, info = snapshot.cluster, snapshot.cluster.nodes.info[row]
    if (given := info.annotations.get(LIMIT_TO_ALLOCATABLE)) is not None:
        try:
            return limit_to_allocatable(given)
        except InvalidObject:
            return {}
    found = {}
    for resource in cluster.classes.counted:
        most = min((most(resource, row) for most in cluster.limits.ceilings), default=UNLIMITED)
        if most < UNLIMITED and info.allocatable.get(resource):
            found[resource] = -(-100 * most // info.allocatable[resource])
    return found

"""Higher ratios of limits to allocatable for a node, which then takes pods with more limits."""

import json
from collections.abc import Iterable, Iterator

from holdfast.api.annotations import limit_to_allocatable
from holdfast.api.errors import InvalidObject
from holdfast.api.names import LIMIT_TO_ALLOCATABLE
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.rehearsed_rounds import started_before
from holdfast.explanation.repairs.details import limits_on
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair
from holdfast.scheduler.cluster.limit_sums import UNLIMITED
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import applied, patch
from holdfast.snapshot.cluster_snapshot import NODE, ClusterSnapshot

_MOST_RAISES = 5


def consider_limit_ratios(advisor: Advisor, pod: PodRecord, rows: Iterable[int]) -> None:
    """The lowest ratios with which a node takes the pod, on the first node where these help."""
    for row in rows:
        for higher in _ratios_to_try(advisor, pod, row):
            if advisor.propose_once(("RaiseLimitRatio",), higher):
                return


def _ratios_to_try(advisor: Advisor, pod: PodRecord, row: int) -> Iterator[Repair]:
    """For the pod alone; then with those that are tried before it and start there with a higher
    ratio."""
    snapshot = advisor.snapshot
    higher = _higher(snapshot, pod, row)
    for _ in range(_MOST_RAISES):
        if higher is None:
            return
        yield higher
        with applied(snapshot, higher.change.objects), started_before(snapshot, advisor.goal):
            higher = _higher(snapshot, pod, row)


def _higher(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Repair | None:
    name, over = snapshot.cluster.nodes.name(row), limits_on(snapshot, pod, row)
    raw, allocatable = snapshot.find(NODE, name), snapshot.cluster.nodes.info[row].allocatable
    if raw is None or not over or not all(allocatable.get(resource) for resource in over):
        return None
    ratios = _ratios(snapshot, row)
    for resource, (own, there, _) in over.items():
        ratios[resource] = -(-100 * (there + own) // allocatable[resource])
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

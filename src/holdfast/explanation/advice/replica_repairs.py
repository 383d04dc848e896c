"""Changes that together let more pods of a workload start than any of them by itself: tolerations of
several taints, labels for several nodes, a node that is uncordoned beside one that is tolerated.

A change is made with which some pods start, as many pods of the workload as fit are placed, and what
keeps the next one off the nodes is changed too, and so on. If this is not enough, smaller requests are
tried after it.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.largest_requests import consider_largest
from holdfast.explanation.facts.capacity import requested, row_of, shortages
from holdfast.explanation.facts.other_pods import waiting_replicas
from holdfast.explanation.facts.rehearsed_rounds import placed
from holdfast.explanation.repairs.node_repairs import node_repairs
from holdfast.explanation.repairs.repair import Repair
from holdfast.explanation.verdicts import Subject, place
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.diagnosis import NodeRejection
from holdfast.snapshot.cluster_changes import ObjectChange, applied, create
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_CHANGES = 4
"""How many changes are combined."""
_REASONS = 4
_NODES_PER_REASON = 2
_MOST_REPLICAS = 500


def consider_rest(advisor: Advisor, pod: PodRecord) -> None:
    """Where changes let some pods of the workload start, proposes others beside them for the rest."""
    if pod.pinned_node is not None or pod.reservation is not None or pod.job is not None:
        return
    while not advisor.helps_all:
        count, made = advisor.most_start
        if not made:
            return
        for option in _for_rest(advisor, made) if len(made) < _CHANGES else ():
            if advisor.propose(*made, option):
                return
        if advisor.most_start[0] <= count:
            return


def consider_smaller_rest(advisor: Advisor, pod: PodRecord) -> None:
    """Where changes let some pods of the workload start, proposes the largest requests with which all
    do after these, of one resource if that is enough."""
    _, made = advisor.most_start
    is_possible = made and not advisor.helps_all and advisor.replicas
    if not is_possible or any(each.resized or each.limits for each in made):
        return
    slots = advisor.snapshot.cluster.nodes.slots
    asked = {slots.name(slot): n for slot, n in requested(pod).items() if slot != PODS and n > 1}
    with advisor.about(advisor.subject, *made):
        for names in (*([name] for name in asked), list(asked)):
            if names and consider_largest(
                advisor, advisor.subject, {name: asked[name] for name in names}
            ):
                return


def _for_rest(advisor: Advisor, made: tuple[Repair, ...]) -> list[Repair]:
    """Changes of configuration for the pods that have no node after those."""
    snapshot, subject = advisor.snapshot, advisor.subject
    count = min(waiting_replicas(snapshot, subject), _MOST_REPLICAS)
    before = [change for each in (*advisor.before, *made) for change in each.change.objects]
    with applied(snapshot, before):
        found = [
            each
            for row, rejection in _rejections_of_rest(snapshot, subject, count)
            if (pod := subject.record(snapshot)) is not None
            for each in node_repairs(snapshot, subject, pod, row, rejection)
        ]
    # As many nodes as are needed, and can be named, are uncordoned together.
    is_uncordoned = any(_uncordons(each) for each in made)
    return [each for each in found if not (is_uncordoned and _uncordons(each))]


def _uncordons(repair: Repair) -> bool:
    return repair.change.actions == ("Uncordon",)


def _rejections_of_rest(
    snapshot: ClusterSnapshot, subject: Subject, count: int
) -> list[tuple[int, NodeRejection]]:
    """Nodes that reject one of so many pods like it once those that fit have a node: of each reason
    those that lack the least."""
    replicas = [_replica(snapshot, subject, number) for number in range(count)]
    with applied(snapshot, replicas):
        records = [
            record for each in replicas if (record := snapshot.cluster.pod(each.namespace, each.name))
        ]
        with placed(snapshot, records) as fitting:
            left = [each for each in records if all(each is not other for other in fitting)]
            if not left or not fitting:
                return []
            short = shortages(snapshot, left[0])
            groups: dict[NodeRejection, list[int]] = {}
            for name, rejection in place(snapshot.scheduler, left[0]).rejections.items():
                groups.setdefault(rejection, []).append(row_of(snapshot, name))
    most_frequent = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))[:_REASONS]
    return [
        (row, rejection) for rejection, rows in most_frequent for row in _nearest(snapshot, rows, short)
    ]


def _nearest(snapshot: ClusterSnapshot, rows: Iterable[int], short: NDArray[np.float64]) -> list[int]:
    name = snapshot.cluster.nodes.name
    return sorted(rows, key=lambda row: (float(short[row]), name(row)))[:_NODES_PER_REASON]


def _replica(snapshot: ClusterSnapshot, subject: Subject, number: int) -> ObjectChange:
    raw = subject.raw(snapshot)
    metadata = raw["metadata"]
    name = f"{metadata['name']}-replica-{number}"
    return create(
        POD,
        {**raw, "metadata": {**metadata, "name": name, "uid": name}, "status": {"phase": "Pending"}},
    )

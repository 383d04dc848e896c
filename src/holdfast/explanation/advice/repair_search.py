"""The search for changes that make a node eligible.

Single changes come first: configuration by the plugin that rejects a node, waiting, smaller requests,
other ports, deleting reservations. On thousands of nodes only a few candidates are tried: of the nodes
that share a reason, those that lack the least capacity.

If no single change helps, combinations are searched for on those nodes. The scheduler names one
obstacle at a time: the rejection of the first plugin. Every change that may remove it is made, the
scheduler is asked again, and the cheapest sequence is continued first, until the node is eligible. A
change with which the node is rejected as before is not continued. Ending pods is considered only if
nothing cheaper helps.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.explanation.advice.advisor import Advisor, actions_of
from holdfast.explanation.advice.claim_selectors import fewer_constraints, other_selectors
from holdfast.explanation.advice.claim_sizes import CLAIMS_PLUGIN, fewer_device_steps
from holdfast.explanation.advice.deletions import (
    consider_deletions,
    consider_own_deletions,
    deletion_steps,
    freed_by_deletion,
)
from holdfast.explanation.advice.device_repairs import (
    deleted_taint_rules,
    device_steps,
    device_tolerations,
    smaller_shares,
)
from holdfast.explanation.advice.evictions import (
    budget_facts,
    consider_evictions,
    consider_evictions_for_own,
    eviction_steps,
    freed_by_eviction,
    freed_by_preemption,
)
from holdfast.explanation.advice.largest_requests import (
    consider_lower_limits,
    consider_smaller_replicas,
)
from holdfast.explanation.advice.limit_ratios import consider_limit_ratios
from holdfast.explanation.advice.missing_claims import awaited_slices
from holdfast.explanation.advice.misspellings import corrections
from holdfast.explanation.advice.nominated_pods import nominated_evictions, priority_repairs
from holdfast.explanation.advice.planned_reservations import estimate_steps
from holdfast.explanation.advice.preemption_policies import consider_preempting
from holdfast.explanation.advice.removals import (
    claimed_node_repairs,
    claimed_nodes,
    consider_other_places,
    consider_unmet_requirements,
)
from holdfast.explanation.advice.replica_repairs import consider_rest, consider_smaller_rest
from holdfast.explanation.advice.reservation_repairs import reservation_repairs
from holdfast.explanation.advice.smaller_requests import (
    merged_sizes,
    more_cpus,
    resize,
    smaller_beside,
    smaller_steps,
)
from holdfast.explanation.advice.waits import consider_wait, freed_by_waiting, wait_steps
from holdfast.explanation.facts.capacity import missing_on, row_of, shortages
from holdfast.explanation.facts.claim_details import device_reasons
from holdfast.explanation.facts.node_labels import unmet_labels
from holdfast.explanation.facts.rehearsed_rounds import started_before
from holdfast.explanation.repairs.claim_volumes import volume_repairs
from holdfast.explanation.repairs.details import limits_on
from holdfast.explanation.repairs.host_ports import other_ports
from holdfast.explanation.repairs.label_repairs import corrected_labels
from holdfast.explanation.repairs.mistaken_units import UNIT
from holdfast.explanation.repairs.node_repairs import node_repairs, uncordoned, wider_numa_policies
from holdfast.explanation.repairs.pod_sizes import SMALLEST_SHARE
from holdfast.explanation.repairs.repair import Repair
from holdfast.explanation.repairs.taints import tolerable_first, toleration_repairs
from holdfast.explanation.verdicts import (
    NodeVerdicts,
    at_time,
    fits_on,
    place,
    rejection_on,
)
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.config.plugin_sets import NODE_AFFINITY, NODE_RESOURCES_FIT
from holdfast.scheduler.framework.diagnosis import FITS, NodeRejection
from holdfast.snapshot.cluster_changes import ClusterChange, ObjectChange, applied
from holdfast.snapshot.cluster_snapshot import NODE

_CAPACITY = (NODE_RESOURCES_FIT, "LimitAware", "DeviceShare", "NodeNUMAResource", CLAIMS_PLUGIN)
"""Plugins whose rejections smaller requests, or pods that end, may change."""
_REASONS = 8
_NODES_PER_REASON = 2
_NODES = 3
_TAINTS = "TaintToleration"
_LIMITS = "LimitAware"
_LIMITED = 200
"""On how many nodes of one reason limits are compared."""
_CORDONS = "NodeUnschedulable"
_CORDONED = 8
"""How many nodes are tried to be uncordoned together."""
_TAINT_SETS = 5
"""How many sets of taints are tried to be tolerated."""
_EXPLAINED = 60
"""On how many nodes it is looked up why devices are not used."""
_EXCLUDING = ("NotIn", "DoesNotExist")
_STEPS = 4
"""How many changes are combined for one node."""
_LOOKS = 60
"""How often the scheduler is asked about one node."""
_STARTS = 8
"""How many changes are tried for a pod that is rejected whatever the node."""

Groups = list[tuple[NodeRejection, list[int]]]
"""The rows of each rejection, those that lack the least first; the most frequent one first."""


def consider_nodes(advisor: Advisor, placing: NodeVerdicts) -> list[str]:
    """Looks for changes that make a node eligible. Returns facts about disruption budgets: those that
    advice violates, or that keep pods from being advised to end, if nothing helps."""
    snapshot = advisor.snapshot
    pod = advisor.subject.record(snapshot)
    if pod is None:
        return []
    # The column may have been brought up to date while a change was tried.
    column = snapshot.scheduler.columns.column(placing.profile, pod.cls)
    if column.rejected is not None:
        if advisor.leaves_it_pending:
            consider_smaller_rest(advisor, pod)
            _consider_after_start(advisor)
        return []
    short = shortages(snapshot, pod)
    groups = _by_reason(advisor, placing, short)
    nearest = _consider_single(advisor, pod, groups, short)
    consider_rest(advisor, pod)
    if not advisor.is_harmless:
        consider_other_places(snapshot, advisor.subject, pod, advisor)
    if not advisor.helps_all:
        consider_unmet_requirements(snapshot, advisor.subject, pod, advisor)
    consider_smaller_rest(advisor, pod)
    if not advisor.is_harmless:
        _consider_combinations(advisor, groups, with_evictions=False)
    if not advisor.is_harmless:
        consider_limit_ratios(advisor, pod, nearest)
    if not advisor.advice:
        consider_evictions_for_own(advisor, pod)
    if not advisor.advice:
        consider_evictions(advisor, pod, nearest)
    if not advisor.advice:
        _consider_combinations(advisor, groups, with_evictions=True)
    violations = consider_preempting(advisor, pod) if not advisor.is_harmless else []
    return [*violations, *(budget_facts(advisor, pod, nearest) if not advisor.advice else [])]


def _by_reason(advisor: Advisor, placing: NodeVerdicts, short: NDArray[np.float64]) -> Groups:
    snapshot = advisor.snapshot
    names = snapshot.cluster.nodes.name
    subject = advisor.subject.record(snapshot)
    claimed = claimed_nodes(snapshot, subject) if subject is not None else {}
    groups: dict[NodeRejection, list[int]] = {}
    for name, rejection in placing.rejections.items():
        if rejection.texts:
            groups.setdefault(rejection, []).append(row_of(snapshot, name))
    for rejection, rows in groups.items():
        unmet = _unmet_labels(advisor, rows) if rejection.plugin == NODE_AFFINITY else {}
        seen = _devices_seen(advisor, rows) if rejection.plugin == CLAIMS_PLUGIN else {}
        of_others = {row for row, (is_of_others, _) in unmet.items() if is_of_others}
        lacking = {row: count for row, (_, count) in unmet.items()}
        order = [
            (
                seen.get(row, 0),
                row not in claimed,
                row in of_others,
                float(short[row]),
                lacking.get(row, 0),
                names(row),
                row,
            )
            for row in rows
        ]
        rows[:] = [row for *_, row in sorted(order)]
        if rejection.plugin == _TAINTS and (pod := advisor.subject.record(snapshot)) is not None:
            rows[:] = tolerable_first(snapshot, pod, rows)
    return sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))


def _unmet_labels(advisor: Advisor, rows: list[int]) -> dict[int, tuple[bool, int]]:
    """Whether each row has another value of a label that the pod requires, and how many of these labels
    it lacks."""
    snapshot, info = advisor.snapshot, advisor.snapshot.cluster.nodes.info
    pod = advisor.subject.record(snapshot)
    found: dict[int, tuple[bool, int]] = {}
    if pod is None:
        return found
    for row in rows:
        selector, unmet = unmet_labels(snapshot, pod, row)
        keys = [*selector, *(each.key for each in unmet if each.operator not in _EXCLUDING)]
        found[row] = any(key in info[row].labels for key in keys), len(selector) + len(unmet)
    return found


def _devices_seen(advisor: Advisor, rows: list[int]) -> dict[int, int]:
    """How many rows before each have devices that are not used for the same reasons; the number of all
    rows where there are none. So that different reasons are tried first."""
    snapshot = advisor.snapshot
    pod = advisor.subject.record(snapshot)
    counts, found = Counter[tuple[tuple[str, int], ...]](), dict[int, int]()
    for row in rows[:_EXPLAINED] if pod is not None else ():
        assert pod is not None
        reasons = device_reasons(snapshot, pod, row)
        found[row] = counts[reasons] if reasons else len(rows)
        counts[reasons] += 1
    return dict.fromkeys(rows, len(rows)) | found


# Single changes


def _consider_single(
    advisor: Advisor, pod: PodRecord, groups: Groups, short: NDArray[np.float64]
) -> list[int]:
    """Proposes changes that help by themselves; returns the rows that lack the least capacity."""
    snapshot = advisor.snapshot
    lacking: list[int] = []
    limited = _limited_rows(advisor, pod, groups)
    for rejection, rows in groups[:_REASONS]:
        if rejection.plugin == _TAINTS:
            _consider_tolerations(advisor, pod, rows)
            continue
        if rejection.plugin == CLAIMS_PLUGIN:
            rules = (each for row in rows[:_NODES] for each in deleted_taint_rules(snapshot, pod, row))
            any(advisor.propose_once(actions_of(each), each) for each in rules)
        repairs = [list(_settings(advisor, pod, row, rejection)) for row in rows[:_NODES_PER_REASON]]
        if any(advisor.propose(each) for options in repairs for each in options):
            continue
        if rejection.plugin == _CORDONS:
            _consider_uncordoning(advisor, rows)
        if rejection.plugin in _CAPACITY or (rejection.resolvable and not repairs[0]):
            lacking += rows
    order = {row: at for at, row in enumerate(limited, 1)}
    lacking.sort(
        key=lambda row: (float(short[row]), order.get(row, 0), snapshot.cluster.nodes.name(row))
    )
    consider_wait(advisor, pod, lacking)
    for row in lacking[:_NODES]:
        for options in (
            smaller_steps(snapshot, advisor.subject, pod, row),
            wider_numa_policies(snapshot, advisor.subject, pod, row),
            other_ports(snapshot, advisor.subject, pod, row),
            priority_repairs(snapshot, advisor.subject, pod, row),
        ):
            any(advisor.propose_once(actions_of(each), each) for each in options)
        freed = freed_by_preemption(snapshot, pod, row)
        for each in smaller_beside(snapshot, advisor.subject, pod, row, freed) if freed else ():
            advisor.propose_once(actions_of(each), each)
        any(
            advisor.propose_once(("MoreCpus",), each)
            for each in more_cpus(snapshot, advisor.subject, pod, row)
        )
    consider_lower_limits(advisor, pod, limited)
    consider_smaller_replicas(advisor, pod, lacking)
    consider_limit_ratios(advisor, pod, _usable_limits(advisor, pod, limited)[:_NODES])
    for row in lacking[:_NODES]:
        consider_deletions(advisor, pod, row)
    consider_own_deletions(advisor, pod)
    return lacking[:_NODES]


def _limited_rows(advisor: Advisor, pod: PodRecord, groups: Groups) -> list[int]:
    """The rows that are rejected because of limits, those that allow the pod the highest limits
    first."""
    found = [
        (sum(1 - (allowed - there) / own for own, there, allowed in over.values()), row)
        for rejection, rows in groups
        if rejection.plugin == _LIMITS
        for row in rows[:_LIMITED]
        if (over := limits_on(advisor.snapshot, pod, row))
    ]
    return [row for _, row in sorted(found)]


def _usable_limits(advisor: Advisor, pod: PodRecord, rows: list[int]) -> list[int]:
    """The rows with as much as the limits of the pod: what exceeds a node is of no use there."""
    info, snapshot = advisor.snapshot.cluster.nodes.info, advisor.snapshot
    return [
        row
        for row in rows
        for over in [limits_on(snapshot, pod, row)]
        if all(own <= info[row].allocatable.get(name, 0) for name, (own, _, _) in over.items())
    ]


def _consider_uncordoning(advisor: Advisor, rows: list[int]) -> None:
    """Uncordoning several nodes, as few as are enough for all pods of a workload or gang."""
    names = [advisor.snapshot.cluster.nodes.name(row) for row in rows[:_CORDONED]]
    nodes = [raw for name in names if (raw := advisor.snapshot.find(NODE, name)) is not None]
    if len(nodes) < 2:
        return
    counts = range(2, len(nodes))
    enough = next((n for n in counts if advisor.is_enough(uncordoned(*nodes[:n]))), len(nodes))
    advisor.propose(uncordoned(*nodes[:enough]))


def _consider_tolerations(advisor: Advisor, pod: PodRecord, rows: list[int]) -> None:
    """Proposes a few tolerations: which one is right is for the user to say."""
    helpful = 0
    for row in rows[:_TAINT_SETS]:
        options = toleration_repairs(advisor.snapshot, advisor.subject, pod, row)
        helpful += any(map(advisor.propose, options))
        if helpful == _NODES_PER_REASON:
            return


def _settings(advisor: Advisor, pod: PodRecord, row: int, rejection: NodeRejection) -> Iterator[Repair]:
    """Changes of configuration because of which the plugin may accept the node."""
    snapshot, subject = advisor.snapshot, advisor.subject
    yield from node_repairs(snapshot, subject, pod, row, rejection)
    if rejection.plugin == NODE_AFFINITY:
        yield from claimed_node_repairs(snapshot, subject, pod, row)
    if rejection.plugin == CLAIMS_PLUGIN:
        yield from awaited_slices(snapshot, row)
        yield from device_tolerations(snapshot, subject, pod, row)
        if ("ReplaceClaim",) not in advisor.actions:  # the name of an attribute may be misspelt
            yield from other_selectors(snapshot, subject, pod, row)
        yield from fewer_constraints(snapshot, subject, pod)
        yield from smaller_shares(snapshot, subject, pod, row)


# Combinations


def _consider_combinations(advisor: Advisor, groups: Groups, with_evictions: bool) -> None:
    if _consider_with_corrections(advisor, with_evictions):
        return
    for _, rows in groups[:_REASONS]:
        for row in rows[:_NODES_PER_REASON]:
            if _Search(advisor, row, with_evictions).propose_cheapest():
                break


def _consider_with_corrections(advisor: Advisor, with_evictions: bool) -> bool:
    """Corrections of labels that the pod misspells, with other changes, for nodes that have the labels
    which it means: as it is spelt, other nodes may seem closer. Returns whether some help."""
    snapshot, pod = advisor.snapshot, advisor.subject.record(advisor.snapshot)
    found = list(corrected_labels(snapshot, advisor.subject, pod)) if pod is not None else []
    for correction in found:
        with _made(advisor, (correction,)):
            corrected = advisor.subject.record(snapshot)
            if corrected is None or corrected.pinned_node is not None:
                continue
            short = shortages(snapshot, corrected)
            rows = [
                row
                for _, those in _by_reason(advisor, place(snapshot.scheduler, corrected), short)
                for row in those
                if not any(unmet_labels(snapshot, corrected, row))
            ]
        rows.sort(key=lambda row: float(short[row]))
        for row in rows[:_NODES_PER_REASON]:
            if _Search(advisor, row, with_evictions, (correction,)).propose_cheapest():
                return True
    return False


def _consider_after_start(advisor: Advisor) -> None:
    """A pod that is rejected whatever the node: changes that remove this, and then others for the nodes
    that are closest to being eligible."""
    snapshot = advisor.snapshot
    for start in advisor.insufficient[:_STARTS]:
        with _made(advisor, (start,)):
            pod = advisor.subject.record(snapshot)
            if pod is None:
                continue
            placing = place(snapshot.scheduler, pod)
            if placing.column.rejected is not None:
                continue
            smaller = [] if placing.message else list(_beside_takers(advisor))
            groups = _by_reason(advisor, placing, shortages(snapshot, pod))
        if any(advisor.propose(start, each) for each in smaller):
            return
        for with_evictions in (False, True):
            is_open = not advisor.advice if with_evictions else advisor.leaves_it_pending
            for _, rows in groups[:_REASONS] if is_open else ():
                if _Search(advisor, rows[0], with_evictions, (start,)).propose_cheapest():
                    return


def _beside_takers(advisor: Advisor) -> Iterator[Repair]:
    """Smaller requests that fit beside the pods that are tried before, with the changes that are made
    at the moment."""
    snapshot = advisor.snapshot
    with started_before(snapshot, advisor.goal):
        pod = advisor.subject.record(snapshot)
        assert pod is not None
        short = shortages(snapshot, pod)
        rows = [row for _, row in snapshot.cluster.nodes.names() if snapshot.cluster.nodes.alive[row]]
        for row in sorted(rows, key=lambda row: float(short[row]))[:_NODES]:
            yield from smaller_steps(snapshot, advisor.subject, pod, row)


@contextmanager
def _made(advisor: Advisor, repairs: tuple[Repair, ...]) -> Iterator[None]:
    """Makes the changes, and at their time, until the end of the block."""
    change = sum((each.change for each in (*advisor.before, *repairs)), ClusterChange())
    with applied(advisor.snapshot, change.objects), at_time(advisor.snapshot, change.until):
        yield


class _Obstacle(NamedTuple):
    """What keeps the pod off a node at the moment."""

    rejection: NodeRejection
    missing: tuple[tuple[int, int], ...]
    """By slot, how much is short."""
    limits: tuple[tuple[str, tuple[int, int, int]], ...] = ()
    """By resource, limits that are too high: its own, the sum on the node, and the maximum."""
    devices: tuple[tuple[str, int], ...] = ()
    """By reason, how many devices the claims do not get."""


_NO_WAY = _Obstacle(FITS, ())
"""Stands for what no further change removes."""


class _Search:
    """The cheapest sequence of changes with which one node is eligible."""

    def __init__(
        self, advisor: Advisor, row: int, with_evictions: bool, first: tuple[Repair, ...] = ()
    ) -> None:
        self._advisor = advisor
        self._counts_evictions = advisor.counts_evictions
        self._snapshot = advisor.snapshot
        self._row = row
        self._with_evictions = with_evictions
        self._first = first
        pod = advisor.subject.record(self._snapshot)
        self._class = pod.cls if pod is not None else None

    def propose_cheapest(self) -> bool:
        number = count()
        queue = [(0, next(number), self._first)]
        seen: set[_Obstacle] = set()
        for _ in range(_LOOKS):
            if not queue:
                return False
            cost, _, repairs = heappop(queue)
            obstacle, options = self._look(repairs)
            if obstacle is None:
                repairs = self._needed(repairs)
                if repairs and self._advisor.propose_once(actions_of(*repairs), *repairs):
                    return True
                continue
            if obstacle in seen:
                continue  # the change did not matter, or a cheaper one had the same effect
            seen.add(obstacle)
            for option in options:
                sequence = self._continued(repairs, option)
                if sequence is not None:
                    heappush(queue, (cost + 10**option.cost, next(number), sequence))
        return False

    def _needed(self, repairs: tuple[Repair, ...]) -> tuple[Repair, ...]:
        """The changes without those that another one makes superfluous: a pod whose end opens this
        node may open one that needs no toleration."""
        for at, each in enumerate(repairs if len(repairs) > 1 else ()):
            rest = (*repairs[:at], *repairs[at + 1 :])
            later = {_key(change) for other in repairs[at + 1 :] for change in other.change.objects}
            if later.isdisjoint(map(_key, each.change.objects)):  # those were made on top of it
                with _made(self._advisor, rest):
                    is_enough = self._advisor.starts_now()
                if is_enough:
                    return self._needed(rest)
        return repairs

    def _look(self, repairs: tuple[Repair, ...]) -> tuple[_Obstacle | None, list[Repair]]:
        """What is in the way once the changes are made, and what may remove it."""
        snapshot, row = self._snapshot, self._row
        with _made(self._advisor, repairs):
            pod = self._advisor.subject.record(snapshot)
            made = (*self._advisor.before, *repairs)
            is_corrected = any(UNIT in each.change.actions for each in made)
            if pod is None or (self._is_too_small(pod) and not is_corrected):
                return _NO_WAY, []
            if fits_on(snapshot, pod, row) or (
                self._counts_evictions and repairs and self._advisor.evicts_now()
            ):
                return None, []
            rejection = rejection_on(snapshot, pod, row)
            missing = tuple(sorted(missing_on(snapshot, pod, row).items()))
            limits = tuple(sorted(limits_on(snapshot, pod, row).items()))
            options = list(self._options(pod, rejection)) if len(repairs) < _STEPS else []
            devices = device_reasons(snapshot, pod, row) if rejection.plugin == CLAIMS_PLUGIN else ()
        return _Obstacle(rejection, missing, limits, devices), options

    def _is_too_small(self, pod: PodRecord) -> bool:
        """Whether several changes together leave too little of a request, or of a limit."""
        if self._class is None:
            return False
        now, limited = dict(pod.cls.requests), self._snapshot.cluster.classes.counted
        sizes = [(was, now.get(slot, was)) for slot, was in self._class.requests]
        sizes += [(self._class.limits.of(name), pod.cls.limits.of(name)) for name in limited]
        return any(0 < then * SMALLEST_SHARE < was for was, then in sizes)

    def _options(self, pod: PodRecord, rejection: NodeRejection) -> Iterator[Repair]:
        snapshot, subject, row = self._snapshot, self._advisor.subject, self._row
        yield from _settings(self._advisor, pod, row, rejection)
        yield from corrections(snapshot, subject, pod, rejection.plugin)
        yield from reservation_repairs(snapshot, subject, pod, row)
        yield from estimate_steps(snapshot, subject, pod, row, rejection)
        # Without a shortage, its own reservation there is not usable, and the reason is not given.
        is_hidden = rejection.plugin == NODE_RESOURCES_FIT and not missing_on(snapshot, pod, row)
        if is_hidden:
            yield from device_tolerations(snapshot, subject, pod, row)
        if is_hidden or rejection.plugin == "NodePorts":
            yield from other_ports(snapshot, subject, pod, row)
        elif rejection.plugin == CLAIMS_PLUGIN:
            yield from deleted_taint_rules(snapshot, pod, row)
            yield from fewer_device_steps(snapshot, subject, pod, row)
            yield from device_steps(snapshot, pod, row, self._with_evictions)
        elif rejection.plugin == "VolumeBinding":
            yield from volume_repairs(snapshot, pod)
        elif rejection.plugin == "NodeNUMAResource":
            yield from wider_numa_policies(snapshot, subject, pod, row)
        if rejection.plugin in _CAPACITY:
            yield from smaller_steps(snapshot, subject, pod, row)
            yield from priority_repairs(snapshot, subject, pod, row)
        if rejection.plugin in _CAPACITY or rejection.resolvable:
            freed = [freed_by_waiting(snapshot, pod, row), freed_by_deletion(snapshot, pod, row)]
            freed.append(freed_by_preemption(snapshot, pod, row))
            yield from wait_steps(snapshot, subject, pod, row)
            yield from deletion_steps(snapshot, pod, row)
            if self._with_evictions:
                freed.append(freed_by_eviction(snapshot, pod, row))
                yield from eviction_steps(snapshot, pod, row)
                yield from nominated_evictions(snapshot, pod, row)
            for each in freed:
                yield from smaller_beside(snapshot, subject, pod, row, each)

    def _continued(self, repairs: tuple[Repair, ...], option: Repair) -> tuple[Repair, ...] | None:
        """The sequence with one more change. Smaller requests after smaller requests are one change;
        None if too little would be left."""
        if not repairs or not repairs[-1].resized or not option.sizes:
            return (*repairs, option)
        sizes = merged_sizes(repairs[-1].resized, option.sizes)
        with _made(self._advisor, repairs[:-1]):
            both = resize(self._snapshot, self._advisor.subject, sizes)
        return (*repairs[:-1], both) if both is not None else None


def _key(change: ObjectChange) -> tuple[str, str, str]:
    return change.info.kind, change.namespace, change.name

"""PodTopologySpread: keeps the pods that a constraint selects evenly spread over topology domains.

A hard constraint (DoNotSchedule) filters nodes in whose domain there would be more than `maxSkew` pods
above the domain with the fewest; a soft one (ScheduleAnyway) prefers nodes whose domains have fewer.
Pods without constraints get the profile's default constraints, with the selector of their service or
controller.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.api.affinity import TopologySpreadConstraint
from holdfast.api.errors import SelectorError
from holdfast.api.names import HOSTNAME_LABEL, ZONE_LABEL
from holdfast.api.selectors import (
    Requirement,
    Selector,
    compile_selector,
    find_untolerated,
    selector_from_map,
)
from holdfast.scheduler.cluster.class_key import required_terms
from holdfast.scheduler.cluster.domain_counts import (
    ByDomain,
    DomainSum,
    OnRow,
    PodCounter,
    Tally,
    domain_sum,
)
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_selectors import compile_labels, compile_terms
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import All, Cells, View
from holdfast.scheduler.framework.config import PodTopologySpreadArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    MAX_SCORE,
    ClusterPlugin,
    Filter,
    Reason,
    Scope,
    Score,
    Settled,
)
from holdfast.scheduler.state.cluster import Cluster

_KINDS = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
_CONTROLLERS = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}


class DefaultSelectors:
    """The selectors of default constraints: those of the services or the controller that select a
    class, kept until one of these objects changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[int, tuple[Hashable, Selector]] = {}
        cluster.classes.on_dropped.append(self._forget)

    def of(self, cls: PodClass) -> Selector:
        """The selector of the class; selects everything if no service or controller selects it."""
        versions = self._cluster.epoch.kinds
        version = tuple([versions.get(kind) for kind in _KINDS])
        known = self._known.get(cls.id)
        if known is None or known[0] != version:
            known = self._known[cls.id] = (version, self._work_out(cls))
        return known[1]

    def _forget(self, cls: PodClass) -> None:
        self._known.pop(cls.id, None)

    def _work_out(self, cls: PodClass) -> Selector:
        labels: dict[str, str] = {}
        services: dict[tuple[str, str], Any] = self._cluster.objects.get("Service", {})
        for (namespace, _), service in services.items():
            wanted = service.spec.selector
            if namespace == cls.namespace and wanted and wanted.items() <= cls.labels.items():
                labels |= wanted
        owner = next((o for o in cls.owners if o.controller), None)
        if owner is None or (owner.api_version, owner.kind) not in _CONTROLLERS:
            return selector_from_map(labels)
        controller: Any = self._cluster.objects.get(owner.kind, {}).get((cls.namespace, owner.name))
        if controller is None:
            return selector_from_map(labels)
        if owner.kind == "ReplicationController":
            return selector_from_map(labels | (controller.spec.selector or {}))
        try:
            more = compile_selector(controller.spec.selector)
        except SelectorError:
            return selector_from_map(labels)
        if more.nothing:
            return selector_from_map(labels)
        own = tuple(Requirement(key, "In", (value,)) for key, value in labels.items())
        return Selector((*own, *more.requirements))


REASON = "node(s) didn't match pod topology spread constraints"
REASON_NO_LABEL = REASON + " (missing required label)"
_HARD, _SOFT = "DoNotSchedule", "ScheduleAnyway"
_UNREADABLE = {
    _HARD: "get constraints from pod: obtaining pod's hard topology spread constraints",
    _SOFT: "calculating preScoreState: obtaining pod's soft topology spread constraints",
}
Bools = NDArray[np.bool_]

_IGNORED = -1
"""The raw score of a node without one of the topology keys of the constraints."""

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME_LABEL, when_unsatisfiable=_SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE_LABEL, when_unsatisfiable=_SOFT),
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A topology spread constraint with its compiled selector."""

    key: str
    selector: Selector
    max_skew: int
    min_domains: int
    honours_affinity: bool
    honours_taints: bool


class PodTopologySpread(ClusterPlugin):
    name = "PodTopologySpread"
    wakes_on = (
        Change.NODE_ADDED
        | Change.NODE_REMOVED
        | Change.NODE_LABELS
        | Change.NODE_TAINTS
        | Change.ANY_POD
        | Change.OTHER
    )

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        given = args if isinstance(args, PodTopologySpreadArgs) else PodTopologySpreadArgs()
        self._system = given.defaulting_type == "System"
        self._defaults = (
            SYSTEM_DEFAULTS if self._system else tuple(map(_as_constraint, given.default_constraints))
        )
        self._selectors = DefaultSelectors(self.cluster)

    def filter(self, cls: PodClass) -> Filter | None:
        constraints = self._constraints(cls, _HARD)
        if not constraints:
            # Default constraints would apply if a service or controller selected the pod.
            version = self._version(cls, _HARD)
            return None if version is None else Filter.nothing(version)
        checks = [self._check(cls, constraint, constraints) for constraint in constraints]

        def within(check: SkewCheck, view: View) -> Cells:
            return check.there.sum(view) + check.itself - check.lowest() <= check.max_skew

        def passes(view: View) -> Cells:
            ok = view.full(True)
            for check in checks:
                ok = ok & check.there.present(view) & within(check, view)
            return ok

        def reasons(view: View) -> list[Reason]:
            left, lacking, skewed = view.full(True), view.full(False), view.full(False)
            for check in checks:
                present = check.there.present(view)
                lacking = lacking | (left & view.negate(present))
                left = left & present
                even = within(check, view)
                skewed = skewed | (left & view.negate(even))
                left = left & even
            return [Reason(REASON_NO_LABEL, lacking, resolvable=False), Reason(REASON, skewed)]

        return Filter(
            passes,
            reasons,
            Scope.TOPOLOGY,
            version=self._version(cls, _HARD),
            facets=tuple(check.there for check in checks),
        )

    def score(self, cls: PodClass) -> Score | None:
        constraints = self._constraints(cls, _SOFT)
        version = self._version(cls, _SOFT)
        if not constraints:
            return Score.same(0, version) if version else None
        all_keys = bool(cls.pod.spec.topology_spread_constraints) or not self._system
        parts = [self._part(cls, constraint, constraints, all_keys) for constraint in constraints]

        lacking = Lacking([part.there for part in parts], all_keys)

        def score(view: Any) -> Cells:
            ignored, absent = lacking.of(view)
            considered = view.feasible if ignored is None else np.where(ignored, 0, view.feasible)
            total: Any = 0.0
            for part, missing in zip(parts, absent, strict=True):
                cost = part.there.sum(view) * part.weight(view, considered) + (part.max_skew - 1)
                total = total + (cost if missing is None else np.where(missing, 0.0, cost))
            rounded = np.floor(total + 0.5).astype(np.int64)
            return rounded if ignored is None else np.where(ignored, _IGNORED, rounded)

        return Score(
            score,
            Scope.TOPOLOGY,
            Evenness(),
            version,
            facets=tuple(part.there for part in parts),
        )

    # Constraints

    def _constraints(self, cls: PodClass, action: str) -> list[Constraint]:
        own = cls.pod.spec.topology_spread_constraints
        if own:
            try:
                return [compiled_constraint(c, cls) for c in own if c.when_unsatisfiable == action]
            except SelectorError as error:
                raise SelectorError(f"{_UNREADABLE[action]}: {error}") from error
        wanted = [c for c in self._defaults if c.when_unsatisfiable == action]
        if not wanted:
            return []
        selector = self._selectors.of(cls)
        if selector.everything:
            return []
        return [_with_selector(c, selector) for c in wanted]

    def _version(self, cls: PodClass, action: str) -> Callable[[], Hashable] | None:
        """Changes when the default constraints of the class may: with services and controllers."""
        if self._is_settled(cls, action):
            return None
        return Settled(lambda: self._selectors.of(cls).key)

    def _is_settled(self, cls: PodClass, action: str) -> bool:
        """Whether the constraints are the pod's own, which do not depend on other objects."""
        return bool(cls.pod.spec.topology_spread_constraints) or not any(
            c.when_unsatisfiable == action for c in self._defaults
        )

    # What is counted

    def _counter(self, cls: PodClass, selector: Selector) -> PodCounter:
        namespace = cls.namespace
        own = self.cluster.reservations.matching(cls)

        def counts(other: PodClass) -> bool:
            return (
                not selector.everything
                and other.owner_spec_id not in own
                and other.namespace == namespace
                and not other.terminating
                and selector.matches(other.labels)
            )

        return self.cluster.topology.counter(("spread", namespace, selector.key, own), counts)

    def _counted(
        self, cls: PodClass, constraint: Constraint, keys: list[str]
    ) -> Callable[[], NDArray[np.bool_]]:
        """The rows that count for a constraint: those with all `keys` that its policies admit."""
        nodes = self.cluster.nodes
        columns = [nodes.labels.column(key) for key in keys]
        affinity = compile_labels(nodes, cls.node_selector)
        if required_terms(cls.affinity):
            affinity.append(compile_terms(nodes, required_terms(cls.affinity)))

        def counted() -> NDArray[np.bool_]:
            mask = np.zeros(nodes.capacity, dtype=np.bool_)
            admitted = nodes.alive[: nodes.size].copy()
            for column in columns:
                admitted &= column.codes[: nodes.size] >= 0
            if constraint.honours_affinity:
                for matches in affinity:
                    admitted &= matches(All(nodes))
            if constraint.honours_taints:
                tolerated = np.array(
                    [
                        find_untolerated(nodes.taints[code], cls.tolerations) is None
                        for code in range(len(nodes.taints))
                    ]
                )
                admitted &= tolerated[nodes.taint_set[: nodes.size]]
            mask[: nodes.size] = admitted
            return mask

        return counted

    def _tally(self, cls: PodClass, constraint: Constraint, keys: list[str]) -> Tally:
        return Tally(
            self.cluster.nodes,
            self.cluster.epoch,
            self.cluster.nodes.labels.column(constraint.key),
            [(1, self._counter(cls, constraint.selector))],
            self._counted(cls, constraint, keys),
        )

    def _check(self, cls: PodClass, constraint: Constraint, all_: list[Constraint]) -> "SkewCheck":
        tally = self._tally(cls, constraint, [c.key for c in all_])
        itself = int(constraint.selector.matches(cls.labels))
        return SkewCheck(domain_sum(tally), tally, itself, constraint.max_skew, constraint.min_domains)

    def _part(
        self, cls: PodClass, constraint: Constraint, all_: list[Constraint], all_keys: bool
    ) -> "SpreadPart":
        column = self.cluster.nodes.labels.column(constraint.key)
        if constraint.key == HOSTNAME_LABEL:
            counter = self._counter(cls, constraint.selector)
            return SpreadPart(
                OnRow(self.cluster.nodes, self.cluster.epoch, column, counter), constraint.max_skew
            )
        keys = [c.key for c in all_] if all_keys else []
        return SpreadPart(ByDomain(self._tally(cls, constraint, keys)), constraint.max_skew)


@dataclass(frozen=True, slots=True)
class SkewCheck:
    """The filter of a hard constraint."""

    there: DomainSum
    tally: Tally
    itself: int
    max_skew: int
    min_domains: int

    def lowest(self) -> int:
        """The number of matching pods in the domain with the fewest."""
        enough = int(self.tally.domains.sum()) >= self.min_domains
        return self.tally.minimum() if enough else 0


class SpreadPart:
    """The score of a soft constraint."""

    def __init__(self, there: ByDomain | OnRow, max_skew: int) -> None:
        self.there = there
        self.max_skew = max_skew
        self._seen: tuple[Any, bytes] = (None, b"")
        self._domains = 0

    def weight(self, view: Any, considered: NDArray[np.int64]) -> float:
        """The weight of the constraint, which grows with the number of domains of the feasible nodes.
        Nodes without the topology key count as one domain."""
        if not isinstance(self.there, ByDomain):
            return _weight(int(considered.sum()))
        some = considered > 0
        seen = (view, some.tobytes())
        if seen[0] is not self._seen[0] or seen[1] != self._seen[1]:
            self._seen = seen
            self._domains = len(np.unique(view.facet(self.there)[some]))
        return _weight(self._domains)


@cache
def _weight(domains: int) -> float:
    return float(np.log(domains + 2))


class Lacking:
    """Which keys of a view lack the topology key of a constraint; computed once per view."""

    def __init__(self, facets: list[ByDomain | OnRow], all_keys: bool) -> None:
        self._facets = facets
        self._all_keys = all_keys
        self._seen: Any = None
        self._ignored: Bools | None = None
        self._absent: list[Bools | None] = []

    def of(self, view: Any) -> tuple[Bools | None, list[Bools | None]]:
        """The keys that lack any required topology key, and for each constraint those that lack its
        own; None stands for none."""
        if view is not self._seen:
            self._seen = view
            absent = [np.asarray(~facet.present(view)) for facet in self._facets]
            missing = np.logical_or.reduce(absent)
            self._ignored = missing if self._all_keys and missing.any() else None
            self._absent = [each if each.any() else None for each in absent]
        return self._ignored, self._absent


class Evenness:
    """Normalizes scores: the lowest raw score becomes 100; nodes without the topology keys get 0."""

    def measure(self, raw: NDArray[np.int64]) -> tuple[int, int, bool]:
        low = int(raw.min())
        if low != _IGNORED:
            return low, int(raw.max()), False
        counted = raw[raw != _IGNORED]
        low, high = (int(counted.min()), int(counted.max())) if len(counted) else (0, 0)
        return low, high, True

    def apply(self, raw: Cells, measure: tuple[int, int, bool]) -> Cells:
        low, high, some_ignored = measure
        scores = MAX_SCORE * (high + low - raw) // high if high else raw * 0 + MAX_SCORE
        return np.where(raw == _IGNORED, 0, scores) if some_ignored else scores


def compiled_constraint(constraint: TopologySpreadConstraint, cls: PodClass) -> Constraint:
    """A constraint of the pods of a class, with the labels that matchLabelKeys takes from them."""
    selector = compile_selector(constraint.label_selector)
    same = tuple(
        Requirement(key, "In", (cls.labels[key],))
        for key in constraint.match_label_keys
        if key in cls.labels
    )
    if same and not selector.nothing:
        selector = Selector((*selector.requirements, *same))
    return _with_selector(constraint, selector)


def _with_selector(constraint: TopologySpreadConstraint, selector: Selector) -> Constraint:
    return Constraint(
        key=constraint.topology_key,
        selector=selector,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        honours_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
        honours_taints=(constraint.node_taints_policy or "Ignore") == "Honor",
    )


def _as_constraint(given: Any) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=given.max_skew,
        topology_key=given.topology_key,
        when_unsatisfiable=given.when_unsatisfiable,
        min_domains=given.min_domains,
        node_affinity_policy=given.node_affinity_policy,
        node_taints_policy=given.node_taints_policy,
    )

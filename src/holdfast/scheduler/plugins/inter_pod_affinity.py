"""InterPodAffinity: pod affinity and anti-affinity by topology domain, of the pod itself and of
existing pods whose terms select it."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.cluster.affinity_terms import (
    AffinityTerms,
    OwnTerm,
    Role,
    Selecting,
    Term,
    by_topology_key,
    parse_problem,
    terms_of,
)
from holdfast.scheduler.cluster.domain_counts import DomainSum, PodCounter, Tally, domain_sum
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.config import InterPodAffinityArgs
from holdfast.scheduler.framework.handle import Handle
from holdfast.scheduler.framework.interface import (
    MAX_SCORE,
    ClusterPlugin,
    Filter,
    Reason,
    Rejected,
    Scope,
    Score,
    Settled,
)

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


class InterPodAffinity(ClusterPlugin):
    name = "InterPodAffinity"
    wakes_on = (
        Change.ANY_POD | Change.NODE_ADDED | Change.NODE_REMOVED | Change.NODE_LABELS | Change.OTHER
    )

    def __init__(self, handle: Handle, args: Mapping[str, Any] | Any) -> None:
        super().__init__(handle, args)
        self._args = args if isinstance(args, InterPodAffinityArgs) else InterPodAffinityArgs()
        self._terms = AffinityTerms(self.cluster, self.cluster.reservations.matching)

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        if problem := parse_problem(cls):
            return Rejected(f"parsing pod: {problem}")
        own = terms_of(cls)
        wanted = tuple(o.term for o in own if o.role is Role.REQUIRED)
        shunned = self._effective(o for o in own if o.role is Role.FORBIDDEN)
        others = self._effective(
            o for o in self._terms.selecting(cls).terms if o.role is Role.FORBIDDEN
        )
        near = self._near(cls, wanted) if wanted else None
        away = self._sums(shunned, lambda o: self._terms.selected((o.term,), cls))
        kept_off = self._sums(others, lambda o: self._terms.carriers(o, cls))
        version = self._version(cls)
        if near is None and not away and not kept_off:
            return Filter.nothing(version)

        def passes(view: View) -> Cells:
            ok = clear_of(away, view) & clear_of(kept_off, view)
            return ok if near is None else ok & near.satisfied(view)

        def reasons(view: View) -> list[Reason]:
            close = view.full(True) if near is None else near.satisfied(view)
            clear = clear_of(away, view)
            return [
                Reason(REASON_AFFINITY, view.negate(close), resolvable=False),
                Reason(REASON_ANTI_AFFINITY, close & view.negate(clear)),
                Reason(REASON_EXISTING, close & clear & view.negate(clear_of(kept_off, view))),
            ]

        facets = (*(near.sums if near else ()), *away, *kept_off)
        return Filter(passes, reasons, Scope.TOPOLOGY, version, facets)

    def score(self, cls: PodClass) -> Score | None:
        own = [o for o in terms_of(cls) if o.role in (Role.PREFERRED, Role.AVOIDED)]
        version = self._version(cls)
        if self._args.ignore_preferred_terms_of_existing_pods and not own:
            return None
        weighted: dict[str, list[tuple[int, PodCounter]]] = {}
        for term in self._effective(own):
            sign = 1 if term.role is Role.PREFERRED else -1
            entry = (sign * term.weight, self._terms.selected((term.term,), cls))
            weighted.setdefault(term.term.topology_key, []).append(entry)
        for term in self._effective(self._terms.selecting(cls).terms):
            weight = self._weight_to_others(term)
            if weight:
                entry = (weight, self._terms.carriers(term, cls))
                weighted.setdefault(term.term.topology_key, []).append(entry)
        if not weighted:
            return Score.same(0, version)
        sums = [self._sum(key, entries) for key, entries in weighted.items()]

        def score(view: View) -> Cells:
            total = 0
            for each in sums:
                total = total + each.sum(view)
            return total

        return Score(score, Scope.TOPOLOGY, BySignedRange(), version, tuple(sums))

    def _weight_to_others(self, own: OwnTerm) -> int:
        """The weight of an existing pod's term for the pod it selects."""
        match own.role:
            case Role.REQUIRED:
                return self._args.hard_pod_affinity_weight
            case Role.PREFERRED:
                return own.weight
            case Role.AVOIDED:
                return -own.weight
            case _:
                return 0

    def _version(self, cls: PodClass) -> Callable[[], Hashable]:
        terms = self._terms

        labels = self.cluster.nodes.labels
        own = {o.term.topology_key for o in terms_of(cls)}
        seen: tuple[int, int] = (-1, -1)
        present: frozenset[str] = frozenset()

        def version() -> Hashable:
            nonlocal seen, present
            selecting: Selecting = terms.selecting(cls)
            now = (selecting.version, labels.keys_version)
            if now != seen:
                keys = own.union(o.term.topology_key for o in selecting.terms)
                seen, present = now, frozenset(filter(labels.has, keys))
            return (selecting.version, terms.namespaces_version(), present)

        return Settled(version)

    def _effective(self, terms: Iterable[OwnTerm]) -> list[OwnTerm]:
        """The terms whose topology key some node has. A term concerns only nodes with its key, so terms
        with a key that no node has cost nothing."""
        has = self.cluster.nodes.labels.has
        return [own for own in terms if has(own.term.topology_key)]

    def _near(self, cls: PodClass, wanted: tuple[Term, ...]) -> "Near":
        """Counts the pods that all terms select, in the topology domain of each term."""
        counter = self._terms.selected(wanted, cls)
        keys = dict.fromkeys(term.topology_key for term in wanted)
        sums = tuple(self._sum(key, [(1, counter)], most=1) for key in keys)
        labels = self._terms.namespace_labels(cls.namespace)
        return Near(sums, all(term.wants(cls, labels) for term in wanted))

    def _sums(
        self, terms: list[OwnTerm], counter: Callable[[OwnTerm], PodCounter]
    ) -> tuple[DomainSum, ...]:
        return tuple(
            self._sum(key, [(1, counter(own)) for own in group], most=1)
            for key, group in by_topology_key(terms).items()
        )

    def _sum(
        self, key: str, weighted: list[tuple[int, PodCounter]], most: int | None = None
    ) -> DomainSum:
        column = self.cluster.nodes.labels.column(key)
        return domain_sum(Tally(self.cluster.nodes, self.cluster.epoch, column, weighted), most)


def clear_of(sums: tuple[DomainSum, ...], view: View) -> Cells:
    """Whether no pod that anti-affinity counts is in the row's domains."""
    clear = view.full(True)
    for each in sums:
        clear = clear & (each.sum(view) <= 0)
    return clear


class Near:
    """Required affinity. As in kube-scheduler, a pod that matches its own terms may be the first: if no
    pod matches anywhere, any node with the topology keys is feasible."""

    def __init__(self, sums: tuple[DomainSum, ...], selects_itself: bool) -> None:
        self.sums = sums
        self._selects_itself = selects_itself

    def satisfied(self, view: View) -> Cells:
        in_domain, with_pods = view.full(True), view.full(True)
        for each in self.sums:
            in_domain = in_domain & each.present(view)
            with_pods = with_pods & (each.sum(view) > 0)
        first = self._selects_itself and not any(each.tally.sums.any() for each in self.sums)
        return in_domain & (with_pods | first)


class BySignedRange:
    """The lowest raw score becomes 0 and the highest 100; all 0 if they are equal."""

    def measure(self, raw: NDArray[np.int64]) -> tuple[int, int]:
        return int(raw.min()), int(raw.max())

    def apply(self, raw: Cells, measure: tuple[int, int]) -> Cells:
        low, high = measure
        if high == low:
            return raw * 0
        return (MAX_SCORE * ((raw - low) / (high - low))).astype(np.int64)

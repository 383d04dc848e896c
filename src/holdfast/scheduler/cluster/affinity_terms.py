"""Inter-pod affinity terms: which pods a term selects, and which terms of other classes select a pod.

Anti-affinity is symmetric: a pod is rejected by its own terms and by the terms of existing pods. So all
terms of all classes are registered in a log, and each class reads on in the log, when it is asked, to
find the terms that select it.
"""

import enum
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import NamedTuple

from holdfast.api.affinity import PodAffinity, PodAffinityTerm
from holdfast.api.errors import SelectorError
from holdfast.api.selectors import NOTHING, Requirement, Selector, compile_selector
from holdfast.scheduler.cluster.base import ClusterBase
from holdfast.scheduler.cluster.domain_counts import PodCounter
from holdfast.scheduler.cluster.pod_classes import PodClass

_MAX_LISTED = 250_000
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


class Term(NamedTuple):
    """A compiled affinity term: selects pods by namespace and labels."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def selects(self, cls: PodClass, namespace_labels: Mapping[str, str]) -> bool:
        """Whether the term selects pods of the class, whose namespace has these labels."""
        if not self.selector.matches(cls.labels):
            return False
        return cls.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)

    def wants(self, cls: PodClass, namespace_labels: Mapping[str, str]) -> bool:
        """Whether an existing pod of the class satisfies the incoming pod's term. As in kube-scheduler,
        a namespace selector that matches a namespace without labels then matches every namespace."""
        return self.selects(cls, namespace_labels) or self.selects(cls, {})


class Role(enum.Enum):
    """Affinity or anti-affinity, required or preferred."""

    REQUIRED = "required"
    FORBIDDEN = "forbidden"
    PREFERRED = "preferred"
    AVOIDED = "avoided"


class OwnTerm(NamedTuple):
    """A term with its role in the pods that have it."""

    role: Role
    term: Term
    weight: int
    repeat: int
    """How many equal terms of the same pod come before this one."""


def terms_of(cls: PodClass) -> list[OwnTerm]:
    """The terms of a class; raises SelectorError."""
    affinity = cls.affinity
    if affinity is None:
        return []
    found: list[tuple[Role, Term, int]] = []
    for side, hard, soft in (
        (affinity.pod_affinity, Role.REQUIRED, Role.PREFERRED),
        (affinity.pod_anti_affinity, Role.FORBIDDEN, Role.AVOIDED),
    ):
        if side is not None:
            found += [(hard, compile_term(t, cls), 0) for t in required(side)]
            found += [
                (soft, compile_term(w.pod_affinity_term, cls), w.weight)
                for w in side.preferred_during_scheduling_ignored_during_execution
            ]
    repeats: dict[tuple[Role, Term, int], int] = {}
    own: list[OwnTerm] = []
    for entry in found:
        repeat = repeats[entry] = repeats.get(entry, -1) + 1
        own.append(OwnTerm(*entry, repeat))
    return own


def parse_problem(cls: PodClass) -> str:
    """The error of the class's terms in kube-scheduler's words; empty if they are valid."""
    affinity = cls.affinity
    near = affinity.pod_affinity if affinity is not None else None
    away = affinity.pod_anti_affinity if affinity is not None else None
    problems = []
    for name, terms in (
        ("requiredAffinityTerms", required(near) if near else []),
        ("requiredAntiAffinityTerms", required(away) if away else []),
        ("preferredAffinityTerms", preferred(near) if near else []),
        ("preferredAntiAffinityTerms", preferred(away) if away else []),
    ):
        try:
            for term in terms:
                compile_term(term, cls)
        except SelectorError as error:
            problems.append(f"{name}: {error}")
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else ""


def preferred(side: PodAffinity) -> list[PodAffinityTerm]:
    return [w.pod_affinity_term for w in side.preferred_during_scheduling_ignored_during_execution]


def required(side: PodAffinity) -> list[PodAffinityTerm]:
    return side.required_during_scheduling_ignored_during_execution


def compile_term(term: PodAffinityTerm, cls: PodClass) -> Term:
    """Compiles a term of a class; raises SelectorError."""
    selector = compile_selector(term.label_selector)
    if not selector.nothing:
        # The API server merges these into the selector; an object in a file may not be merged yet.
        extra = [
            Requirement(k, "In", (cls.labels[k],)) for k in term.match_label_keys if k in cls.labels
        ]
        extra += [
            Requirement(k, "NotIn", (cls.labels[k],))
            for k in term.mismatch_label_keys
            if k in cls.labels
        ]
        if extra:
            selector = Selector((*selector.requirements, *extra))
    own_namespace = not term.namespaces and term.namespace_selector is None
    return Term(
        term.topology_key,
        selector,
        frozenset((cls.namespace,)) if own_namespace else frozenset(term.namespaces),
        NOTHING if term.namespace_selector is None else compile_selector(term.namespace_selector),
    )


class Selecting:
    """The terms of all classes that select one class. `version` moves when they change."""

    __slots__ = ("position", "terms", "version")

    def __init__(self) -> None:
        self.terms: dict[OwnTerm, None] = {}
        self.position = 0
        self.version = 0


class AffinityTerms:
    """The affinity terms of all classes."""

    def __init__(self, cluster: ClusterBase, matching: Callable[[PodClass], frozenset[int]]) -> None:
        """`matching` returns the owner specs that pods of a class match."""
        self._cluster = cluster
        self._matching = matching
        self._log: list[tuple[bool, OwnTerm]] = []
        """Terms that appeared (True) or disappeared, in order."""
        self._users: dict[OwnTerm, int] = {}
        self._of_class: dict[int, tuple[OwnTerm, ...]] = {}
        self._selecting: dict[int, Selecting] = {}
        """By class. The least recently used are dropped when the lists have too many terms in total."""
        self._listed = 0
        """The number of terms in all lists."""
        self._versions = 0
        self._namespaces_seen = -1
        for cls in cluster.classes:
            self._class_added(cls)
        cluster.classes.on_added.append(self._class_added)
        cluster.classes.on_dropped.append(self._class_dropped)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace, with the label of its name; an unknown namespace has only that."""
        found = self._cluster.objects.get("Namespace", {}).get(("", namespace))
        labels = found.metadata.labels if found is not None else {}
        return {NAMESPACE_NAME_LABEL: namespace, **labels}

    def namespaces_version(self) -> int:
        return self._cluster.epoch.kinds["Namespace"]

    def selecting(self, cls: PodClass) -> Selecting:
        """The terms that select this class, up to date."""
        if self.namespaces_version() != self._namespaces_seen:
            self._namespaces_seen = self.namespaces_version()
            self._start_over()
        found = self._selecting.get(cls.id)
        if found is None:
            found = self._selecting[cls.id] = Selecting()
            found.version = self._next_version()
        if found.position < len(self._log):
            self._catch_up(found, cls)
        return found

    def _catch_up(self, found: Selecting, cls: PodClass) -> None:
        """Applies the entries of the log that a class has not read yet."""
        labels = self.namespace_labels(cls.namespace)
        before = len(found.terms)
        changed = False
        for appeared, own in self._log[found.position :]:
            if not own.term.selects(cls, labels):
                continue
            if appeared:
                found.terms[own] = None
            else:
                found.terms.pop(own, None)
            changed = True
        if changed:
            found.version = self._next_version()
        found.position = len(self._log)
        self._listed += len(found.terms) - before
        if self._listed > _MAX_LISTED:
            self._selecting[cls.id] = self._selecting.pop(cls.id)
            while self._listed > _MAX_LISTED and len(self._selecting) > 1:
                self._forget(next(iter(self._selecting)))

    def _forget(self, class_id: int) -> None:
        known = self._selecting.pop(class_id, None)
        if known is not None:
            self._listed -= len(known.terms)

    def _start_over(self) -> None:
        """Clears all lists, which then read the log from its beginning."""
        self._listed = 0
        for known in self._selecting.values():
            known.terms.clear()
            known.position = 0
            known.version = self._next_version()

    def _next_version(self) -> int:
        self._versions += 1
        return self._versions

    def carriers(self, own: OwnTerm, seen_by: PodClass) -> PodCounter:
        """A counter of the pods that have this term. Reserve pods of reservations that match the class
        `seen_by` do not count for it."""
        ours = self._matching(seen_by)

        def counts(cls: PodClass) -> bool:
            return cls.owner_spec_id not in ours and own in self._own(cls)

        return self._cluster.topology.counter(("carries", own, ours), counts)

    def selected(self, terms: tuple[Term, ...], seen_by: PodClass) -> PodCounter:
        """A counter of the pods that all of the terms select, with the same exception."""
        ours = self._matching(seen_by)
        by_labels = any(_by_namespace_labels(term) for term in terms)
        version = self.namespaces_version() if by_labels else None

        def counts(cls: PodClass) -> bool:
            if cls.owner_spec_id in ours:
                return False
            labels = self.namespace_labels(cls.namespace)
            return all(term.wants(cls, labels) for term in terms)

        return self._cluster.topology.counter(("selected", terms, version, ours), counts)

    def _own(self, cls: PodClass) -> tuple[OwnTerm, ...]:
        """The terms of a class, which a counter may need before `_class_added` is called."""
        own = self._of_class.get(cls.id)
        if own is None:
            try:
                own = tuple(terms_of(cls))
            except ValueError:
                own = ()  # the InterPodAffinity plugin reports the error
            self._of_class[cls.id] = own
        return own

    def _class_added(self, cls: PodClass) -> None:
        for term in self._own(cls):
            users = self._users.get(term, 0)
            self._users[term] = users + 1
            if not users:
                self._log.append((True, term))

    def _class_dropped(self, cls: PodClass) -> None:
        self._forget(cls.id)
        for term in self._of_class.pop(cls.id, ()):
            self._users[term] -= 1
            if not self._users[term]:
                del self._users[term]
                self._log.append((False, term))
        self._compact()

    def _compact(self) -> None:
        """Shortens the log to the terms in use, once most of its entries are out of date."""
        if len(self._log) < 1024 or len(self._log) < 4 * len(self._users):
            return
        self._log = [(True, term) for term in self._users]
        self._start_over()


def is_outdated(key: Hashable, cluster: ClusterBase) -> bool:
    """Whether a counter selects pods by labels that namespaces had before. It is not read any more: its
    user gets a new counter first."""
    if not isinstance(key, tuple) or key[0] != "selected":
        return False
    return key[2] is not None and key[2] != cluster.epoch.kinds["Namespace"]


def _by_namespace_labels(term: Term) -> bool:
    return not term.namespace_selector.nothing and not term.namespace_selector.everything


def by_topology_key(terms: Iterator[OwnTerm] | list[OwnTerm]) -> dict[str, list[OwnTerm]]:
    groups: dict[str, list[OwnTerm]] = {}
    for own in terms:
        groups.setdefault(own.term.topology_key, []).append(own)
    return groups

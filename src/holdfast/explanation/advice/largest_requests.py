"""The largest requests with which all pods of a workload, or a gang, start; found by bisection.

A request is searched for in steps of one millicore, one MiB, or one unit: one step more is not enough.
Where several resources are short, all are lowered by the same share first, and then each is raised by
itself as far as the others allow.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from holdfast.api.names import MEMORY
from holdfast.explanation.advice.advisor import Advisor, actions_of, edits_pod
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.facts.capacity import missing_on, requested
from holdfast.explanation.facts.replaced_pods import released_holds
from holdfast.explanation.repairs.details import limits_on
from holdfast.explanation.repairs.pod_sizes import SMALLEST_SHARE
from holdfast.explanation.repairs.repair import Repair
from holdfast.explanation.verdicts import Subject
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.managers.devices.requests import TYPE_OF
from holdfast.snapshot.cluster_changes import DELETE
from holdfast.snapshot.cluster_snapshot import RESERVATION

_RESIZE = "Resize"
_PARTS = 256
"""Into how many parts requests are divided to find the share with which all start."""
_MIB = 2**20
_IN_BYTES = (MEMORY, "ephemeral-storage", "hugepages-", "koordinator.sh/gpu-memory")
"""What the names of resources that are counted in bytes begin with, or are."""
_NOT_BYTES = "koordinator.sh/gpu-memory-ratio"

PodName = tuple[str, str]


def consider_smaller_members(advisor: Advisor, pod: PodRecord) -> None:
    """The largest requests of members like the pod with which the gang starts, of one resource if that
    is enough: of as few members as are enough, or of all if they are made from one template."""
    subject, snapshot = Subject.of(pod), advisor.snapshot
    slots = snapshot.cluster.nodes.slots
    asked = {slots.name(slot): n for slot, n in requested(pod).items() if slot != PODS and n > 1}
    for names in (*([name] for name in asked), list(asked)):
        if names and consider_largest(advisor, subject, {name: asked[name] for name in names}):
            break
    else:
        counted = snapshot.cluster.classes.counted
        limits = {name: own for name in counted if (own := pod.cls.limits.of(name)) > 1}
        consider_largest(advisor, subject, limits, "limits")
    improve_members(advisor)


def improve_members(advisor: Advisor) -> None:
    """Smaller requests of members that are advised already, of as few of them as are enough, and as
    large as possible."""
    if (given := _given(advisor)) is not None:
        _improve(advisor, given, _fewest_pods(advisor, given))


def improve_size(advisor: Advisor) -> None:
    """Smaller requests that are advised already, as large as possible."""
    if (given := _given(advisor)) is not None:
        _improve(advisor, given)


def consider_smaller_replicas(advisor: Advisor, pod: PodRecord, rows: list[int]) -> None:
    """The largest requests with which all pods of the workload start, where larger ones are not enough
    for all."""
    given = _given(advisor)
    if given is not None and (advisor.has_siblings or given.sizes.keys() & TYPE_OF.keys()):
        # Those fit what is free on one node now: pods that smaller ones replace free some as well, and
        # one device of another node may have more free than all devices of this one.
        _improve(advisor, given)
    if given is not None or not advisor.has_siblings or not rows:
        return
    slots = advisor.snapshot.cluster.nodes.slots
    every = {slots.name(slot): n for slot, n in requested(pod).items() if slot != PODS and n > 1}
    short = map(slots.name, missing_on(advisor.snapshot, pod, rows[0]))
    now = {name: every[name] for name in short if name in every}
    if advisor.partial_resizes and advisor.partial_resizes[0].sizes:
        now = {name: before for name, (before, _) in advisor.partial_resizes[0].sizes.items()}
    if not consider_largest(advisor, advisor.subject, now) and every.keys() != now.keys():
        consider_largest(advisor, advisor.subject, every)


def consider_largest(
    advisor: Advisor, subject: Subject, now: Mapping[str, int], field: str = "requests"
) -> bool:
    """Advises the largest requests, or limits, below these with which all pods of the workload, or the
    gang, start, unless smaller ones are advised already; whether any are. Requests with which pods of
    a workload preempt or reclaim are advised only where none are small enough without that."""
    if (_RESIZE,) in advisor.actions_given:
        return True
    for evicts in (False, True) if advisor.may_evict else (False,):
        best = _Search(advisor, subject, now, field=field, evicts=evicts).largest() if now else None
        if best is not None and advisor.propose_once((_RESIZE,), best, evicts=evicts):
            return True
    return False


def raised(advisor: Advisor, smaller: Repair, others: Iterable[Repair]) -> Repair:
    """Smaller requests of pods as large as possible, if other changes are made too; as they are for
    pods that these changes create."""
    first = smaller.change.objects[-1]
    if advisor.snapshot.find(first.info, first.name, first.namespace) is None:
        return smaller
    subject = Subject(first.info, first.name, first.namespace)
    now = {name: before for name, (before, _) in smaller.sizes.items()}
    enough = {name: then for name, (_, then) in smaller.sizes.items()}
    with advisor.about(subject, *others):
        return _Search(advisor, subject, now).raised(enough) or smaller


def consider_lower_limits(advisor: Advisor, pod: PodRecord, rows: list[int]) -> None:
    """The highest limits with which all pods of the workload start, where a node does not allow those
    that they have."""
    over = limits_on(advisor.snapshot, pod, rows[0]) if rows else {}
    now = {name: own for name, (own, _, _) in over.items()}
    if advisor.has_siblings:
        consider_largest(advisor, advisor.subject, now, "limits")


def _improve(advisor: Advisor, given: Repair, only: frozenset[PodName] | None = None) -> None:
    """Advises larger requests, or limits, in place of those that were found to be enough, or the same
    ones of fewer pods: only of these."""
    field, enough = ("limits", given.limits) if given.limits else ("requests", given.sizes)
    now = {name: before for name, (before, _) in enough.items()}
    found = {name: then for name, (_, then) in enough.items()}
    evicts = advisor.may_evict and not advisor.is_enough(given)
    best = _Search(advisor, advisor.subject, now, only, field, evicts).raised(found)
    if best is not None and (enough not in (best.sizes, best.limits) or only is not None):
        advisor.improve(best, evicts)


def _given(advisor: Advisor) -> Repair | None:
    """The smaller requests, or lower limits, that are advised already."""
    kind = (*actions_of(*advisor.before), _RESIZE)
    resized = (each for each in advisor.helpful if each.sizes or each.limits)
    given = [each for each in resized if actions_of(each) == kind]
    return given[-1] if given and _edits(given[-1], advisor.subject) else None


def _edits(change: Repair, subject: Subject) -> bool:
    """Whether it is a change of the subject, and not of other members."""
    return any(
        (each.info, each.name, each.namespace) == (subject.info, subject.name, subject.namespace)
        for each in change.change.objects
    )


def _fewest_pods(advisor: Advisor, smaller: Repair) -> frozenset[PodName] | None:
    """The pods of which smaller requests are enough; None if those of all are needed."""
    pods = [(each.namespace, each.name) for each in smaller.change.objects if edits_pod(each)]
    edited = {
        (each.namespace, each.name): each
        for each in smaller.change.objects
        if each.info is not RESERVATION or each.operation != DELETE
    }
    is_plain = len(pods) == len(edited) and not any(each.follows for each in edited.values())
    if len(pods) < 2 or not is_plain or advisor.before:
        return None
    # Members that are tried last are those that find no node.
    own = advisor.subject.namespace, advisor.subject.name
    pods = [each for each in (own, *reversed(pods)) if each in edited]
    pods = list(dict.fromkeys(pods))
    for count in range(1, len(pods)):
        edits = [edited[each] for each in pods[:count]]
        edits = [*released_holds(advisor.snapshot, edits), *edits]
        change = replace(smaller.change, objects=tuple(edits))
        if advisor.is_enough(smaller._replace(change=change)):
            return frozenset(pods[:count])
    return None


class _Search(NamedTuple):
    advisor: Advisor
    subject: Subject
    now: Mapping[str, int]
    """By resource, the requests that are too large."""
    only: frozenset[PodName] | None = None
    """The pods whose requests are lowered; None for all that are like the subject."""
    field: str = "requests"
    """What is lowered: requests or limits."""
    evicts: bool = False
    """Whether requests are enough with which pods of the workload preempt or reclaim."""

    def largest(self) -> Repair | None:
        """The largest requests that are enough; None if none are."""
        least = {name: -(-amount // SMALLEST_SHARE) for name, amount in self.now.items()}
        low, high = self._least_parts(least), _PARTS
        # With the smallest requests, other pods may take what is left before all replicas have started.
        more = (
            [low + (high - low) * part // 4 for part in (1, 2, 3)] if self.advisor.others_wait else []
        )
        enough = (parts for parts in (low, *more) if self._is_enough(self._share(least, parts)))
        if (low := next(enough, -1)) < 0:
            return None
        while high - low > 1 and len(self.now) > 1:
            middle = (low + high) // 2
            is_low = self._is_enough(self._share(least, middle))
            low, high = (middle, high) if is_low else (low, middle)
        return self.raised(self._share(least, low))

    def raised(self, enough: Mapping[str, int]) -> Repair | None:
        """The largest requests that are enough, each found beside the others."""
        found = dict(enough)
        for name, amount in enough.items():
            others = {other: size for other, size in found.items() if other != name}
            if others and self._is_enough(others):
                found = others
                continue
            step = _step(name, amount)
            low, high = amount // step, -(-self.now[name] // step)
            while high - low > 1:
                middle = (low + high) // 2
                is_low = self._is_enough({**found, name: middle * step})
                low, high = (middle, high) if is_low else (low, middle)
            is_least = low * step * SMALLEST_SHARE < self.now[name]
            found[name] = amount if is_least else low * step
        return self._resized(found)

    def _least_parts(self, least: Mapping[str, int]) -> int:
        """The share with which no container has too little beside what cannot be lowered, such as the
        overhead."""
        low, high = -1, _PARTS
        while high - low > 1:
            middle = (low + high) // 2 if low >= 0 else 0
            is_possible = self._resized(self._share(least, middle)) is not None
            low, high = (low, middle) if is_possible else (middle, high)
        return high

    def _share(self, least: Mapping[str, int], parts: int) -> dict[str, int]:
        """Requests between the least and the present ones."""
        return {
            name: amount + (self.now[name] - amount) * parts // _PARTS for name, amount in least.items()
        }

    def _is_enough(self, sizes: Mapping[str, int]) -> bool:
        smaller = self._resized(sizes)
        return smaller is not None and self.advisor.is_enough(smaller, self.evicts)

    def _resized(self, sizes: Mapping[str, int]) -> Repair | None:
        lowered = {name: (self.now[name], size) for name, size in sizes.items()}
        found = resize(self.advisor.snapshot, self.subject, lowered, self.field)
        if found is None or self.only is None:
            return found
        kept = [each for each in found.change.objects if (each.namespace, each.name) in self.only]
        kept = [*released_holds(self.advisor.snapshot, kept), *kept]
        return found._replace(change=replace(found.change, objects=tuple(kept)))


def _step(name: str, amount: int) -> int:
    """The precision of a request: a MiB of what is counted in bytes, a millicore, or one unit."""
    is_in_bytes = name.startswith(_IN_BYTES) and name != _NOT_BYTES
    return _MIB if is_in_bytes and amount >= _MIB else 1

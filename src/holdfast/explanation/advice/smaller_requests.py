"""Smaller requests and limits of a pod or reservation, and NUMA policies that demand less."""

from collections.abc import Callable, Iterator
from functools import partial

from holdfast.api.names import CPU as CPU_NAME
from holdfast.api.names import MEMORY as MEMORY_NAME
from holdfast.explanation.advice.advisor import Advisor, actions_of
from holdfast.explanation.facts.capacity import missing_on, requested
from holdfast.explanation.facts.hardware import device_requests
from holdfast.explanation.facts.numa_alignment import numa_requests, whole_cores
from holdfast.explanation.repairs.details import limits_on
from holdfast.explanation.repairs.pod_sizes import SMALLEST_SHARE, Sizes, amount_of, resized_spec
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.snapshot.cluster_snapshot import RESERVATION, ClusterSnapshot, shown

_SHARES = (7, 6, 5, 4, 3, 2)
"""How many eighths of their requests the members of a gang are tried with."""

_STEPS = 5
"""How many steps of bisection divide one eighth of a request."""

_PARTS = 256
"""Into how many parts a request is divided to find the largest one with which all replicas start."""


def smaller_steps(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """Requests that fit what is free on a row, or a NUMA node there; then limits that fit what is
    allowed. Where several resources are short, each of them by itself comes last."""
    slots, asked = snapshot.cluster.nodes.slots, requested(pod)
    lowered = {
        slots.name(slot): (asked[slot], asked[slot] - lack)
        for slot, lack in missing_on(snapshot, pod, row).items()
        if slot != PODS
    }
    for name, (now, then) in device_requests(snapshot, pod, row).items():
        lowered[name] = (now, min(then, lowered.get(name, (now, then))[1]))
    limits = {
        resource: (own, allowed - there)
        for resource, (own, there, allowed) in limits_on(snapshot, pod, row).items()
    }
    found = [
        resize(snapshot, subject, lowered),
        resize(snapshot, subject, numa_requests(snapshot, pod, row)),
        resize(snapshot, subject, limits, "limits"),
    ]
    for sizes, field in ((lowered, "requests"), (limits, "limits")):
        if len(sizes) > 1:
            found += [resize(snapshot, subject, {name: sizes[name]}, field) for name in sizes]
    yield from (each for each in found if each is not None)


def more_cpus(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    """As many exclusive CPUs more as make whole cores."""
    larger = resize(snapshot, subject, whole_cores(snapshot, pod, row), exactly=True)
    return [larger] if larger is not None else []


def smaller_beside(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int, freed: Amounts
) -> Iterator[Repair]:
    """Requests that fit a row once something else is freed there, if that alone is not enough."""
    slots, asked = snapshot.cluster.nodes.slots, requested(pod)
    lowered = {
        slots.name(slot): (asked[slot], asked[slot] - lack + freed.get(slot, 0))
        for slot, lack in missing_on(snapshot, pod, row).items()
        if slot != PODS and 0 < freed.get(slot, 0) < lack
    }
    smaller = resize(snapshot, subject, lowered)
    if smaller is not None:
        yield smaller


def consider_smaller_members(advisor: Advisor, pod: PodRecord) -> None:
    """Smaller requests of all members like the pod, of one resource if that is enough."""
    snapshot, kind = advisor.snapshot, ("Resize",)
    slots = snapshot.cluster.nodes.slots
    asked = {slots.name(slot): n for slot, n in requested(pod).items() if slot != PODS and n > 1}

    def with_parts(names: list[str], parts: int, rounded: Callable[[str, int], int]) -> Repair | None:
        lowered = {name: (asked[name], rounded(name, asked[name] * parts // _PARTS)) for name in names}
        return resize(snapshot, Subject.of(pod), lowered)

    for names in (*([name] for name in asked), list(asked)):
        for eighths in _SHARES if names else ():
            smaller = with_parts(names, eighths * _PARTS // 8, _round_down)
            is_first = kind not in advisor.actions
            if smaller is None or not advisor.propose_once(kind, smaller):
                continue
            if is_first:
                _improve(advisor, eighths, partial(with_parts, names, rounded=_readable))
            return


def _improve(advisor: Advisor, eighths: int, with_parts: Callable[[int], Repair | None]) -> None:
    """Advises the largest request with which the gang starts, found by bisection: this share was found
    to be enough, and one eighth more was not."""
    low, high = eighths * _PARTS // 8, (eighths + 1) * _PARTS // 8
    best: Repair | None = None
    for _ in range(_STEPS):
        middle = (low + high) // 2
        larger = with_parts(middle)
        if larger is not None and advisor.is_enough(larger):
            low, best = middle, larger
        else:
            high = middle
    if best is not None:
        advisor.improve(best)


def consider_smaller_replicas(advisor: Advisor, pod: PodRecord, rows: list[int]) -> None:
    """The largest requests with which all pods of the workload start, where larger ones are not enough
    for all; found by bisection."""
    if not advisor.has_siblings or not rows:
        return
    given = [each for each in advisor.helpful if each.sizes and actions_of(each) == ("Resize",)]
    if given:
        _improve_replicas(advisor, given[-1].sizes)
        return
    slots, asked = advisor.snapshot.cluster.nodes.slots, requested(pod)
    short = missing_on(advisor.snapshot, pod, rows[0])
    every: Sizes = {slots.name(slot): (n, n) for slot, n in asked.items() if slot != PODS and n > 1}
    sizes: Sizes = {name: every[name] for name in map(slots.name, short) if name in every}
    if advisor.partial_resizes:
        sizes = advisor.partial_resizes[0].sizes
    if not _consider_largest(advisor, sizes) and every.keys() != sizes.keys():
        _consider_largest(advisor, every)


def _consider_largest(advisor: Advisor, sizes: Sizes) -> bool:
    """Advises the largest requests, up to these, with which all pods of the workload start; returns
    whether there are any."""

    def with_parts(parts: int) -> Repair | None:
        lowered = {
            name: (now, _readable(name, then * parts // _PARTS)) for name, (now, then) in sizes.items()
        }
        return resize(advisor.snapshot, advisor.subject, lowered)

    low, high = 0, _PARTS
    while high - low > 1 and sizes:
        middle = (low + high) // 2
        smaller = with_parts(middle)
        is_low = smaller is None or advisor.is_enough(smaller)
        low, high = (middle, high) if is_low else (low, middle)
    best = with_parts(low) if low else None
    return best is not None and advisor.propose_once(("Resize",), best)


def _improve_replicas(advisor: Advisor, sizes: Sizes) -> None:
    """Advises larger requests than these, which fit what is free on one node now: pods that are
    replaced by smaller ones free some as well."""
    low, high, best = 0, _PARTS, None
    while high - low > 1:
        middle = (low + high) // 2
        larger = {
            name: (now, _readable(name, then + (now - then) * middle // _PARTS))
            for name, (now, then) in sizes.items()
        }
        is_larger = all(larger[name][1] > then for name, (_, then) in sizes.items())
        found = resize(advisor.snapshot, advisor.subject, larger) if is_larger else None
        if found is not None and not advisor.is_enough(found):
            high = middle
        else:
            low, best = middle, found or best
    if best is not None:
        advisor.improve(best)


def _readable(name: str, amount: int) -> int:
    """An amount with few digits, and not larger: tenths of CPUs, multiples of 64 MiB."""
    unit = {CPU_NAME: 100, MEMORY_NAME: 2**26}.get(name, 1)
    return amount // unit * unit if amount >= unit else amount


def _round_down(name: str, amount: int) -> int:
    """An amount that reads well, and is not larger: whole CPUs, whole GiB."""
    whole = {CPU_NAME: 1000, MEMORY_NAME: 2**30}.get(name, 1)
    return amount // whole * whole if amount >= 2 * whole else amount


def resize(
    snapshot: ClusterSnapshot,
    subject: Subject,
    sizes: Sizes,
    field: str = "requests",
    exactly: bool = False,
) -> Repair | None:
    """The pod with other requests, or limits: by resource, the amounts now and then. None if too little
    would be left. Smaller requests help as well, unless it must be `exactly` these."""
    if not sizes or "pods" in sizes:
        return None
    if any(then <= 0 or then * SMALLEST_SHARE < now for now, then in sizes.values()):
        return None
    pod = subject.record(snapshot)
    changed = resized_spec(_spec_of(snapshot, subject), sizes, field)
    if pod is None or changed is None:
        return None
    overhead = pod.cls.pod.spec.overhead if field == "requests" else {}
    texts = ", ".join(
        f"{shown(name, then - beside)} {name} instead of {shown(name, now - beside)}"
        f"{f' (its overhead of {shown(name, beside)} is added)' if beside else ''}"
        for name, (now, then) in sizes.items()
        for beside in [amount_of(overhead, name)]
    )
    if field == "requests":
        text = f"request {'' if exactly else 'at most '}{texts}"
        text += ", and limit it to that" if changed.limits_too else ""
    else:
        too = " and its request" if _requests_more(snapshot, subject, sizes) else ""
        text = f"lower its limit{too} to {texts}"
    if changed.places:
        text += f" ({', '.join(changed.places)})"

    def edit(spec: Raw) -> Raw:
        other = resized_spec(spec, sizes, field)
        return other.patch if other is not None else {}

    found = repair(text, "Resize", spec_changes(snapshot, subject, edit), RESIZE)
    if field != "requests":
        return found
    return found._replace(exact_sizes=sizes) if exactly else found._replace(sizes=sizes)


def merged_sizes(first: Sizes, then: Sizes) -> Sizes:
    """The sizes of two changes, one after the other, as one."""
    later = {name: (first.get(name, sizes)[0], sizes[1]) for name, sizes in then.items()}
    return {**first, **later}


def _spec_of(snapshot: ClusterSnapshot, subject: Subject) -> Raw:
    """The spec of the pod, or of the reservation's template."""
    raw = subject.raw(snapshot)
    if subject.info is RESERVATION:
        raw = (raw.get("spec") or {}).get("template") or {}
    spec: Raw = raw.get("spec") or {}
    return spec


def _requests_more(snapshot: ClusterSnapshot, subject: Subject, sizes: Sizes) -> bool:
    """Whether a request of the pod would exceed the lowered limit."""
    pod = subject.record(snapshot)
    slots = snapshot.cluster.nodes.slots
    asked = {slots.name(slot): amount for slot, amount in pod.cls.requests} if pod is not None else {}
    return any(asked.get(name, 0) > then for name, (_, then) in sizes.items())

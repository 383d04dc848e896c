"""Smaller requests and limits of a pod or reservation, and NUMA policies that demand less."""

from collections.abc import Iterator

from holdfast.explanation.facts.admitted_pods import NONE, additions
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
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot, shown


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
    added = additions(snapshot, subject.raw(snapshot)) if subject.info is POD else NONE
    changed = resized_spec(_spec_of(snapshot, subject), sizes, field, added)
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
        other = resized_spec(spec, sizes, field, added)
        return other.patch if other is not None else {}

    found = repair(text, "Resize", spec_changes(snapshot, subject, edit), RESIZE)
    if field != "requests":
        return found._replace(limits=sizes)
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

"""Amounts, pods and times as they are put in sentences."""

from collections.abc import Iterable, Mapping

from holdfast.api.plurals import number_of, plural
from holdfast.api.times import format_duration, span_text
from holdfast.explanation.report import few
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import Amounts
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

NO_ALLOCATE = "The configuration has no allocate action: no pod is scheduled"
"""Of a scheduler with other actions only."""
ENDS_EARLY = ", as it ends before others need the capacity"
"""Why a pod fits for which capacity is only free for a while."""
_FEW = 3


def amounts_text(snapshot: ClusterSnapshot, amounts: Amounts) -> str:
    """`3 cpu, 2Gi memory`"""
    name = snapshot.cluster.nodes.slots.name
    return _listed([(name(slot), amount) for slot, amount in amounts.items() if name(slot)])


def named_amounts(amounts: Mapping[str, int]) -> str:
    """`3 cpu, 2Gi memory`, those that are not 0; empty if all are."""
    return _listed([(name, amount) for name, amount in sorted(amounts.items()) if amount])


def _listed(amounts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(
        number_of(amount, "pod slot") if name == "pods" else f"{shown(name, amount)} {name}"
        for name, amount in amounts
    )


def pods_text(pods: Iterable[PodRecord]) -> str:
    """`default/a, default/b, and 3 more`; of reserve pods, `reservation a`"""
    return few([pod_text(pod) for pod in pods], _FEW)


def pod_text(pod: PodRecord) -> str:
    return f"reservation {pod.name}" if pod.reservation else f"{pod.namespace}/{pod.name}"


def named_pods(pods: list[PodRecord]) -> str:
    """`pod default/a`, or `2 pods default/a, default/b`: all of them, since somebody may have to end
    them."""
    noun = "pod" if len(pods) == 1 else number_of(len(pods), "pod")
    return f"{noun} {', '.join(f'{pod.namespace}/{pod.name}' for pod in pods)}"


def duration_text(seconds: float) -> str:
    """`2h30m` instead of `2h30m0s`."""
    text = format_duration(seconds)
    for zero, unit in (("m0s", "m"), ("h0m", "h")):
        text = text[: -len(zero)] + unit if text.endswith(zero) else text
    return text


def in_time(time: float, now: float) -> str:
    """`in 12m`"""
    return f"in {span_text(time - now)}"


def job_text(job: Job) -> str:
    """`PodGroup default/g`, or `gang default/g` if annotations of its pods declare it."""
    kind = "gang" if job.group is None and job.is_declared else "PodGroup"
    return f"{kind} {job.name.namespace}/{job.name.name}"


def needs_more(what: str, place: str, places: int, pods: int) -> str:
    """`its host port 80 allows one pod per node: 4 pods need 4, and there are 3, so 1 more is needed
    (…)`"""
    lacking = number_of(pods - places, "more is", "more are")
    return (
        f"{what} allows one pod per {place}: {pods} pods need {pods}, and there "
        f"{plural(places, 'is', 'are')} {places}, so {lacking} needed (see: holdfast what-if --plan)"
    )

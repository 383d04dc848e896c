"""Requests that no node can satisfy whatever its size: exclusive CPUs that are not whole, shares of
devices that are neither one share nor whole devices, and GPUs requested in two ways at once."""

import copy
from collections.abc import Iterator, Mapping
from functools import partial

from holdfast.api import names
from holdfast.api.quantity import format_amount
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.repairs.node_repairs import without_exclusive_cpus
from holdfast.explanation.repairs.pod_sizes import parts_of
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject, place
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.managers.devices.requests import (
    FULL,
    GPU,
    GPU_FORMS,
    REQUEST_NAMES,
    is_percentage,
)
from holdfast.scheduler.managers.numa.node_topology import EXCLUSIVE_QOS, NOT_WHOLE
from holdfast.snapshot.cluster_changes import applied
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

_WHOLE_CPU = 1000
_INVALID_DEVICES = ("invalid resource unit", "invalid resource device requests")
_PERCENT = (names.GPU_PERCENT, names.GPU_CORE, names.GPU_MEMORY_RATIO, names.RDMA, names.FPGA)
"""Resources that are percentages of devices."""


def consider_invalid_requests(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, message: str, advisor: Advisor
) -> list[str]:
    """Facts about the requests that a rejection calls invalid; proposes valid ones."""
    facts: list[str] = []
    if NOT_WHOLE in message:
        facts += _cpus_in_part(snapshot, subject, pod, advisor)
    if any(each in message for each in _INVALID_DEVICES):
        slots = snapshot.cluster.nodes.slots
        asked = {slots.name(slot): amount for slot, amount in pod.cls.requests if amount}
        forms = frozenset(name for name in REQUEST_NAMES[GPU] if name in asked)
        if forms and forms not in GPU_FORMS:
            facts += _other_form(snapshot, subject, asked, forms, advisor)
        else:
            facts += _other_share(snapshot, subject, asked, advisor)
    return facts


def _cpus_in_part(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor
) -> Iterator[str]:
    asked, qos = pod.cls.request(CPU), pod.cls.labels.get(names.QOS_CLASS)
    whose = f"its label {names.QOS_CLASS}={qos} asks" if qos in EXCLUSIVE_QOS else "it asks"
    yield f"{whose} for exclusive CPUs, which are whole ones, and it requests {shown(names.CPU, asked)}"
    lower = asked // _WHOLE_CPU * _WHOLE_CPU
    sizes = (lower + _WHOLE_CPU, lower)
    options = [resize(snapshot, subject, {names.CPU: (asked, n)}, exactly=True) for n in sizes]
    repairs = [each for each in options if each is not None]
    helpful = [each for each in repairs if advisor.propose(each)]
    if not helpful:
        yield from _still_rejected(snapshot, subject, repairs)
        if qos in EXCLUSIVE_QOS:
            advisor.propose(without_exclusive_cpus(snapshot, subject, pod))


def _still_rejected(
    snapshot: ClusterSnapshot, subject: Subject, repairs: list[Repair]
) -> Iterator[str]:
    """What would keep the pod pending once its requests are valid."""
    for each in repairs[:1]:
        with applied(snapshot, each.change.objects):
            pod = subject.record(snapshot)
            message = place(snapshot.scheduler, pod).message if pod is not None else ""
        if message:
            yield f"with whole CPUs it has no node either: {message}"


# Devices


def _other_share(
    snapshot: ClusterSnapshot, subject: Subject, asked: Mapping[str, int], advisor: Advisor
) -> Iterator[str]:
    """The nearest amounts that are a share of one device, or whole devices."""
    if count := asked.get(names.GPU_SHARED, 0):
        parts = {
            name: asked[name] for name in (names.GPU_CORE, names.GPU_MEMORY_RATIO) if name in asked
        }
        wrong = {name: n for name, n in parts.items() if n % count or n > count * FULL}
        for name, n in wrong.items():
            yield f"{name}: {n} cannot be divided evenly among {count} GPUs, up to {FULL} of each"
        options = [{name: (n, min(n // count, FULL) * count) for name, n in wrong.items()}]
    else:
        wrong = {name: asked[name] for name in _PERCENT if not is_percentage(asked.get(name, 0))}
        for name, n in wrong.items():
            yield (
                f"{name}: {n} is neither a share of one device, up to {FULL}, nor a number of whole "
                f"devices, a multiple of {FULL}"
            )
        lower = {name: n // FULL * FULL for name, n in wrong.items()}
        options = [{name: (wrong[name], n + more) for name, n in lower.items()} for more in (FULL, 0)]
    for sizes in options:
        valid = resize(snapshot, subject, sizes, exactly=True)
        if valid is not None:
            advisor.propose(valid)


def _other_form(
    snapshot: ClusterSnapshot,
    subject: Subject,
    asked: Mapping[str, int],
    forms: frozenset[str],
    advisor: Advisor,
) -> Iterator[str]:
    """Only some of the resources, or the memory of a GPU besides."""
    listed = [name for name in REQUEST_NAMES[GPU] if name in forms]
    less = [each for each in GPU_FORMS if each < forms]
    if not less:
        yield (
            f"a request for {' and '.join(listed)} needs {names.GPU_MEMORY} or "
            f"{names.GPU_MEMORY_RATIO} besides"
        )
        if names.GPU_CORE in forms and forms | {names.GPU_MEMORY_RATIO} in GPU_FORMS:
            ratio = asked[names.GPU_CORE]
            added = {names.GPU_MEMORY_RATIO: format_amount(names.GPU_MEMORY_RATIO, ratio)}
            objects = spec_changes(
                snapshot, subject, partial(_with, beside=names.GPU_CORE, added=added)
            )
            text = f"request {ratio} {names.GPU_MEMORY_RATIO} besides"
            advisor.propose(repair(text, "Resize", objects, RESIZE))
        return
    yield f"{' and '.join(listed)} cannot be requested together: each requests GPUs in another way"
    most = max(len(each) for each in less)
    for kept in sorted((each for each in less if len(each) == most), key=sorted):
        dropped = [name for name in listed if name not in kept]
        objects = spec_changes(snapshot, subject, partial(_without, dropped=dropped))
        text = f"request {' and '.join(sorted(kept))} without {' and '.join(dropped)}"
        advisor.propose(repair(text, "Resize", objects, RESIZE))


def _without(spec: Raw, dropped: list[str]) -> Raw:
    """The containers without requests for these resources."""
    changed = _containers(spec)
    for part in parts_of(changed):
        for field in ("requests", "limits"):
            given = part.resources.get(field) or {}
            if any(name in given for name in dropped):
                kept = {name: amount for name, amount in given.items() if name not in dropped}
                part.resources[field] = kept
    return changed


def _with(spec: Raw, beside: str, added: Mapping[str, str]) -> Raw:
    """The containers with another resource where they request one."""
    changed = _containers(spec)
    for part in parts_of(changed):
        for field in ("requests", "limits"):
            given = part.resources.get(field) or {}
            if beside in given:
                part.resources[field] = {**given, **added}
    return changed


def _containers(spec: Raw) -> Raw:
    return copy.deepcopy({key: spec[key] for key in ("containers", "initContainers") if spec.get(key)})

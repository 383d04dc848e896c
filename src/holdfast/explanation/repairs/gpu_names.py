"""GPUs under another name. Vendors count whole GPUs, Koordinator counts percents or parts of them:
where no node has the resource by which a pod requests GPUs, nodes may have GPUs by another one."""

import copy
from collections.abc import Mapping

from holdfast.api.names import GPU_CORE, GPU_MEMORY_RATIO, GPU_PERCENT
from holdfast.api.quantity import amount
from holdfast.explanation.facts.capacity import largest
from holdfast.explanation.repairs.repair import Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.devices.requests import (
    FULL,
    GPU,
    RATIO,
    TYPE_OF,
    WHOLE,
    DeviceRequestError,
    device_request,
)
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot, shown

Form = tuple[str, ...]
_FORMS: tuple[Form, ...] = (
    *((name,) for name in WHOLE),
    (GPU_PERCENT,),
    (GPU_CORE, GPU_MEMORY_RATIO),
)
"""Resources by which GPUs, or shares of one, can be requested."""


def other_gpu_names(snapshot: ClusterSnapshot, name: str) -> list[str]:
    """The resources by which nodes have GPUs, if one that none has is a name for GPUs, too."""
    return [each for form in _forms(snapshot) for each in form] if TYPE_OF.get(name) == GPU else []


def renamed_gpus(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> list[Repair]:
    """The pod with as many GPUs by the resources that nodes have."""
    slots = snapshot.cluster.nodes.slots
    asked = {slots.name(slot): n for slot, n in pod.cls.requests if n}
    gpus = {name: n for name, n in asked.items() if TYPE_OF.get(name) == GPU}
    if all(_most(snapshot, name) for name in gpus):
        return []
    return [
        _renamed(snapshot, subject, gpus, then, form)
        for form in _forms(snapshot)
        if (then := _converted(gpus, form))
    ]


def _forms(snapshot: ClusterSnapshot) -> list[Form]:
    """The forms whose resources nodes have; parts only where no node counts percents."""
    found = [form for form in _FORMS if all(_most(snapshot, name) for name in form)]
    return [form for form in found if len(form) == 1 or (GPU_PERCENT,) not in found]


def _most(snapshot: ClusterSnapshot, name: str) -> int:
    slot = snapshot.cluster.nodes.slots.find(name)
    return largest(snapshot, slot) if slot is not None else 0


def _converted(gpus: Mapping[str, int], form: Form) -> dict[str, int]:
    """The request in another form: whole GPUs for a share of one where only these are counted. Empty if
    it is invalid."""
    try:
        request = device_request(gpus)
    except DeviceRequestError:
        return {}
    found = dict.fromkeys(form, 0)
    for share in request:
        percent = share.each[RATIO] or FULL
        for name in form:
            found[name] += share.number if name in WHOLE else share.number * percent
    return {name: n for name, n in found.items() if n}


def _renamed(
    snapshot: ClusterSnapshot,
    subject: Subject,
    gpus: Mapping[str, int],
    then: Mapping[str, int],
    form: Form,
) -> Repair:
    def edit(spec: Raw) -> Raw:
        body: Raw = {}
        for field in ("containers", "initContainers"):
            containers = copy.deepcopy(spec.get(field) or [])
            for resources in (each.get("resources") or {} for each in containers):
                for amounts in (resources.get("requests") or {}, resources.get("limits") or {}):
                    given = {name: amount(name, amounts[name]) for name in gpus if name in amounts}
                    if given and (right := _converted(given, form)):
                        for name in given:
                            del amounts[name]
                        amounts |= {name: str(n) for name, n in right.items()}
            if containers:
                body[field] = containers
        return body

    text = f"request {_text(then)} instead of {_text(gpus)}"
    if {*form, *gpus} <= {*WHOLE}:
        text += ", if its image is made for such GPUs"
    return repair(text, "CorrectResource", spec_changes(snapshot, subject, edit))


def _text(gpus: Mapping[str, int]) -> str:
    return " and ".join(f"{shown(name, n)} {name}" for name, n in gpus.items())

"""Names that a pod or reservation gives and that nothing has: the nearest one that exists, advised if
the object would then be scheduled."""

import copy
from collections.abc import Iterator

from holdfast.api.names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, HOSTNAME_LABEL
from holdfast.api.similar_names import nearest
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.claim_bindings import bound_at_once
from holdfast.explanation.facts.capacity import largest
from holdfast.explanation.facts.node_labels import labels_of_nodes, similar_keys
from holdfast.explanation.repairs.claim_templates import made_again, revised_claim
from holdfast.explanation.repairs.claim_volumes import missing_class
from holdfast.explanation.repairs.details import claims_of, resources_like
from holdfast.explanation.repairs.gpu_names import renamed_gpus
from holdfast.explanation.repairs.label_repairs import corrected_labels, is_discovered
from holdfast.explanation.repairs.mistaken_units import corrected_units
from holdfast.explanation.repairs.pod_affinity import corrected_terms
from holdfast.explanation.repairs.repair import (
    CLAIM,
    Repair,
    repair,
    spec_changes,
)
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.local.setup import SERVED
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS
from holdfast.scheduler.framework.config.plugin_sets import NODE_AFFINITY, NODE_RESOURCES_FIT
from holdfast.scheduler.scheduler import Scheduler
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def consider_misspellings(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor
) -> None:
    """Each correction by itself; and if one alone does not help, one of each name together."""
    found = [
        *([each] for each in corrected_labels(snapshot, subject, pod)),
        *([each] for each in corrected_terms(snapshot, subject, pod)),
        *_spread_keys(snapshot, subject, pod),
        *_resources(snapshot, subject, pod),
        *_gpus(snapshot, subject, pod),
        *corrected_classes(snapshot, subject, pod),
        *([each] for each in corrected_units(snapshot, subject, pod)),
    ]
    helpful = [each for same in found for each in same if advisor.propose(each)]
    if not helpful and len(found) > 1:
        advisor.propose(*(same[0] for same in found if same))


def corrections(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, plugin: str
) -> Iterator[Repair]:
    """Corrections of the names because of which the plugin rejects nodes."""
    if plugin == NODE_AFFINITY:
        yield from corrected_labels(snapshot, subject, pod)
    elif plugin == "InterPodAffinity":
        yield from corrected_terms(snapshot, subject, pod)
    elif plugin == "PodTopologySpread":
        yield from (each for same in _spread_keys(snapshot, subject, pod) for each in same)
    elif plugin == NODE_RESOURCES_FIT:
        yield from (each for same in _resources(snapshot, subject, pod) for each in same)
        yield from renamed_gpus(snapshot, subject, pod)
        yield from corrected_units(snapshot, subject, pod)
    elif plugin == "LimitAware":
        yield from corrected_units(snapshot, subject, pod)
    elif plugin == "VolumeBinding":
        yield from (each for same in corrected_classes(snapshot, subject, pod) for each in same)


# Schedulers


def served_schedulers(scheduler: Scheduler) -> list[str]:
    """The scheduler names that the profiles serve."""
    own = [profile.scheduler_name for profile in scheduler.profiles]
    return [*own, *(each for each in SERVED if each not in own and scheduler.profile_of(each))]


def other_schedulers(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """The served scheduler whose name is most like the one that is not served, or else the first."""
    served = served_schedulers(snapshot.scheduler)
    for near in nearest(pod.scheduler, served) or served[:1]:
        objects = spec_changes(snapshot, subject, lambda spec: {"schedulerName": near})  # noqa: B023
        text = f"set schedulerName: {near} instead of {pod.scheduler}"
        yield repair(text, "SetScheduler", objects)


# Topology spread constraints


def _spread_keys(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[list[Repair]]:
    """Spread constraints by a label that no node has."""
    labels = labels_of_nodes(snapshot)
    keys = dict.fromkeys(each.topology_key for each in pod.cls.pod.spec.topology_spread_constraints)

    def respread(key: str, near: str) -> Repair:
        def edit(spec: Raw) -> Raw:
            constraints = copy.deepcopy(spec.get("topologySpreadConstraints") or [])
            for each in constraints:
                if each.get("topologyKey") == key:
                    each["topologyKey"] = near
            return {"topologySpreadConstraints": constraints}

        text = f"use the topologyKey {near} instead of {key} in its topology spread constraints"
        return repair(text, "CorrectSpread", spec_changes(snapshot, subject, edit))

    for key in keys:
        if key not in labels:
            found = nearest(key, similar_keys(key, labels))
            if not found and is_discovered(key) and len(labels.get(HOSTNAME_LABEL, ())) > 1:
                found = [HOSTNAME_LABEL]  # where nodes have no zones, each is a zone of its own
            yield [respread(key, near) for near in found]


# Resources


def _resources(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[list[Repair]]:
    """Requests for resources that no node has."""
    slots = snapshot.cluster.nodes.slots

    asked = {slots.name(slot) for slot, _ in pod.cls.requests}

    def renamed(name: str, near: str) -> Repair:
        needed = [near]
        if near == GPU_CORE and asked.isdisjoint((GPU_MEMORY, GPU_MEMORY_RATIO)):
            needed.append(GPU_MEMORY_RATIO)  # the cores of a GPU are requested with its memory only
        objects = spec_changes(snapshot, subject, lambda spec: _renamed(spec, name, needed))
        text = f"request {' and '.join(needed)} instead of {name}"
        return repair(text, "CorrectResource", objects)

    for slot, _ in pod.cls.requests:
        if slot != PODS and not largest(snapshot, slot):
            name = slots.name(slot)
            yield [renamed(name, near) for near in nearest(name, resources_like(snapshot, name))]


def _gpus(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[list[Repair]]:
    """GPUs by a resource that no node has, while nodes have GPUs by others."""
    if found := renamed_gpus(snapshot, subject, pod):
        yield found


def _renamed(spec: Raw, name: str, needed: list[str]) -> Raw:
    """The containers with other resources in place of one."""
    found: Raw = {}
    for field in ("containers", "initContainers"):
        containers = copy.deepcopy(spec.get(field) or [])
        for resources in (each.get("resources") or {} for each in containers):
            for amounts in (resources.get("requests") or {}, resources.get("limits") or {}):
                if name in amounts:
                    amounts |= dict.fromkeys(needed, amounts.pop(name))
        if containers:
            found[field] = containers
    return found


# Storage classes


def corrected_classes(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord
) -> Iterator[list[Repair]]:
    """Claims of the pod with the nearest storage class, or as their template is now; those of several
    claims as one change, since none of them is enough."""
    found: list[list[Repair]] = []
    for name in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, name, pod.namespace)
        wrong = str(((raw or {}).get("spec") or {}).get("storageClassName") or "")
        known = missing_class(snapshot, wrong)
        if raw is None or known is None:
            continue
        if (again := made_again(snapshot, subject, raw)) is not None:
            bound = bound_at_once(snapshot, pod, name, again.objects)
            found.append([repair(again.where, "ReplaceClaim", [*again.objects, *bound])])
        else:
            nearest_ones = nearest(wrong, known)
            found.append(
                [_reclassed(snapshot, subject, pod, raw, wrong, near) for near in nearest_ones]
            )
    if len(found) == 1:
        yield found[0]
    elif found and all(found):
        text = " and ".join(dict.fromkeys(each[0].text for each in found))
        objects = [change for each in found for change in each[0].change.objects]
        yield [repair(text, "ReplaceClaim", objects)]


def _reclassed(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, raw: Raw, wrong: str, near: str
) -> Repair:
    """The claim with another storage class. If volumes of that class are made at once, it has one
    then."""
    where, objects = revised_claim(
        snapshot, subject, raw, lambda spec: {**spec, "storageClassName": near}
    )
    bound = bound_at_once(snapshot, pod, raw["metadata"]["name"], objects)
    text = f"use the storage class {near} instead of {wrong} {where}"
    return repair(text, "ReplaceClaim", [*objects, *bound])

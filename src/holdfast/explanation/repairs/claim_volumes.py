"""Volumes for a PersistentVolumeClaim that is not bound: why those of its class do not suit it, and the
size with which one would."""

import copy
from collections.abc import Iterator
from contextlib import suppress

from holdfast.api.errors import QuantityError, SelectorError
from holdfast.api.kinds import KINDS
from holdfast.api.names import HOSTNAME_LABEL, STORAGE
from holdfast.api.plurals import plural
from holdfast.api.quantity import whole
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.explanation.facts.node_labels import Labels, labels_of_nodes, similar_keys
from holdfast.explanation.repairs.claim_templates import made_again, revised_claim
from holdfast.explanation.repairs.repair import (
    CLAIM,
    RESIZE,
    STORAGE_CLASS,
    VOLUME,
    Repair,
    bound_claim,
    bound_to,
    repair,
)
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.volumes.volume_objects import (
    FILESYSTEM,
    ClaimKey,
    is_free,
    storage_of,
)
from holdfast.scheduler.managers.volumes.volume_pool import VolumeRequest, may_take, request
from holdfast.snapshot.cluster_changes import ClusterChange, applied, patch
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

CREATE_VOLUME = ("CreateVolume",)
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_CSI_DRIVER = KINDS["storage.k8s.io/v1", "CSIDriver"]
_CSI_CAPACITY = KINDS["storage.k8s.io/v1", "CSIStorageCapacity"]


def unsuitable_volumes(snapshot: ClusterSnapshot, name: str, namespace: str) -> list[str]:
    """Of each available volume of the claim's class, what keeps the claim from being bound to it: its
    size or another property, otherwise the nodes that it is accessible from."""
    claim, wanted = _request(snapshot, name, namespace)
    if claim is None or wanted is None:
        return []
    found = []
    for volume in _available(snapshot, claim):
        reason = _unsuitable(claim, wanted, volume)
        terms = volume_terms(snapshot.find(VOLUME, volume.metadata.name) or {})
        if not reason and terms:
            reason = f"needs {' and '.join(terms)}"
        if reason:
            found.append(f"{volume.metadata.name} {reason}")
    return found


def suitable_volumes(snapshot: ClusterSnapshot, name: str, namespace: str) -> list[str]:
    """The available volumes to which the claim, or another one like it, can be bound."""
    claim, wanted = _request(snapshot, name, namespace)
    if claim is None or wanted is None:
        return []
    free = (each for each in _available(snapshot, claim) if is_free(each))
    return [each.metadata.name for each in free if not _unsuitable(claim, wanted, each)]


def missing_class(snapshot: ClusterSnapshot, name: str) -> list[str] | None:
    """None if the storage class exists; otherwise the names of all there are."""
    if not name or snapshot.find(STORAGE_CLASS, name) is not None:
        return None
    return [each["metadata"]["name"] for each in snapshot.all(STORAGE_CLASS)]


def is_provisioned(snapshot: ClusterSnapshot, spec: Raw) -> bool:
    """Whether a volume is made for a claim with this spec."""
    kind = snapshot.find(STORAGE_CLASS, spec.get("storageClassName") or "") or {}
    return kind.get("provisioner") not in (None, "", NO_PROVISIONER)


def unsuitable(snapshot: ClusterSnapshot, name: str, namespace: str, volume_name: str) -> str:
    """Why no node could use the volume for the claim; empty if some could."""
    claim, wanted = _request(snapshot, name, namespace)
    volume = snapshot.cluster.volumes.volume(volume_name)
    if claim is None or wanted is None or volume is None:
        return ""
    return _unsuitable(claim, wanted, volume)


def largest_new_volume(snapshot: ClusterSnapshot, storage_class: str) -> tuple[int, str] | None:
    """The size of the largest volume that the class's driver can make on some node, as it reports its
    capacity; None if it does not report any."""
    provisioner = (snapshot.find(STORAGE_CLASS, storage_class) or {}).get("provisioner") or ""
    driver = (snapshot.find(_CSI_DRIVER, provisioner) or {}).get("spec") or {}
    if not driver.get("storageCapacity"):
        return None
    found = (0, "0")
    for raw in snapshot.all(_CSI_CAPACITY):
        text = raw.get("maximumVolumeSize") or raw.get("capacity")
        if raw.get("storageClassName") != storage_class or not text:
            continue
        with suppress(QuantityError):
            found = max(found, (whole(str(text)), str(text)))
    return found


def smaller_claim(
    snapshot: ClusterSnapshot, subject: Subject, name: str, namespace: str
) -> Repair | None:
    """The claim with the size of the largest volume that is suitable but for its size, or that can be
    made."""
    claim, wanted = _request(snapshot, name, namespace)
    raw = snapshot.find(CLAIM, name, namespace)
    if claim is None or wanted is None or raw is None:
        return None
    sizes = {
        storage_of(each.spec.capacity): str(each.spec.capacity.get(STORAGE))
        for each in _available(snapshot, claim)
        if may_take(wanted._replace(size=0), each)
    }
    if (made := largest_new_volume(snapshot, claim.spec.storage_class_name or "")) is not None:
        sizes.setdefault(*made)
    most = max(sizes, default=0)
    if not 0 < most < wanted.size or made_again(snapshot, subject, raw) is not None:
        return None

    def revise(spec: Raw) -> Raw:
        requests = {**spec["resources"]["requests"], STORAGE: sizes[most]}
        return {**spec, "resources": {**spec["resources"], "requests": requests}}

    where, objects = revised_claim(snapshot, subject, raw, revise)
    now = claim.spec.resources.requests.get(STORAGE)
    text = f"request {sizes[most]} instead of {now} {where}"
    return repair(text, "ReplaceClaim", objects, RESIZE)


def smaller_bound_claim(
    snapshot: ClusterSnapshot, subject: Subject, name: str, namespace: str
) -> Repair | None:
    """The claim with the size of the largest volume, and bound to it, as it is where claims are bound
    without regard to a pod; None if more than one volume may be bound to it."""
    smaller = smaller_claim(snapshot, subject, name, namespace)
    if smaller is None or [each.info for each in smaller.change.objects] != [CLAIM, CLAIM]:
        return None  # made from a template, for several pods
    with applied(snapshot, smaller.change.objects):
        found, raw = suitable_volumes(snapshot, name, namespace), snapshot.find(CLAIM, name, namespace)
        volume = snapshot.find(VOLUME, found[0]) if len(found) == 1 else None
    if raw is None or volume is None:
        return None
    bound = ClusterChange((), tuple(bound_to(raw, volume)))
    return smaller._replace(change=smaller.change + bound)


def volume_repairs(snapshot: ClusterSnapshot, pod: PodRecord) -> Iterator[Repair]:
    """Volumes for the pod's claims that find none, or smaller claims."""
    unbound = [
        claim.key.name
        for claim in snapshot.cluster.volumes.wanted(pod.cls).claims
        if (raw := snapshot.find(CLAIM, claim.key.name, pod.namespace)) is not None
        and not (raw.get("spec") or {}).get("volumeName")
    ]
    for storage_class in dict.fromkeys(_class_of(snapshot, name, pod.namespace) for name in unbound):
        yield from _other_topologies(snapshot, storage_class)
    several = [unbound] if len(unbound) > 1 else []
    for names in (*([name] for name in unbound), *several):
        objects = [each for name in names for each in bound_claim(snapshot, name, pod.namespace)]
        text = f"create {plural(len(names), 'a volume for claim', 'volumes for claims')}"
        yield repair(f"{text} {', '.join(names)}", *CREATE_VOLUME, objects)
    for name in unbound:
        raw = snapshot.find(CLAIM, name, pod.namespace)
        again = made_again(snapshot, Subject.of(pod), raw) if raw is not None else None
        if again is not None:
            yield repair(again.where, "ReplaceClaim", again.objects)
        if (smaller := smaller_claim(snapshot, Subject.of(pod), name, pod.namespace)) is not None:
            yield smaller


def _class_of(snapshot: ClusterSnapshot, name: str, namespace: str) -> str:
    spec = (snapshot.find(CLAIM, name, namespace) or {}).get("spec") or {}
    return spec.get("storageClassName") or ""


def _other_topologies(snapshot: ClusterSnapshot, name: str) -> Iterator[Repair]:
    """The storage class with the nearest values that nodes have, in place of those that none has."""
    raw, there = snapshot.find(STORAGE_CLASS, name), labels_of_nodes(snapshot)
    terms = copy.deepcopy((raw or {}).get("allowedTopologies") or [])
    texts = []
    for each in (e for term in terms for e in term.get("matchLabelExpressions") or ()):
        values = list(each.get("values") or ())
        if there.get(each.get("key")) and not any(value in there[each["key"]] for value in values):
            near = {value: nearest(value, there[each["key"]]) for value in values}
            each["values"] = list(dict.fromkeys(found[0] if found else v for v, found in near.items()))
            texts += [f"{found[0]} instead of {value}" for value, found in near.items() if found]
    if raw is not None and texts:
        where = f"allowedTopologies of StorageClass {name} (immutable: delete and create it again)"
        body = {"allowedTopologies": terms}
        yield repair(
            f"allow {', '.join(texts)} in {where}", "CorrectTopology", [patch(STORAGE_CLASS, raw, body)]
        )


def unknown_values(there: Labels, each: Raw) -> str:
    """` (no node has the label zone)`: why no node meets an expression of allowed topologies; empty if
    some may."""
    key, values = each.get("key") or "", each.get("values") or ()
    if key not in there:
        return f" (no node has the label {key}{did_you_mean(key, similar_keys(key, there))})"
    if any(value in there[key] for value in values):
        return ""
    hint = next((hint for value in values if (hint := did_you_mean(value, there[key]))), "")
    return f" (no node is there{hint})"


def volume_terms(volume: Raw) -> list[str]:
    """What the node affinity of a volume requires."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
    return [
        f"{each.get('key')} {each.get('operator')} ({', '.join(each.get('values') or ())})"
        for term in required.get("nodeSelectorTerms") or ()
        for each in term.get("matchExpressions") or ()
    ]


def nodes_gone(snapshot: ClusterSnapshot, volume: Raw) -> list[str]:
    """The nodes on which alone a volume can be used, if none of them exists any more."""
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
    terms = [term.get("matchExpressions") or () for term in required.get("nodeSelectorTerms") or ()]
    places = [
        [each for each in term if each.get("key") == HOSTNAME_LABEL and each.get("operator") == "In"]
        for term in terms
    ]
    if not places or not all(places):
        return []
    names = sorted({name for term in places for each in term for name in each.get("values") or ()})
    there = labels_of_nodes(snapshot).get(HOSTNAME_LABEL) or ()
    return names if not any(name in there for name in names) else []


def _request(
    snapshot: ClusterSnapshot, name: str, namespace: str
) -> tuple[PersistentVolumeClaim | None, VolumeRequest | None]:
    claim = snapshot.cluster.volumes.claim(ClaimKey(namespace, name))
    try:
        return claim, request(claim) if claim is not None else None
    except SelectorError:
        return claim, None


def _available(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
    """The volumes of the claim's class that no other claim has."""
    kind, meta = claim.spec.storage_class_name or "", claim.metadata
    volumes = snapshot.cluster.volumes
    own = {each.metadata.name for each in volumes.volumes_of_claim(ClaimKey(meta.namespace, meta.name))}
    for raw in snapshot.all(VOLUME):
        volume = volumes.volume(raw["metadata"]["name"])
        if volume is None or (volume.spec.storage_class_name or "") != kind:
            continue
        if is_free(volume) or volume.metadata.name in own:
            yield volume


def _unsuitable(claim: PersistentVolumeClaim, wanted: VolumeRequest, volume: PersistentVolume) -> str:
    """Why no node could use the volume for the claim; empty if some could."""
    spec = volume.spec
    if storage_of(spec.capacity) < wanted.size:
        size = claim.spec.resources.requests.get(STORAGE)
        return f"has {spec.capacity.get(STORAGE) or 'no size'}, less than the {size} requested"
    if (spec.volume_mode or FILESYSTEM) != wanted.volume_mode:
        return f"has volumeMode {spec.volume_mode or FILESYSTEM}, not {wanted.volume_mode}"
    if not wanted.modes.issubset(spec.access_modes):
        lacking = sorted(wanted.modes - set(spec.access_modes))
        return f"has access mode {', '.join(spec.access_modes) or 'none'}, not {', '.join(lacking)}"
    if wanted.selector is not None and not wanted.selector.matches(volume.metadata.labels):
        return "does not have the labels of the claim's selector"
    if not may_take(wanted, volume):
        return "has another volumeAttributesClassName"
    return ""

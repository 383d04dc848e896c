"""Changes of objects that may help a pod or reservation, and how they are made: in the pod, in the pods
of its job that are like it, and in the template of its workload. Whether a change helps is for `advice`
to find out."""

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import NamedTuple

from holdfast.api.kinds import KINDS
from holdfast.api.names import MIGRATION_JOB
from holdfast.api.plurals import plural
from holdfast.explanation.facts.other_pods import siblings
from holdfast.explanation.facts.pod_owners import IMMUTABLE, as_written, workload_of
from holdfast.explanation.facts.replaced_pods import released_holds
from holdfast.explanation.repairs.kept_pods import keeps_pods
from holdfast.explanation.repairs.pod_sizes import Sizes
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_changes import (
    PATCH,
    ClusterChange,
    ObjectChange,
    create,
    patch,
)
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, ClusterSnapshot

Edit = Callable[[Raw], Raw]
"""Returns the merge patch for a pod's spec."""


class Repair(NamedTuple):
    text: str
    change: ClusterChange
    cost: int
    sizes: Sizes = MappingProxyType({})
    """The requests that it changes, if it changes nothing else, and smaller ones help as well."""
    exact_sizes: Sizes = MappingProxyType({})
    """The requests that it changes, if they must be exactly these."""
    limits: Sizes = MappingProxyType({})
    """The limits that it changes, if it changes nothing else."""
    parts: tuple["Repair", ...] = ()
    """Several changes of which it was made, in their order."""

    @property
    def resized(self) -> Sizes:
        return self.sizes or self.exact_sizes


_ROLLED_OUT = ("Deployment", "DaemonSet", "StatefulSet")
_KUEUE = "kueue.x-k8s.io/"
"""The prefix of scheduling gates that Kueue sets, and removes on admission."""
WAIT, CONFIGURE, RESIZE, DELETE_RESERVATION, EVICT = range(5)
"""The costs of changes, cheapest first."""


def repair(text: str, action: str, objects: list[ObjectChange], cost: int = CONFIGURE) -> Repair:
    return Repair(text, ClusterChange((action,), tuple(objects)), cost)


# Editing the pods


def spec_changes(snapshot: ClusterSnapshot, subject: Subject, edit: Edit) -> list[ObjectChange]:
    """Patches of the spec of the pod, and of all waiting pods of its job that are like it; for a
    reservation, of its template. `edit` returns the patch for a spec."""
    if subject.info is RESERVATION:
        raw = subject.raw(snapshot)
        template = (raw.get("spec") or {}).get("template") or {}
        body = {"spec": {"template": {"spec": edit(template.get("spec") or {})}}}
        return [patch(RESERVATION, raw, body)]
    found: dict[str, ObjectChange] = {}
    pods = []
    for raw in _alike(snapshot, subject):
        spec = raw.get("spec") or {}
        workload = workload_of(snapshot, raw)
        if workload is not None:
            template = {"spec": edit(workload.pod_spec or as_written(spec))}
            found[workload.name] = workload.change(template)
        pods.append(patch(POD, raw, {"spec": edit(spec)}, follows=workload is not None))
    return [*released_holds(snapshot, pods), *found.values(), *pods]


def edits_migration(snapshot: ClusterSnapshot, change: ObjectChange) -> bool:
    """Whether the template of a migration's reservation is changed. The pod that should use it is made
    from the template of its workload, and would not fit it: it would be evicted and stay pending."""
    if change.info is not RESERVATION or change.operation != PATCH or "spec" not in change.body:
        return False
    raw = snapshot.find(RESERVATION, change.name) or {}
    return MIGRATION_JOB in ((raw.get("metadata") or {}).get("labels") or {})


def remove_gates(snapshot: ClusterSnapshot, pods: list[PodRecord]) -> Repair:
    """The pods, or reservations, without their scheduling gates. Unlike most of a pod's spec, these can
    be removed from an existing pod."""
    gates = dict.fromkeys(gate for pod in pods for gate in pod.gates)
    own = [gate for gate in gates if not gate.startswith(_KUEUE)]
    whom = few([f"{pod.namespace}/{pod.name}" for pod in pods], 3)
    texts = (
        [f"remove the scheduling {plural(len(own), 'gate')} {', '.join(own)} of {whom}"] if own else []
    )
    if any(gate.startswith(_KUEUE) for gate in gates):
        texts.append(f"have Kueue admit {whom} (see its Workload)")
    body: Raw = {"spec": {"schedulingGates": None}}
    objects = []
    for subject in map(Subject.of, pods):
        raw = subject.raw(snapshot)
        change = {"spec": {"template": body}} if subject.info is RESERVATION else body
        objects.append(patch(subject.info, raw, change))
    return repair(" and ".join(texts), "RemoveGates", objects)


def template_without_gates(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord
) -> Repair | None:
    """The template of the pod's workload without scheduling gates; None if it has none, so that
    something else sets them on each pod."""
    workload = workload_of(snapshot, subject.raw(snapshot)) if subject.info is POD else None
    if workload is None:
        return None
    known = workload.pod_spec
    if not known and workload.info.kind in ("Job", "CronJob"):  # schedulers do not read these
        known = subject.raw(snapshot)["spec"]
    given = [each["name"] for each in known.get("schedulingGates") or ()]
    own = [gate for gate in pod.gates if gate in given and not gate.startswith(_KUEUE)]
    if not own:
        return None
    objects = spec_changes(snapshot, subject, lambda spec: {"schedulingGates": None})
    text = f"remove the scheduling {plural(len(own), 'gate')} {', '.join(own)}"
    return repair(text, "RemoveGates", objects)


def gates_text(pods: list[PodRecord]) -> str:
    """`a, b`, and who removes those of Kueue."""
    gates = list(dict.fromkeys(gate for pod in pods for gate in pod.gates))
    of_kueue = [gate for gate in gates if gate.startswith(_KUEUE)]
    which = f"{few(of_kueue)} is " if len(of_kueue) < len(gates) else ""
    note = f" ({which}removed by Kueue on admission)" if of_kueue else ""
    return f"{', '.join(gates)}{note}"


def metadata_changes(snapshot: ClusterSnapshot, subject: Subject, body: Raw) -> list[ObjectChange]:
    """Patches of the pod's metadata, and of pods of its job that are like it; if the template of its
    workload cannot be changed, of all pending pods."""
    if subject.info is RESERVATION:
        return [patch(RESERVATION, subject.raw(snapshot), {"metadata": body})]
    pods = list(_alike(snapshot, subject))
    if any(_is_immutable(snapshot, raw) for raw in pods):
        others = (each.raw(snapshot) for each in siblings(snapshot, subject))
        pods += [raw for raw in others if not raw["spec"].get("nodeName")]
    workloads = {
        each.name: each.change({"metadata": body})
        for raw in pods
        if (each := workload_of(snapshot, raw)) is not None and each.info.kind not in IMMUTABLE
    }
    edits = [patch(POD, raw, {"metadata": body}, follows=_is_replaced(snapshot, raw)) for raw in pods]
    return [*workloads.values(), *edits]


def _is_replaced(snapshot: ClusterSnapshot, raw: Raw) -> bool:
    """Whether the pod's controller replaces it when the template changes: it need not be changed, and
    it may be gone by then."""
    workload = workload_of(snapshot, raw)
    is_rolled_out = workload is not None and workload.info.kind in _ROLLED_OUT
    return is_rolled_out and not keeps_pods(snapshot, raw)


def _is_immutable(snapshot: ClusterSnapshot, raw: Raw) -> bool:
    """Whether the pod is of a workload whose template cannot be changed."""
    workload = workload_of(snapshot, raw)
    return workload is not None and workload.info.kind in IMMUTABLE


def _alike(snapshot: ClusterSnapshot, subject: Subject) -> Iterator[Raw]:
    pod = subject.record(snapshot)
    job = snapshot.cluster.jobs.of(pod) if pod is not None else None
    pods = [pod] if job is None or pod is None else _alike_in(snapshot, job, pod)
    for each in pods:
        if each is not None and each.reservation is None:
            raw = snapshot.find(POD, each.name, each.namespace)
            if raw is not None:
                yield raw


def _alike_in(snapshot: ClusterSnapshot, job: Job, pod: PodRecord) -> list[PodRecord]:
    """The waiting members of its job that are like the pod. Those with holds have classes of their own,
    since each is the owner of another one."""
    holds = snapshot.cluster.reservations.starvation_holds

    def spec(each: PodRecord) -> Raw | None:
        raw = snapshot.find(POD, each.name, each.namespace)
        return raw["spec"] if raw is not None else None

    def is_alike(each: PodRecord) -> bool:
        if each.cls is pod.cls:
            return True
        return holds.of(pod) is not None and holds.of(each) is not None and spec(each) == spec(pod)

    return [each for each in job.waiting() if is_alike(each)]


# Objects that do not exist


CLAIM = KINDS["v1", "PersistentVolumeClaim"]
VOLUME = KINDS["v1", "PersistentVolume"]
STORAGE_CLASS = KINDS["storage.k8s.io/v1", "StorageClass"]
_COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}


def bound_claim(
    snapshot: ClusterSnapshot, name: str, namespace: str, to: str = "", spec: Raw | None = None
) -> list[ObjectChange]:
    """The claim, created with this spec if it does not exist, bound to a new volume that every node can
    use. The volume names the claim without its uid, which is not known before the claim is created:
    the volume controller adds it."""
    raw = snapshot.find(CLAIM, name, namespace)
    known = (raw or {}).get("spec") or spec or {}
    uid = ((raw or {}).get("metadata") or {}).get("uid") or f"claim-{name}"
    size = ((known.get("resources") or {}).get("requests") or {}).get("storage", "1Gi")
    modes = known.get("accessModes") or ["ReadWriteOnce"]
    class_name = known.get("storageClassName") or ""
    volume_name = to or f"volume-for-{namespace}-{name}"
    reference = {"kind": "PersistentVolumeClaim", "name": name, "namespace": namespace}
    volume: Raw = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name, "uid": f"volume-{uid}"},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": modes,
            "storageClassName": class_name,
            "claimRef": reference,
            "hostPath": {"path": f"/var/lib/{volume_name}"},
        },
        "status": {"phase": "Available"},
    }
    claim: Raw = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
            "storageClassName": class_name,
        },
        "status": {"phase": "Pending"},
    }
    created = [create(CLAIM, claim)] if raw is None else []
    return [*created, create(VOLUME, volume), *bound_to(raw or claim, volume)]


def bound_to(claim: Raw, volume: Raw) -> list[ObjectChange]:
    """What the volume controller does to bind a claim to a volume."""
    metadata = claim["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace") or ""
    reference = {"kind": CLAIM.kind, "name": name, "namespace": namespace}
    reference["uid"] = metadata.get("uid") or f"claim-{name}"
    taken = {"spec": {"claimRef": reference}, "status": {"phase": "Bound"}}
    body: Raw = {
        "metadata": {"annotations": _COMPLETED},
        "spec": {"volumeName": volume["metadata"]["name"]},
        "status": {"phase": "Bound"},
    }
    return [patch(VOLUME, volume, taken, follows=True), patch(CLAIM, claim, body, follows=True)]

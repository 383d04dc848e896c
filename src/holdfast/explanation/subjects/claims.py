"""Explains a PersistentVolumeClaim or a ResourceClaim by the pods that use it, or a pod that would."""

from dataclasses import replace

from holdfast.explanation.advice.misspellings import served_schedulers
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.repairs.claim_volumes import nodes_gone, volume_terms
from holdfast.explanation.repairs.repair import CLAIM, STORAGE_CLASS, VOLUME
from holdfast.explanation.report import Advice, Report, few
from holdfast.explanation.subjects.pods import explain_pod
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey
from holdfast.snapshot.cluster_changes import applied, create
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_DEVICES = 8
_MADE_UP = "pod-that-uses-"
"""The prefix of the name of a pod that is tried for a claim without pods."""


def explain_volume_claim(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    """A PersistentVolumeClaim."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    report = _report(raw, str(status.get("phase") or "Pending"))
    name, users = metadata["name"], _users(snapshot, raw)
    bound_to = str(spec.get("volumeName") or "")
    volume = snapshot.find(VOLUME, bound_to) if bound_to else None
    if report.phase == "Lost" or (report.phase == "Bound" and volume is None):
        report.summary = f"Its volume {bound_to} no longer exists, so no pod can use it."
        report.details.append("its data is lost, unless the volume is created again for the same disk")
        found = _report_on_user(snapshot, raw, users, _volume_pod(name))
        report.advice += _advice_of(found) if found is not None else []
    elif report.phase == "Bound" and volume is not None:
        size = ((volume.get("spec") or {}).get("capacity") or {}).get("storage")
        report.summary = f"It is bound to volume {bound_to}{f' ({size})' if size else ''}."
        if terms := volume_terms(volume):
            report.details.append(f"{bound_to} needs a node with {' and '.join(terms)}")
        if gone := nodes_gone(snapshot, volume):
            report.details.append(f"it can only be used on nodes that no longer exist: {few(gone)}")
    else:
        report.summary = "It is not bound to a volume."
        if bound_to:
            report.summary = f"It names volume {bound_to}, and is not bound to it."
        _explain_unbound(snapshot, raw, users, _volume_pod(name), report)
    _note_users(raw, users, report)
    return report


def explain_device_claim(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    """A ResourceClaim."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    allocation, users = status.get("allocation"), _users(snapshot, raw)
    report = _report(raw, "Allocated" if allocation else "Pending")
    key = ResourceClaimKey(metadata.get("namespace") or "", metadata["name"])
    holder = snapshot.cluster.claims.held.get(key)
    if allocation:
        results = (allocation.get("devices") or {}).get("results") or ()
        devices = [f"{each.get('driver')}/{each.get('pool')}/{each.get('device')}" for each in results]
        report.summary = f"It is allocated: {few(devices, _DEVICES) or 'no devices'}."
        if holder is not None:
            report.summary += f" It holds them for reservation {holder.name}."
        elif not status.get("reservedFor"):
            report.summary += " No pod uses it, but its devices count as in use."
    else:
        report.summary = "It is not allocated."
        _explain_unbound(snapshot, raw, users, _device_pod(metadata["name"]), report)
    _note_users(raw, users, report)
    return report


def _report(raw: Raw, phase: str) -> Report:
    metadata = raw["metadata"]
    return Report(f"{raw['kind']} {metadata.get('namespace') or ''}/{metadata['name']}", phase, "")


def _note_users(raw: Raw, users: list[PodRecord], report: Report) -> None:
    metadata = raw["metadata"]
    placed = [pod for pod in users if pod.row >= 0]
    if placed:
        report.details.append(f"pods on nodes that use it: {pods_text(placed)}")
    if metadata.get("deletionTimestamp"):
        kept = ", ".join(str(each) for each in metadata.get("finalizers") or ())
        report.phase = "Terminating"
        report.summary += f" It is being deleted{f'; finalizers keep it: {kept}' if kept else ''}."


def _users(snapshot: ClusterSnapshot, claim: Raw) -> list[PodRecord]:
    """The pods that use a claim, those without a node first."""
    metadata = claim["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace") or ""
    names = _volume_claims if claim["kind"] == CLAIM.kind else _device_claims
    found = [
        record
        for raw in snapshot.all(POD)
        if (raw["metadata"].get("namespace") or "") == namespace
        and name in names(raw)
        and (record := snapshot.cluster.pod(namespace, raw["metadata"]["name"])) is not None
    ]
    return sorted(found, key=lambda pod: (pod.row >= 0, pod.name))


def _volume_claims(pod: Raw) -> list[str]:
    found = []
    for each in (pod.get("spec") or {}).get("volumes") or ():
        if each.get("ephemeral"):
            found.append(f"{pod['metadata']['name']}-{each.get('name')}")
        elif each.get("persistentVolumeClaim"):
            found.append(str(each["persistentVolumeClaim"].get("claimName")))
    return found


def _device_claims(pod: Raw) -> list[str]:
    named = [
        each.get("resourceClaimName") for each in (pod.get("spec") or {}).get("resourceClaims") or ()
    ]
    status = pod.get("status") or {}
    named += [each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()]
    named.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    return [str(each) for each in named if each]


# Not bound or allocated


def _explain_unbound(
    snapshot: ClusterSnapshot, raw: Raw, users: list[PodRecord], spec: Raw, report: Report
) -> None:
    """By the first pending pod that uses the claim; without one, by a pod that would and that needs
    nothing else."""
    pending = [pod for pod in users if pod.row < 0]
    found = _report_on_user(snapshot, raw, users, spec)
    if found is None:
        return
    if pending:
        more = f" (and {len(pending) - 1} more)" if len(pending) > 1 else ""
        report.summary += f" Pod {pending[0].namespace}/{pending[0].name}{more} waits: {found.summary}"
        _take(found, report)
        return
    if found.ranked:
        report.summary += f" {_once_used(snapshot, raw)}"
        return
    report.summary += f" No pod uses it, and one that did would be pending: {found.summary}"
    _take(found, report)


def _report_on_user(
    snapshot: ClusterSnapshot, raw: Raw, users: list[PodRecord], spec: Raw
) -> Report | None:
    """The report on the first pending pod that uses the claim; without pods, on one that would, and
    needs nothing else. None if all have nodes."""
    pending = [pod for pod in users if pod.row < 0]
    if not pending:
        return _with_made_up_pod(snapshot, raw, spec) if not users else None
    pod = snapshot.find(POD, pending[0].name, pending[0].namespace)
    assert pod is not None, pending[0].ref
    return explain_pod(snapshot, pod)


def _take(found: Report, report: Report) -> None:
    report.details += found.details
    report.advice += _advice_of(found)
    report.nodes, report.would_say = found.nodes, found.would_say


def _advice_of(found: Report) -> list[Advice]:
    """The advice for a pod that uses the claim, without changes of a pod that was made up."""
    return [
        replace(each, text=each.text.replace("; then it fits", "; then a pod that uses it fits"))
        for each in found.advice
        if not any(
            change["kind"] == "Pod" and change["name"].startswith(_MADE_UP)
            for change in each.change["objects"]
        )
    ]


def _once_used(snapshot: ClusterSnapshot, raw: Raw) -> str:
    if raw["kind"] != CLAIM.kind:
        return "No pod uses it: it is allocated when a pod that does is scheduled."
    kind = (raw.get("spec") or {}).get("storageClassName") or ""
    mode = (snapshot.find(STORAGE_CLASS, kind) or {}).get("volumeBindingMode")
    why = f"its StorageClass {kind} binds claims" if mode == "WaitForFirstConsumer" else "it is bound"
    return f"No pod uses it: {why} when a pod that uses it is scheduled."


def _with_made_up_pod(snapshot: ClusterSnapshot, claim: Raw, spec: Raw) -> Report:
    """The report on a pod that needs nothing but the claim, and tolerates all taints."""
    metadata = claim["metadata"]
    name = f"{_MADE_UP}{metadata['name']}"
    pod: Raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": metadata.get("namespace") or "", "uid": name},
        "spec": {
            "schedulerName": served_schedulers(snapshot.scheduler)[0],
            "containers": [{"name": "main"}],
            "tolerations": [{"operator": "Exists"}],
            **spec,
        },
        "status": {"phase": "Pending"},
    }
    before, snapshot.is_hypothetical = snapshot.is_hypothetical, True
    try:
        with applied(snapshot, [create(POD, pod)]):
            return explain_pod(snapshot, pod)
    finally:
        snapshot.is_hypothetical = before


def _volume_pod(name: str) -> Raw:
    return {"volumes": [{"name": "claimed", "persistentVolumeClaim": {"claimName": name}}]}


def _device_pod(name: str) -> Raw:
    return {
        "resourceClaims": [{"name": "claimed", "resourceClaimName": name}],
        "containers": [{"name": "main", "resources": {"claims": [{"name": "claimed"}]}}],
    }

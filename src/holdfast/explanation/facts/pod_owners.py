"""The workloads that pods were made from, and where their templates are changed."""

from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ClusterChange, ObjectChange, patch
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

IMMUTABLE = ("Job",)
"""Workloads whose template cannot be changed."""
_TEMPLATED = {
    kind: KINDS["batch/v1" if kind == "Job" else "apps/v1", kind]
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")
}
CRON_JOB = KINDS["batch/v1", "CronJob"]
_TOKEN = "kube-api-access-"
"""The prefix of the volume that the API server adds to every pod."""


class PodOwner(NamedTuple):
    """The object whose template a pod was made from."""

    info: KindInfo
    name: str
    namespace: str
    pod_spec: Raw
    """The spec of its template; empty if it is not known."""

    def change(self, template: Raw) -> ObjectChange:
        """A merge patch of its template."""
        raw = {"metadata": {"name": self.name, "namespace": self.namespace}}
        spec: Raw = {"template": template}
        return patch(self.info, raw, {"spec": _of_jobs(spec) if self.info is CRON_JOB else spec})


def workload_of(snapshot: ClusterSnapshot, raw: Raw) -> PodOwner | None:
    """The Deployment, CronJob or other workload that made the pod; None if nothing did that has a
    template."""
    owner, namespace = controller_of(raw), raw["metadata"].get("namespace") or ""
    info = _TEMPLATED.get(owner.get("kind") or "")
    if info is None or info.api_version != owner.get("apiVersion"):
        return None
    found = snapshot.find(info, owner["name"], namespace)
    spec = _spec_of_pods(found)
    above = controller_of(found or {"metadata": {}})
    if info.kind == "ReplicaSet" and above.get("kind") == "Deployment":
        deployment = _TEMPLATED["Deployment"]
        known = snapshot.find(deployment, above["name"], namespace)
        return PodOwner(deployment, above["name"], namespace, _spec_of_pods(known) or spec)
    if info.kind == "Job" and above.get("kind") == CRON_JOB.kind:
        known = snapshot.find(CRON_JOB, above["name"], namespace)
        jobs = ((known or {}).get("spec") or {}).get("jobTemplate")
        return PodOwner(CRON_JOB, above["name"], namespace, _spec_of_pods(jobs) or spec)
    return PodOwner(info, owner["name"], namespace, spec)


def _spec_of_pods(workload: Raw | None) -> Raw:
    """The spec in the template of a workload; empty if it is not known."""
    template = ((workload or {}).get("spec") or {}).get("template") or {}
    found: Raw = template.get("spec") or {}
    return found


def _of_jobs(spec: Raw) -> Raw:
    """The spec of a CronJob with this spec of its Jobs."""
    return {"jobTemplate": {"spec": spec}}


def controller_of(raw: Raw) -> Raw:
    """The reference to the controller of an object; empty if it has none."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((each for each in owners if each.get("controller")), {})


def same_workload(snapshot: ClusterSnapshot, pod: PodRecord) -> set[str]:
    """The UIDs of what controls the pods of its workload: of a Deployment, all its ReplicaSets."""
    own = {each.uid for each in pod.cls.owners if each.controller}
    sets = snapshot.all(_TEMPLATED["ReplicaSet"]) if own else []
    above = {controller_of(raw).get("uid") for raw in sets if raw["metadata"].get("uid") in own} - {
        None
    }
    siblings = [raw for raw in sets if above and controller_of(raw).get("uid") in above]
    return own | {str(raw["metadata"].get("uid")) for raw in siblings}


def as_written(spec: Raw) -> Raw:
    """A pod's spec without the mounts that the API server adds."""
    found = dict(spec)
    for field in ("containers", "initContainers"):
        if field in spec:
            found[field] = [
                {
                    **each,
                    "volumeMounts": [
                        mount
                        for mount in each["volumeMounts"]
                        if not str(mount.get("name")).startswith(_TOKEN)
                    ],
                }
                if each.get("volumeMounts")
                else each
                for each in spec[field]
            ]
    return found


def workload_text(change: ClusterChange) -> str:
    """`, in the template of Deployment web`; empty if no template is changed."""
    for each in change.objects:
        if each.info is CRON_JOB and "jobTemplate" in each.body.get("spec", {}):
            return f", in the template of CronJob {each.name}"
        if each.info is not _TEMPLATED.get(each.info.kind) or "template" not in each.body.get(
            "spec", {}
        ):
            continue
        again = f" (delete the {each.info.kind} and create it again)"
        more = again if each.info.kind in IMMUTABLE else ""
        return f", in the template of {each.info.kind} {each.name}{more}"
    return ""

"""Writes `src/holdfast/machinery/schema/data/kubernetes.json.gz`, the shapes of Kubernetes' own kinds.

The facts come from the package `kubernetes-validate` (`pip install kubernetes-validate`): which fields
a type has, of what type each is, what lists are merged by. Descriptions are left out; where that
package is installed beside Holdfast, `kubectl explain` gets them from there. What no schema says (which
fields are written even when they are empty) is in `kubernetes_wire.txt`.

    python tools/kubernetes_schemas.py
"""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VERSION = "1.37"
WIRE = Path(__file__).with_name("kubernetes_wire.txt")
TARGET = Path(__file__).parent.parent / "src/holdfast/machinery/schema/data/kubernetes.json.gz"

CORE = "io.k8s.api.core.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
CORE_KINDS = """Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume
    PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service
    ServiceAccount"""
OTHER_KINDS = """admissionregistration.v1.MutatingWebhookConfiguration
    admissionregistration.v1.ValidatingAdmissionPolicy
    admissionregistration.v1.ValidatingAdmissionPolicyBinding
    admissionregistration.v1.ValidatingWebhookConfiguration
    autoscaling.v1.HorizontalPodAutoscaler autoscaling.v2.HorizontalPodAutoscaler
    apps.v1.ControllerRevision apps.v1.DaemonSet apps.v1.Deployment apps.v1.ReplicaSet
    apps.v1.StatefulSet authentication.v1.SelfSubjectReview authentication.v1.TokenRequest
    authentication.v1.TokenReview authorization.v1.LocalSubjectAccessReview
    authorization.v1.SelfSubjectAccessReview authorization.v1.SelfSubjectRulesReview
    authorization.v1.SubjectAccessReview autoscaling.v1.Scale batch.v1.CronJob batch.v1.Job
    coordination.v1.Lease discovery.v1.EndpointSlice events.v1.Event networking.v1.Ingress
    networking.v1.IngressClass networking.v1.NetworkPolicy node.v1.RuntimeClass policy.v1.Eviction
    policy.v1.PodDisruptionBudget rbac.v1.ClusterRole rbac.v1.ClusterRoleBinding rbac.v1.Role
    rbac.v1.RoleBinding resource.v1.DeviceClass resource.v1.DeviceTaintRule resource.v1.ResourceClaim
    resource.v1.ResourceClaimTemplate resource.v1.ResourceSlice scheduling.v1.PriorityClass
    scheduling.v1beta1.PodGroup scheduling.v1beta1.Workload
    storage.v1.CSIDriver storage.v1.CSINode
    storage.v1.CSIStorageCapacity storage.v1.StorageClass storage.v1.VolumeAttachment"""
ROOTS = (
    *(CORE + kind for kind in CORE_KINDS.split()),
    *(f"io.k8s.api.{name}" for name in OTHER_KINDS.split()),
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    *(META + name for name in ("ListMeta", "Status", "DeleteOptions")),
)

# Said by hand: the package gives these two as alternatives, and leaves defaults out.
SPECIAL: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string", "format": "quantity"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
}
DEFAULTS: dict[tuple[str, str], Any] = {
    (CORE + "ContainerPort", "protocol"): "TCP",
    (CORE + "ServicePort", "protocol"): "TCP",
}
KEPT = (
    "type",
    "format",
    "required",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
)


def facts(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema says, without its prose; nulls are allowed everywhere, so that goes unsaid."""
    kept = {key: schema[key] for key in KEPT if key in schema}
    if "$ref" in schema:
        return {**kept, "$ref": schema["$ref"].rpartition("/")[2]}
    if isinstance(kept.get("type"), list):
        kept["type"] = next(name for name in kept["type"] if name != "null")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            kept[key] = facts(schema[key])
    if "properties" in schema:
        kept["properties"] = {name: facts(part) for name, part in schema["properties"].items()}
    return kept


def references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for item in schema for name in references(item)}
    if not isinstance(schema, dict):
        return set()
    found = {name for value in schema.values() for name in references(value)}
    if isinstance(schema.get("$ref"), str):
        found.add(schema["$ref"].rpartition("/")[2])
    return found


def own_kinds(schema: dict[str, Any]) -> dict[str, Any]:
    """Types every group claims (DeleteOptions) are said once."""
    kinds = schema.get("x-kubernetes-group-version-kind", [])
    if len(kinds) > 1:
        schema = {**schema, "x-kubernetes-group-version-kind": [k for k in kinds if not k["group"]][:1]}
    return schema


def main() -> None:
    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        raise SystemExit("kubernetes-validate is not installed")
    folder = Path(package.origin).parent / "kubernetes-json-schema"
    whole = json.loads((folder / f"v{VERSION}.0-local" / "_definitions.json").read_text())["$defs"]
    chosen: dict[str, dict[str, Any]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in chosen:
            chosen[name] = SPECIAL.get(name) or own_kinds(facts(whole[name]))
            waiting.extend(references(chosen[name]))
    for line in WIRE.read_text().splitlines():
        name, colon, fields = line.partition(": ")
        if colon and not line.startswith("#"):
            always, _, zeroes = fields.partition("|")
            chosen[f"io.k8s.{name}"].update(always=always.split(), zeroes=zeroes.split())
    for (name, field), default in DEFAULTS.items():
        chosen[name]["properties"][field]["default"] = default
    text = json.dumps({"version": VERSION, "definitions": dict(sorted(chosen.items()))}, sort_keys=True)
    TARGET.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{len(chosen)} types, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()

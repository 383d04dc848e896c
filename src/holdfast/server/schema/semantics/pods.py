"""The spec of a pod, and of a template that pods are made from."""

from __future__ import annotations

from typing import Any

from holdfast.server.schema.problems import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    REQUIRED,
    Problem,
    field_problem,
    not_supported,
)
from holdfast.server.schema.semantics.containers import check_containers
from holdfast.server.schema.semantics.names import dns_label, dns_subdomain, label_key
from holdfast.server.schema.semantics.placement import (
    check_affinity,
    check_spread,
    check_tolerations,
)
from holdfast.server.schema.semantics.resources import check_requirements
from holdfast.server.schema.semantics.selectors import check_labels

Found = list[Problem]
Part = dict[str, Any]

_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    "preemptionPolicy": ("PreemptLowerPriority", "Never"),
}
_NAMES = (
    ("serviceAccountName", dns_subdomain),
    ("nodeName", dns_subdomain),
    ("hostname", dns_label),
    ("subdomain", dns_label),
    ("priorityClassName", dns_subdomain),
    ("runtimeClassName", dns_subdomain),
)


def check_pod(found: Found, raw: Part) -> None:
    spec = raw.get("spec") or {}
    check_pod_spec(found, spec, "spec", template=False)
    if spec.get("nodeName") and spec.get("schedulingGates"):
        why = "cannot be set until all schedulingGates have been cleared"
        found.append(field_problem(FORBIDDEN, "spec.nodeName", detail=why))


def check_pod_spec(found: Found, spec: Part, path: str, template: bool = True) -> None:
    volumes = _check_volumes(found, spec.get("volumes") or [], f"{path}.volumes")
    check_containers(found, spec, path, volumes)
    if spec.get("resources"):
        check_requirements(found, spec["resources"], f"{path}.resources", whole_pod=True)
    if spec.get("hostNetwork"):
        _check_host_network(found, spec, path, template)
    for field in ("restartPolicy", "dnsPolicy"):
        if spec.get(field) not in _CHOICES[field]:
            found.append(not_supported(f"{path}.{field}", spec.get(field), _CHOICES[field]))
    if "nodeSelector" in spec:
        check_labels(found, spec["nodeSelector"], f"{path}.nodeSelector")
    if "affinity" in spec:
        check_affinity(found, spec["affinity"], f"{path}.affinity")
    if "schedulingGates" in spec:
        _check_gates(found, spec["schedulingGates"], f"{path}.schedulingGates")
    if "topologySpreadConstraints" in spec:
        where = f"{path}.topologySpreadConstraints"
        check_spread(found, spec["topologySpreadConstraints"], where)
    for field, complaints in _NAMES:
        name = spec.get(field)
        if name:
            where = f"{path}.{field}"
            found.extend(field_problem(INVALID, where, name, said) for said in complaints(name))
    _check_deadline(found, spec, path)
    if "tolerations" in spec:
        check_tolerations(found, spec["tolerations"], f"{path}.tolerations")
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy not in _CHOICES["preemptionPolicy"]:
        where = f"{path}.preemptionPolicy"
        found.append(not_supported(where, policy, _CHOICES["preemptionPolicy"]))
    if spec.get("overhead"):
        check_requirements(found, {"limits": spec["overhead"]}, f"{path}.overhead")


def check_template(found: Found, template: Part | None, path: str) -> None:
    """What the labels of a template must match is for the workload to say."""
    template = template or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    check_labels(found, labels, f"{path}.labels")
    check_pod_spec(found, template.get("spec") or {}, f"{path}.spec")


def _check_volumes(found: Found, volumes: list[Part], path: str) -> set[str]:
    names: set[str] = set()
    for i, volume in enumerate(volumes):
        where = f"{path}[{i}]"
        name = volume.get("name", "")
        before = len(found)
        _check_source(found, volume, where)
        if not name:
            found.append(field_problem(REQUIRED, f"{where}.name"))
        else:
            place = f"{where}.name"
            found.extend(field_problem(INVALID, place, name, said) for said in dns_label(name))
        if name in names:
            found.append(field_problem(DUPLICATE, f"{where}.name", name))
        if len(found) == before:
            names.add(name)
    return names


def _check_source(found: Found, volume: Part, where: str) -> None:
    sources = [field for field in volume if field != "name"]
    for extra in sources[1:]:
        why = "may not specify more than 1 volume type"
        found.append(field_problem(FORBIDDEN, f"{where}.{extra}", detail=why))
    for source, field in (
        ("persistentVolumeClaim", "claimName"),
        ("configMap", "name"),
        ("secret", "secretName"),
        ("hostPath", "path"),
    ):
        part = volume.get(source)
        if part is not None and source == sources[0] and not part.get(field):
            found.append(field_problem(REQUIRED, f"{where}.{source}.{field}"))


def _check_host_network(found: Found, spec: Part, path: str, template: bool) -> None:
    for i, container in enumerate(spec.get("containers") or ()):
        for j, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort", 0)
            if host != port.get("containerPort", 0) and not (template and not host):
                why = "must match `containerPort` when `hostNetwork` is true"
                where = f"{path}.containers[{i}].ports[{j}].hostPort"
                found.append(field_problem(INVALID, where, host, why))


def _check_gates(found: Found, gates: list[Part], path: str) -> None:
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        name = gate.get("name", "")
        where = f"{path}[{i}]"
        found.extend(field_problem(INVALID, where, name, said) for said in label_key(name))
        if name in seen:
            found.append(field_problem(DUPLICATE, where, name))
        seen.add(name)


def _check_deadline(found: Found, spec: Part, path: str) -> None:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        why = "must be between 1 and 2147483647, inclusive"
        found.append(field_problem(INVALID, f"{path}.activeDeadlineSeconds", deadline, why))

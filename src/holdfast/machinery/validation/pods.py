"""Pod specs: containers, volumes, scheduling gates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.api.name_rules import dns_label, dns_subdomain, env_name, label_key, port_name
from holdfast.machinery.schema.field_errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    REQUIRED,
    FieldError,
    field_problem,
    not_supported,
)
from holdfast.machinery.validation.core_kinds import check_requirements
from holdfast.machinery.validation.metadata import check_labels
from holdfast.machinery.validation.placement import check_affinity, check_spread, check_tolerations
from holdfast.machinery.validation.resource_claims import check_container_claims, check_pod_claims

Found = list[FieldError]
Part = dict[str, Any]

_PULL = ("Always", "IfNotPresent", "Never")
_RESTART = ("Always", "Never", "OnFailure")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MESSAGES = ("File", "FallbackToLogsOnError")
_HANDLERS = ("exec", "grpc", "httpGet", "tcpSocket")
_NO_SOURCE = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` "
    "or `fileKeyRef`"
)
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"


def check_containers(found: Found, spec: Part, path: str, volumes: set[str]) -> None:
    containers = spec.get("containers") or []
    if not containers:
        found.append(field_problem(REQUIRED, f"{path}.containers"))
    names: set[str] = set()
    for i, container in enumerate(containers):
        where = f"{path}.containers[{i}]"
        _check_container(found, container, where, volumes)
        _check_unique(found, container, where, names)
        _check_probes(found, container, where)
        policy = container.get("restartPolicy")
        if policy is not None and policy not in _RESTART:
            found.append(not_supported(f"{where}.restartPolicy", policy, _RESTART))
    _check_host_ports(found, containers, f"{path}.containers")
    for i, container in enumerate(spec.get("initContainers") or ()):
        where = f"{path}.initContainers[{i}]"
        _check_container(found, container, where, volumes)
        policy = container.get("restartPolicy")
        if policy is not None and policy not in _RESTART:
            found.append(not_supported(f"{where}.restartPolicy", policy, _RESTART))
        _check_unique(found, container, where, names)
        if policy == "Always":
            _check_probes(found, container, where)
            continue
        for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if field in container:
                found.append(field_problem(FORBIDDEN, f"{where}.{field}", detail=_ONLY_SIDECARS))


def _check_unique(found: Found, container: Part, where: str, names: set[str]) -> None:
    name = container.get("name", "")
    if name in names:
        found.append(field_problem(DUPLICATE, f"{where}.name", name))
    names.add(name)


def _check_container(found: Found, container: Part, where: str, volumes: set[str]) -> None:
    name = container.get("name", "")
    if not name:
        found.append(field_problem(REQUIRED, f"{where}.name"))
    else:
        place = f"{where}.name"
        found.extend(field_problem(INVALID, place, name, message) for message in dns_label(name))
    image = container.get("image") or ""
    if not image:
        found.append(field_problem(REQUIRED, f"{where}.image"))
    elif image != image.strip():
        why = "must not have leading or trailing whitespace"
        found.append(field_problem(INVALID, f"{where}.image", image, why))
    policy = container.get("terminationMessagePolicy")
    if policy not in _MESSAGES:
        found.append(not_supported(f"{where}.terminationMessagePolicy", policy, _MESSAGES))
    if "ports" in container:
        _check_ports(found, container["ports"], f"{where}.ports")
    for i, variable in enumerate(container.get("env") or ()):
        _check_variable(found, variable, f"{where}.env[{i}]")
    if "volumeMounts" in container:
        _check_mounts(found, container["volumeMounts"], f"{where}.volumeMounts", volumes)
    pull = container.get("imagePullPolicy")
    if pull not in _PULL:
        found.append(not_supported(f"{where}.imagePullPolicy", pull, _PULL))
    resources = container.get("resources")
    if resources:
        check_requirements(found, resources, f"{where}.resources")


def _check_ports(found: Found, ports: list[Part], path: str) -> None:
    names: set[str] = set()
    for i, port in enumerate(ports):
        where = f"{path}[{i}]"
        name = port.get("name", "")
        if name:
            message = port_name(name)
            found.extend(field_problem(INVALID, f"{where}.name", name, each) for each in message)
            if not message and name in names:
                found.append(field_problem(DUPLICATE, f"{where}.name", name))
            names.add(name)
        number = port.get("containerPort", 0)
        if not number:
            found.append(field_problem(REQUIRED, f"{where}.containerPort"))
        for field, value in (("containerPort", number), ("hostPort", port.get("hostPort", 0))):
            if value and not 1 <= value <= 65535:
                why = "must be between 1 and 65535, inclusive"
                found.append(field_problem(INVALID, f"{where}.{field}", value, why))
        protocol = port.get("protocol")
        if protocol not in _PROTOCOLS:
            found.append(not_supported(f"{where}.protocol", protocol, _PROTOCOLS))


def _check_variable(found: Found, variable: Part, where: str) -> None:
    name = variable.get("name", "")
    if not name:
        found.append(field_problem(REQUIRED, f"{where}.name"))
    found.extend(field_problem(INVALID, f"{where}.name", name, message) for message in env_name(name))
    source = variable.get("valueFrom")
    if source is None:
        return
    place = f"{where}.valueFrom"
    if len(source) > 1:
        why = "may not have more than one field specified at a time"
        found.append(field_problem(INVALID, place, "", why))
    elif not source:
        found.append(field_problem(INVALID, place, "", _NO_SOURCE))
    if variable.get("value") and source:
        why = "may not be specified when `value` is not empty"
        found.append(field_problem(INVALID, place, "", why))


def _check_mounts(found: Found, mounts: list[Part], path: str, volumes: set[str]) -> None:
    places: set[str] = set()
    for i, mount in enumerate(mounts):
        where = f"{path}[{i}]"
        name, place = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            found.append(field_problem(REQUIRED, f"{where}.name"))
        if name not in volumes:
            found.append(field_problem(NOT_FOUND, f"{where}.name", name))
        if not place:
            found.append(field_problem(REQUIRED, f"{where}.mountPath"))
        if place in places:
            found.append(field_problem(INVALID, f"{where}.mountPath", place, "must be unique"))
        places.add(place)


def _check_probes(found: Found, container: Part, where: str) -> None:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        handlers = [handler for handler in _HANDLERS if probe.get(handler) is not None]
        if not handlers:
            why = "must specify a handler type"
            found.append(field_problem(REQUIRED, f"{where}.{name}", detail=why))
        for extra in handlers[1:]:
            why = "may not specify more than 1 handler type"
            found.append(field_problem(FORBIDDEN, f"{where}.{name}.{extra}", detail=why))
        for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"):
            value = probe.get(field, 0)
            if value < 0:
                why = "must be greater than or equal to 0"
                found.append(field_problem(INVALID, f"{where}.{name}.{field}", value, why))
        if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
            value = probe["successThreshold"]
            found.append(field_problem(INVALID, f"{where}.{name}.successThreshold", value, "must be 1"))


def _check_host_ports(found: Found, containers: list[Part], path: str) -> None:
    taken: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            name = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if name in taken:
                found.append(field_problem(DUPLICATE, f"{path}[{i}].ports[{j}].hostPort", name))
            taken.add(name)


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


def check_pod_spec(
    found: Found, spec: Part, path: str, template: bool = True, claims: Iterable[str] = ()
) -> None:
    """`claims` are the names of volumes that pods get besides those of the spec."""
    volumes = _check_volumes(found, spec.get("volumes") or [], f"{path}.volumes")
    volumes.update(claims)
    check_containers(found, spec, path, volumes)
    _check_claims(found, spec, path)
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
            found.extend(field_problem(INVALID, where, name, message) for message in complaints(name))
    group = spec.get("schedulingGroup")
    if group is not None:
        _check_group(found, group, f"{path}.schedulingGroup.podGroupName")
    _check_deadline(found, spec, path)
    if "tolerations" in spec:
        check_tolerations(found, spec["tolerations"], f"{path}.tolerations")
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy not in _CHOICES["preemptionPolicy"]:
        where = f"{path}.preemptionPolicy"
        found.append(not_supported(where, policy, _CHOICES["preemptionPolicy"]))
    if spec.get("overhead"):
        check_requirements(found, {"limits": spec["overhead"]}, f"{path}.overhead")


def _check_claims(found: Found, spec: Part, path: str) -> None:
    names = check_pod_claims(found, spec.get("resourceClaims") or [], f"{path}.resourceClaims")
    for part in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(part) or ()):
            claims = (container.get("resources") or {}).get("claims")
            if claims:
                where = f"{path}.{part}[{i}].resources.claims"
                check_container_claims(found, claims, where, names)


def check_template(found: Found, template: Part | None, path: str, claims: Iterable[str] = ()) -> None:
    """Whether a selector matches the labels of the template is checked by `strategies.workloads`.
    `claims` are the names of volumes that pods get besides those of the template."""
    template = template or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    check_labels(found, labels, f"{path}.labels")
    check_pod_spec(found, template.get("spec") or {}, f"{path}.spec", claims=claims)


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
            found.extend(field_problem(INVALID, place, name, message) for message in dns_label(name))
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
        found.extend(field_problem(INVALID, where, name, message) for message in label_key(name))
        if name in seen:
            found.append(field_problem(DUPLICATE, where, name))
        seen.add(name)


def _check_group(found: Found, group: Part, path: str) -> None:
    name = group.get("podGroupName")
    if name is None:
        found.append(field_problem(INVALID, path, None, "must specify one of: `podGroupName`"))
    else:
        found.extend(field_problem(INVALID, path, name, message) for message in dns_subdomain(name))


def _check_deadline(found: Found, spec: Part, path: str) -> None:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        why = "must be between 1 and 2147483647, inclusive"
        found.append(field_problem(INVALID, f"{path}.activeDeadlineSeconds", deadline, why))

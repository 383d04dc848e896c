"""What an API server would refuse in a pod's spec.

Also used for the template of a reservation, which is a pod spec that need not be runnable:
its containers need no names, and it may hold pod slots.
"""

from __future__ import annotations

from holdfast.api.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)
from holdfast.api.errors import QuantityError
from holdfast.api.meta import LabelSelector, ResourceList
from holdfast.api.name_rules import (
    dns_label_problem,
    dns_subdomain_problem,
    label_value_problem,
    qualified_name_problem,
)
from holdfast.api.pod import Container, PodSpec, ResourceRequirements
from holdfast.api.quantity import NANO, parse
from holdfast.api.resources import is_extended, is_hugepages, is_native, is_pod_level
from holdfast.api.selectors import as_integer, field_requirement, node_requirement, requirement
from holdfast.machinery.error_list import ErrorList

_MAX_INT32 = 2**31 - 1
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("", "Equal", "Exists", "Lt", "Gt")
_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def check_pod_spec(
    findings: ErrorList, spec: PodSpec, path: str = "spec", *, template: bool = False
) -> None:
    if not spec.containers and not (template and _asks_as_a_whole(spec)):
        findings.add(f"{path}.containers", "is required: at least one container")
    _check_containers(findings, spec, path, template)
    _check_host_ports(findings, spec, path)
    if spec.resources is not None:
        check_requirements(findings, spec.resources, f"{path}.resources")
        for part in ("requests", "limits"):
            for name in getattr(spec.resources, part):
                if not is_pod_level(name):
                    findings.add(
                        f"{path}.resources.{part}[{name}]",
                        "only cpu, memory and hugepages can be given for a pod as a whole",
                    )
    check_resource_list(findings, spec.overhead, f"{path}.overhead")
    for key, value in spec.node_selector.items():
        findings.check(f"{path}.nodeSelector[{key}]", qualified_name_problem(key))
        findings.check(f"{path}.nodeSelector[{key}]", label_value_problem(value))
    check_affinity(findings, spec.affinity, f"{path}.affinity")
    check_spread(findings, spec.topology_spread_constraints, f"{path}.topologySpreadConstraints")
    check_tolerations(findings, spec.tolerations, f"{path}.tolerations")
    _check_gates(findings, spec, path)
    _check_volumes(findings, spec, path)
    if spec.node_name:
        findings.check(f"{path}.nodeName", dns_subdomain_problem(spec.node_name))
    if spec.preemption_policy is not None:
        policies = ("PreemptLowerPriority", "Never")
        findings.one_of(f"{path}.preemptionPolicy", spec.preemption_policy, policies)
    findings.one_of(f"{path}.restartPolicy", spec.restart_policy, ("", "Always", "OnFailure", "Never"))
    findings.within(f"{path}.priority", spec.priority, -_MAX_INT32 - 1, _MAX_INT32)
    findings.within(
        f"{path}.terminationGracePeriodSeconds",
        spec.termination_grace_period_seconds,
        0,
        2**63 - 1,
    )
    findings.within(f"{path}.activeDeadlineSeconds", spec.active_deadline_seconds, 1, _MAX_INT32)


def check_resource_list(findings: ErrorList, resources: ResourceList, path: str) -> dict[str, int]:
    """Nano units of the well-formed entries; the others are reported."""
    nanos: dict[str, int] = {}
    for name, quantity in resources.items():
        where = f"{path}[{name}]"
        findings.check(where, qualified_name_problem(name))
        try:
            nano = parse(quantity)
        except QuantityError as error:
            findings.add(where, str(error))
            continue
        if nano < 0:
            findings.add(where, f"must not be negative: {quantity}")
        elif is_extended(name) and nano % NANO:
            findings.add(where, f"must be a whole number: {quantity}")
        else:
            nanos[name] = nano
    return nanos


def check_requirements(findings: ErrorList, resources: ResourceRequirements, path: str) -> None:
    requests = check_resource_list(findings, resources.requests, f"{path}.requests")
    limits = check_resource_list(findings, resources.limits, f"{path}.limits")
    for name, nano in requests.items():
        if name in limits and nano > limits[name]:
            findings.add(
                f"{path}.requests[{name}]",
                f"{resources.requests[name]} is more than the limit {resources.limits[name]}",
            )


def check_tolerations(findings: ErrorList, tolerations: list[Toleration], path: str) -> None:
    for i, toleration in enumerate(tolerations):
        where = f"{path}[{i}]"
        if toleration.key:
            findings.check(f"{where}.key", qualified_name_problem(toleration.key))
        elif toleration.operator != "Exists":
            findings.add(f"{where}.operator", "must be Exists when there is no key")
        findings.one_of(f"{where}.operator", toleration.operator, _OPERATORS)
        findings.one_of(f"{where}.effect", toleration.effect, _EFFECTS)
        if toleration.operator == "Exists" and toleration.value:
            findings.add(f"{where}.value", "must be empty when the operator is Exists")
        if toleration.operator in ("Lt", "Gt") and as_integer(toleration.value) is None:
            findings.add(f"{where}.value", f"must be an integer for {toleration.operator}")
        findings.check(f"{where}.value", label_value_problem(toleration.value))
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            findings.add(f"{where}.effect", "must be NoExecute when tolerationSeconds is set")


def _asks_as_a_whole(spec: PodSpec) -> bool:
    resources = spec.resources
    return resources is not None and bool(resources.requests or resources.limits)


def _check_containers(findings: ErrorList, spec: PodSpec, path: str, template: bool) -> None:
    seen: set[str] = set()
    for field, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for i, container in enumerate(containers):
            where = f"{path}.{field}[{i}]"
            if container.name:
                findings.check(f"{where}.name", dns_label_problem(container.name))
                if container.name in seen:
                    findings.add(f"{where}.name", f"duplicate name {container.name!r}")
                seen.add(container.name)
            elif not template:
                findings.add(f"{where}.name", "is required")
            _check_container(findings, container, where, template)


def _check_container(findings: ErrorList, container: Container, where: str, template: bool) -> None:
    check_requirements(findings, container.resources, f"{where}.resources")
    for part in ("requests", "limits"):
        for name in getattr(container.resources, part):
            known = name in _CONTAINER_RESOURCES or is_hugepages(name) or not is_native(name)
            if not known and not (template and name == "pods") and "/" not in name:
                findings.add(
                    f"{where}.resources.{part}[{name}]",
                    "must be cpu, memory, ephemeral-storage, hugepages-* or a name with a domain",
                )
    if container.restart_policy is not None:
        policies = ("Always", "OnFailure", "Never")
        findings.one_of(f"{where}.restartPolicy", container.restart_policy, policies)
    for i, port in enumerate(container.ports):
        there = f"{where}.ports[{i}]"
        if not port.container_port:
            findings.add(f"{there}.containerPort", "is required")
        findings.within(f"{there}.containerPort", port.container_port, 0, 65535)
        findings.within(f"{there}.hostPort", port.host_port, 0, 65535)
        findings.one_of(f"{there}.protocol", port.protocol, ("TCP", "UDP", "SCTP"))


def _check_host_ports(findings: ErrorList, spec: PodSpec, path: str) -> None:
    """Two containers of one pod cannot both have a port of the host."""
    taken: set[tuple[str, str, int]] = set()
    for i, container in enumerate(spec.containers):
        for j, port in enumerate(container.ports):
            where = f"{path}.containers[{i}].ports[{j}].hostPort"
            if spec.host_network and port.host_port not in (0, port.container_port):
                findings.add(where, "must equal containerPort when hostNetwork is set")
            if not port.host_port:
                continue
            key = (port.host_ip, port.protocol, port.host_port)
            if key in taken:
                findings.add(where, f"duplicate host port {port.host_port}/{port.protocol}")
            taken.add(key)


def _check_gates(findings: ErrorList, spec: PodSpec, path: str) -> None:
    names = [gate.name for gate in spec.scheduling_gates]
    for i, name in enumerate(names):
        where = f"{path}.schedulingGates[{i}].name"
        findings.check(where, qualified_name_problem(name))
        if name in names[:i]:
            findings.add(where, f"duplicate gate {name!r}")
    if names and spec.node_name:
        findings.add(f"{path}.nodeName", "must not be set while there are scheduling gates")


def _check_volumes(findings: ErrorList, spec: PodSpec, path: str) -> None:
    seen: set[str] = set()
    for i, volume in enumerate(spec.volumes):
        where = f"{path}.volumes[{i}]"
        if not volume.name:
            findings.add(f"{where}.name", "is required")
        elif volume.name in seen:
            findings.add(f"{where}.name", f"duplicate name {volume.name!r}")
        seen.add(volume.name)
        claim = volume.persistent_volume_claim
        if claim is not None and not claim.claim_name:
            findings.add(f"{where}.persistentVolumeClaim.claimName", "is required")


# What an API server would refuse in affinity and spread constraints.


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def check_label_selector(findings: ErrorList, selector: LabelSelector | None, path: str) -> None:
    if selector is None:
        return
    for key, value in selector.match_labels.items():
        with findings.at(f"{path}.matchLabels[{key}]"):
            requirement(key, "In", [value])
    for i, expression in enumerate(selector.match_expressions):
        with findings.at(f"{path}.matchExpressions[{i}]"):
            requirement(expression.key, expression.operator, expression.values)


def check_node_term(findings: ErrorList, term: NodeSelectorTerm, path: str) -> None:
    for i, expression in enumerate(term.match_expressions):
        with findings.at(f"{path}.matchExpressions[{i}]"):
            if expression.operator in ("Gt", "Lt") and len(expression.values) == 1:
                # An API server takes any label for a number; such a term selects nothing.
                requirement(expression.key, "In", expression.values)
            else:
                node_requirement(expression)
    for i, expression in enumerate(term.match_fields):
        with findings.at(f"{path}.matchFields[{i}]"):
            field_requirement(expression)


def check_affinity(findings: ErrorList, affinity: Affinity | None, path: str) -> None:
    if affinity is None:
        return
    if affinity.node_affinity is not None:
        _check_node_affinity(findings, affinity.node_affinity, f"{path}.nodeAffinity")
    if affinity.pod_affinity is not None:
        _check_pod_affinity(findings, affinity.pod_affinity, f"{path}.podAffinity")
    if affinity.pod_anti_affinity is not None:
        _check_pod_affinity(findings, affinity.pod_anti_affinity, f"{path}.podAntiAffinity")


def check_spread(findings: ErrorList, constraints: list[TopologySpreadConstraint], path: str) -> None:
    seen: set[tuple[str, str]] = set()
    for i, constraint in enumerate(constraints):
        where = f"{path}[{i}]"
        if constraint.max_skew <= 0:
            findings.add(f"{where}.maxSkew", f"must be greater than 0, not {constraint.max_skew}")
        _check_topology_key(findings, constraint.topology_key, where)
        findings.one_of(
            f"{where}.whenUnsatisfiable",
            constraint.when_unsatisfiable,
            ("DoNotSchedule", "ScheduleAnyway"),
        )
        if constraint.min_domains is not None:
            if constraint.min_domains <= 0:
                findings.add(f"{where}.minDomains", "must be greater than 0")
            if constraint.when_unsatisfiable != "DoNotSchedule":
                findings.add(f"{where}.minDomains", "can only be used with DoNotSchedule")
        for field, policy in (
            ("nodeAffinityPolicy", constraint.node_affinity_policy),
            ("nodeTaintsPolicy", constraint.node_taints_policy),
        ):
            if policy is not None:
                findings.one_of(f"{where}.{field}", policy, ("Honor", "Ignore"))
        check_label_selector(findings, constraint.label_selector, f"{where}.labelSelector")
        if constraint.match_label_keys and constraint.label_selector is None:
            findings.add(f"{where}.matchLabelKeys", "needs a labelSelector beside it")
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            findings.add(where, f"duplicate constraint for {pair[0]!r} with {pair[1]}")
        seen.add(pair)


def _check_node_affinity(findings: ErrorList, affinity: NodeAffinity, path: str) -> None:
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        terms = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not required.node_selector_terms:
            findings.add(terms, "is required: at least one term")
        for i, term in enumerate(required.node_selector_terms):
            check_node_term(findings, term, f"{terms}[{i}]")
    for i, preferred in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        where = f"{path}.{_PREFERRED}[{i}]"
        findings.within(f"{where}.weight", preferred.weight, 1, 100)
        check_node_term(findings, preferred.preference, f"{where}.preference")


def _check_pod_affinity(findings: ErrorList, affinity: PodAffinity, path: str) -> None:
    for i, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
        _check_pod_term(findings, term, f"{path}.{_REQUIRED}[{i}]")
    for i, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        where = f"{path}.{_PREFERRED}[{i}]"
        findings.within(f"{where}.weight", weighted.weight, 1, 100)
        _check_pod_term(findings, weighted.pod_affinity_term, f"{where}.podAffinityTerm")


def _check_pod_term(findings: ErrorList, term: PodAffinityTerm, path: str) -> None:
    _check_topology_key(findings, term.topology_key, path)
    check_label_selector(findings, term.label_selector, f"{path}.labelSelector")
    check_label_selector(findings, term.namespace_selector, f"{path}.namespaceSelector")
    for i, namespace in enumerate(term.namespaces):
        findings.check(f"{path}.namespaces[{i}]", dns_label_problem(namespace))
    for field, keys in (
        ("matchLabelKeys", term.match_label_keys),
        ("mismatchLabelKeys", term.mismatch_label_keys),
    ):
        if keys and term.label_selector is None:
            findings.add(f"{path}.{field}", "needs a labelSelector beside it")
        for i, key in enumerate(keys):
            findings.check(f"{path}.{field}[{i}]", qualified_name_problem(key))


def _check_topology_key(findings: ErrorList, key: str, path: str) -> None:
    if not key:
        findings.add(f"{path}.topologyKey", "is required")
    else:
        findings.check(f"{path}.topologyKey", qualified_name_problem(key))

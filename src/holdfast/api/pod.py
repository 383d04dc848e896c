"""Pods, as the scheduler sees them."""

from __future__ import annotations

from msgspec import field

from holdfast.api.affinity import Affinity, Toleration, TopologySpreadConstraint
from holdfast.api.meta import Condition, FrozenStruct, Object, ResourceList, Struct
from holdfast.api.storage import Volume


class ContainerResourceClaim(FrozenStruct, frozen=True):
    """An entry of the pod's `resource_claims`, and which of its requests the container uses (all if
    empty)."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Struct):
    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)
    claims: tuple[ContainerResourceClaim, ...] = ()


class ContainerPort(Struct):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"
    name: str = ""


class ContainerRestartRule(Struct):
    action: str = ""


class Container(Struct):
    """Also an init container; with `restart_policy: Always` that is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] = field(default_factory=list)
    restart_policy: str | None = None
    restart_policy_rules: list[ContainerRestartRule] = field(default_factory=list)


class PodSchedulingGate(Struct):
    name: str = ""


class PodResourceClaim(Struct):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(FrozenStruct, frozen=True):
    """The PodGroup of `scheduling.k8s.io` that the pod belongs to."""

    pod_group_name: str | None = None


class PodSpec(Struct):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] = field(default_factory=list)
    overhead: ResourceList = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: list[Toleration] = field(default_factory=list)
    topology_spread_constraints: list[TopologySpreadConstraint] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    scheduling_gates: list[PodSchedulingGate] = field(default_factory=list)
    host_network: bool = False
    host_ipc: bool = field(default=False, name="hostIPC")
    host_pid: bool = field(default=False, name="hostPID")
    host_users: bool | None = None
    runtime_class_name: str | None = None
    service_account_name: str = ""
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    resource_claims: list[PodResourceClaim] = field(default_factory=list)
    scheduling_group: PodSchedulingGroup | None = None


class ContainerStatus(Struct):
    """`resources` is in effect on the node; `allocated_resources` is what the kubelet agreed to."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = field(default_factory=dict)


class PodResourceClaimStatus(FrozenStruct, frozen=True):
    """The claim created for the entry of `resource_claims` with this name; None if none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(FrozenStruct, frozen=True):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(FrozenStruct, frozen=True):
    """The claim that serves the pod's requests for extended resources."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class PodStatus(Struct):
    phase: str = ""
    conditions: list[Condition] = field(default_factory=list)
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] = field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = field(default_factory=list)
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    qos_class: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(Object):
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

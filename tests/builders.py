"""Fluent builders of objects, so that a test reads as a table of rows.

    make_pod("p1").cpu("1").memory("1Gi").label("app", "web").on("n1").obj()
    make_node("n1").allocatable(cpu="4", memory="8Gi", pods=110).label("zone", "a").obj()

`.raw()` gives a fresh dict as a user would write it, `.obj()` the typed view of it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Generic, Self, TypeVar, cast

from holdfast.api import names
from holdfast.api.decode import decode
from holdfast.api.jobs import PodGroup, Queue
from holdfast.api.meta import Object
from holdfast.api.node import Node
from holdfast.api.pod import Pod
from holdfast.api.quantity import Quantity
from holdfast.api.reservation import Reservation

CREATED = "2026-01-01T00:00:00Z"

T = TypeVar("T", bound=Object)
Raw = dict[str, Any]


class Builder(Generic[T]):
    """Metadata, which everything has."""

    api_version = ""
    kind = ""

    def __init__(self, name: str) -> None:
        self._raw: Raw = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED},
        }

    def raw(self) -> Raw:
        return deepcopy(self._raw)

    def obj(self) -> T:
        return cast("T", decode(self.raw()))

    def namespace(self, namespace: str) -> Self:
        return self._meta("namespace", namespace)

    def uid(self, uid: str) -> Self:
        return self._meta("uid", uid)

    def created(self, time: str) -> Self:
        return self._meta("creationTimestamp", time)

    def deleted(self, time: str = CREATED) -> Self:
        return self._meta("deletionTimestamp", time)

    def resource_version(self, version: str | int) -> Self:
        return self._meta("resourceVersion", str(version))

    def label(self, key: str, value: str = "") -> Self:
        self._metadata.setdefault("labels", {})[key] = value
        return self

    def labels(self, labels: dict[str, str]) -> Self:
        self._metadata.setdefault("labels", {}).update(labels)
        return self

    def annotation(self, key: str, value: str) -> Self:
        self._metadata.setdefault("annotations", {})[key] = value
        return self

    def owned_by(
        self,
        kind: str,
        name: str,
        *,
        api_version: str = "apps/v1",
        uid: str = "",
        controller: bool = True,
    ) -> Self:
        self._metadata.setdefault("ownerReferences", []).append(
            {
                "apiVersion": api_version,
                "kind": kind,
                "name": name,
                "uid": uid or f"uid-{name}",
                "controller": controller,
            }
        )
        return self

    @property
    def _metadata(self) -> Raw:
        return cast("Raw", self._raw["metadata"])

    @property
    def raw_metadata(self) -> Raw:
        """The metadata as written so far, likewise."""
        return self._metadata

    @property
    def raw_spec(self) -> Raw:
        """The spec as written so far, for what no method writes."""
        return self._spec

    @property
    def _spec(self) -> Raw:
        return cast("Raw", self._raw.setdefault("spec", {}))

    @property
    def _status(self) -> Raw:
        return cast("Raw", self._raw.setdefault("status", {}))

    def _meta(self, key: str, value: Any) -> Self:
        self._metadata[key] = value
        return self

    def _set(self, key: str, value: Any) -> Self:
        self._spec[key] = value
        return self

    def _append(self, key: str, value: Any) -> Self:
        self._spec.setdefault(key, []).append(value)
        return self

    def spec(self, **fields: Any) -> Self:
        """Any field by its camelCase name, for what has no method of its own."""
        self._spec.update(fields)
        return self

    def status(self, **fields: Any) -> Self:
        self._status.update(fields)
        return self

    def condition(self, type: str, status: str, reason: str = "", message: str = "") -> Self:
        self._status.setdefault("conditions", []).append(
            {"type": type, "status": status, "reason": reason, "message": message}
        )
        return self


class PodBuilder(Builder[Pod]):
    """One container named `c` takes requests, limits, ports and image; more by `container`."""

    api_version = "v1"
    kind = "Pod"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._metadata["namespace"] = names.DEFAULT_NAMESPACE
        self._spec["containers"] = [{"name": "c", "image": "pause"}]

    @property
    def _main(self) -> Raw:
        return cast("Raw", self._spec["containers"][0])

    def requests(self, requests: dict[str, Quantity]) -> Self:
        self._main.setdefault("resources", {}).setdefault("requests", {}).update(requests)
        return self

    def limits(self, limits: dict[str, Quantity]) -> Self:
        self._main.setdefault("resources", {}).setdefault("limits", {}).update(limits)
        return self

    def cpu(self, quantity: Quantity) -> Self:
        return self.requests({"cpu": quantity})

    def memory(self, quantity: Quantity) -> Self:
        return self.requests({"memory": quantity})

    def container(
        self,
        requests: dict[str, Quantity] | None = None,
        limits: dict[str, Quantity] | None = None,
        *,
        name: str = "",
        image: str = "pause",
    ) -> Self:
        name = name or f"c{len(self._spec['containers'])}"
        return self._append("containers", _container(name, image, requests, limits))

    def init_container(
        self,
        requests: dict[str, Quantity] | None = None,
        limits: dict[str, Quantity] | None = None,
        *,
        name: str = "",
        sidecar: bool = False,
    ) -> Self:
        name = name or f"i{len(self._spec.get('initContainers', []))}"
        container = _container(name, "pause", requests, limits)
        if sidecar:
            container["restartPolicy"] = "Always"
        return self._append("initContainers", container)

    def pod_resources(
        self,
        requests: dict[str, Quantity] | None = None,
        limits: dict[str, Quantity] | None = None,
    ) -> Self:
        return self._set("resources", {"requests": requests or {}, "limits": limits or {}})

    def overhead(self, **overhead: Quantity) -> Self:
        return self._set("overhead", overhead)

    def image(self, image: str) -> Self:
        self._main["image"] = image
        return self

    def port(self, port: int) -> Self:
        self._main.setdefault("ports", []).append({"containerPort": port})
        return self

    def host_port(self, port: int, protocol: str = "TCP", host_ip: str = "") -> Self:
        entry: Raw = {"containerPort": port, "hostPort": port, "protocol": protocol}
        if host_ip:
            entry["hostIP"] = host_ip
        self._main.setdefault("ports", []).append(entry)
        return self

    def node(self, name: str) -> Self:
        return self._set("nodeName", name)

    on = node

    def scheduler(self, name: str) -> Self:
        return self._set("schedulerName", name)

    def priority(self, priority: int) -> Self:
        return self._set("priority", priority)

    def priority_class(self, name: str) -> Self:
        return self._set("priorityClassName", name)

    def preemption_policy(self, policy: str) -> Self:
        return self._set("preemptionPolicy", policy)

    def node_selector(self, labels: dict[str, str]) -> Self:
        self._spec.setdefault("nodeSelector", {}).update(labels)
        return self

    def toleration(self, key: str = "", value: str = "", effect: str = "", operator: str = "") -> Self:
        fields = {"key": key, "value": value, "effect": effect, "operator": operator}
        return self._append("tolerations", {k: v for k, v in fields.items() if v})

    def tolerates_everything(self) -> Self:
        return self.toleration(operator="Exists")

    def node_affinity_in(self, key: str, values: list[str]) -> Self:
        return self.node_affinity(key, "In", values)

    def node_affinity(self, key: str, operator: str, values: list[str] | None = None) -> Self:
        """Adds one more alternative term with this one expression."""
        return self.node_affinity_term([_expression(key, operator, values)])

    def node_affinity_term(
        self, expressions: list[Raw] | None = None, fields: list[Raw] | None = None
    ) -> Self:
        required = self._affinity("nodeAffinity").setdefault(
            "requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []}
        )
        required["nodeSelectorTerms"].append(_term(expressions, fields))
        return self

    def prefers_node(
        self, weight: int, key: str, operator: str = "In", values: list[str] | None = None
    ) -> Self:
        self._affinity("nodeAffinity").setdefault(
            "preferredDuringSchedulingIgnoredDuringExecution", []
        ).append({"weight": weight, "preference": _term([_expression(key, operator, values)])})
        return self

    def pod_affinity(
        self,
        topology_key: str,
        match_labels: dict[str, str] | None = None,
        *,
        weight: int | None = None,
        **term: Any,
    ) -> Self:
        """Required, or preferred when there is a weight; `term` takes further fields of the API."""
        return self._pod_affinity("podAffinity", topology_key, match_labels, weight, term)

    def pod_anti_affinity(
        self,
        topology_key: str,
        match_labels: dict[str, str] | None = None,
        *,
        weight: int | None = None,
        **term: Any,
    ) -> Self:
        return self._pod_affinity("podAntiAffinity", topology_key, match_labels, weight, term)

    def spread(
        self,
        topology_key: str,
        max_skew: int = 1,
        match_labels: dict[str, str] | None = None,
        *,
        when: str = "DoNotSchedule",
        **constraint: Any,
    ) -> Self:
        return self._append(
            "topologySpreadConstraints",
            {
                "maxSkew": max_skew,
                "topologyKey": topology_key,
                "whenUnsatisfiable": when,
                "labelSelector": {"matchLabels": match_labels or {}},
                **constraint,
            },
        )

    def gate(self, name: str) -> Self:
        return self._append("schedulingGates", {"name": name})

    def volume(self, name: str, **source: Any) -> Self:
        return self._append("volumes", {"name": name, **source})

    def claim(self, claim_name: str, *, read_only: bool = False) -> Self:
        source = {"claimName": claim_name, "readOnly": read_only}
        return self.volume(claim_name, persistentVolumeClaim=source)

    def grace_period(self, seconds: int) -> Self:
        return self._set("terminationGracePeriodSeconds", seconds)

    def active_deadline(self, seconds: int) -> Self:
        return self._set("activeDeadlineSeconds", seconds)

    def phase(self, phase: str) -> Self:
        return self.status(phase=phase)

    def nominated(self, node: str) -> Self:
        return self.status(nominatedNodeName=node)

    def group(self, name: str) -> Self:
        """Member of a PodGroup."""
        return self.annotation(names.VOLCANO_GROUP_NAME_ANNOTATION, name)

    def daemon(self, name: str = "ds") -> Self:
        return self.owned_by("DaemonSet", name)

    def mirror(self) -> Self:
        return self.annotation(names.MIRROR_POD_ANNOTATION, "hash")

    def _affinity(self, kind: str) -> Raw:
        return cast("Raw", self._spec.setdefault("affinity", {}).setdefault(kind, {}))

    def _pod_affinity(
        self,
        kind: str,
        topology_key: str,
        match_labels: dict[str, str] | None,
        weight: int | None,
        extra: Raw,
    ) -> Self:
        term: Raw = {"topologyKey": topology_key}
        if match_labels is not None:
            term["labelSelector"] = {"matchLabels": match_labels}
        term.update(extra)
        if weight is None:
            self._affinity(kind).setdefault(
                "requiredDuringSchedulingIgnoredDuringExecution", []
            ).append(term)
        else:
            self._affinity(kind).setdefault(
                "preferredDuringSchedulingIgnoredDuringExecution", []
            ).append({"weight": weight, "podAffinityTerm": term})
        return self


class NodeBuilder(Builder[Node]):
    """Labelled with its hostname, as a kubelet does; 110 pods unless told otherwise."""

    api_version = "v1"
    kind = "Node"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.label(names.HOSTNAME_LABEL, name)
        self._status["allocatable"] = {"pods": "110"}
        self._status["capacity"] = {"pods": "110"}

    def allocatable(self, resources: dict[str, Quantity] | None = None, /, **more: Quantity) -> Self:
        """By keyword, or as a dict where the name is no Python name (`nvidia.com/gpu`)."""
        amounts = {**(resources or {}), **more}
        self._status["allocatable"].update(amounts)
        self._status["capacity"].update(amounts)
        return self

    capacity = allocatable

    def zone(self, zone: str) -> Self:
        return self.label(names.ZONE_LABEL, zone)

    def region(self, region: str) -> Self:
        return self.label(names.REGION_LABEL, region)

    def taint(self, key: str, value: str = "", effect: str = names.NO_SCHEDULE) -> Self:
        return self._append("taints", {"key": key, "value": value, "effect": effect})

    def unschedulable(self, value: bool = True) -> Self:
        return self._set("unschedulable", value)

    def image(self, name: str, size_bytes: int = 100 * 1024**2) -> Self:
        self._status.setdefault("images", []).append({"names": [name], "sizeBytes": size_bytes})
        return self


class ReservationBuilder(Builder[Reservation]):
    """Owned by pods labelled `app: <name>` until an owner is given."""

    api_version = names.RESERVATION_API
    kind = "Reservation"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        container: Raw = {"name": "c", "image": "pause"}
        self._spec["template"] = {"spec": {"containers": [container]}}
        self._spec["owners"] = [{"labelSelector": {"matchLabels": {"app": name}}}]
        self._default_owner = True

    def template(self, pod: PodBuilder) -> Self:
        """Reserve what this pod asks for, with its constraints."""
        raw = pod.raw()
        metadata = {k: v for k, v in raw["metadata"].items() if k in ("labels", "annotations")}
        return self._set("template", {"metadata": metadata, "spec": raw["spec"]})

    def requests(self, requests: dict[str, Quantity]) -> Self:
        container = self._spec["template"]["spec"]["containers"][0]
        container.setdefault("resources", {}).setdefault("requests", {}).update(requests)
        return self

    def cpu(self, quantity: Quantity) -> Self:
        return self.requests({"cpu": quantity})

    def memory(self, quantity: Quantity) -> Self:
        return self.requests({"memory": quantity})

    def node(self, name: str) -> Self:
        """Ask for this node; where it is says `available`."""
        self._spec["template"]["spec"]["nodeName"] = name
        return self

    def owner(self, **owner: Any) -> Self:
        """One more owner, by the API's field names: object, controller, labelSelector."""
        if self._default_owner:
            self._spec["owners"] = []
            self._default_owner = False
        return self._append("owners", owner)

    def owner_labels(self, labels: dict[str, str]) -> Self:
        return self.owner(labelSelector={"matchLabels": labels})

    def once(self, value: bool = True) -> Self:
        return self._set("allocateOnce", value)

    def reusable(self) -> Self:
        return self.once(False)

    def policy(self, policy: str) -> Self:
        return self._set("allocatePolicy", policy)

    def ttl(self, ttl: str) -> Self:
        return self._set("ttl", ttl)

    def expires(self, time: str) -> Self:
        return self._set("expires", time)

    def pre_allocation(self, value: bool = True) -> Self:
        return self._set("preAllocation", value)

    def order(self, order: int) -> Self:
        return self.label(names.RESERVATION_ORDER, str(order))

    def available(
        self,
        node: str,
        allocatable: dict[str, Quantity] | None = None,
        allocated: dict[str, Quantity] | None = None,
    ) -> Self:
        """On a node; what it holds is what its first container requests unless given."""
        if allocatable is None:
            container = self._spec["template"]["spec"]["containers"][0]
            allocatable = container.get("resources", {}).get("requests", {})
        return self.status(
            phase="Available",
            nodeName=node,
            allocatable=dict(allocatable or {}),
            allocated=dict(allocated or {}),
        )

    def phase(self, phase: str) -> Self:
        return self.status(phase=phase)


class PodGroupBuilder(Builder[PodGroup]):
    api_version = names.VOLCANO_API
    kind = "PodGroup"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._metadata["namespace"] = names.DEFAULT_NAMESPACE
        self._spec["minMember"] = 1

    def min_member(self, count: int) -> Self:
        return self._set("minMember", count)

    def queue(self, name: str) -> Self:
        return self._set("queue", name)


class QueueBuilder(Builder[Queue]):
    api_version = names.VOLCANO_API
    kind = "Queue"

    def weight(self, weight: int) -> Self:
        return self._set("weight", weight)

    def capability(self, **resources: Quantity) -> Self:
        return self._set("capability", resources)

    def deserved(self, **resources: Quantity) -> Self:
        return self._set("deserved", resources)

    def guarantee(self, **resources: Quantity) -> Self:
        return self._set("guarantee", {"resource": resources})


def make_pod(name: str) -> PodBuilder:
    return PodBuilder(name)


def make_node(name: str) -> NodeBuilder:
    return NodeBuilder(name)


def make_reservation(name: str) -> ReservationBuilder:
    return ReservationBuilder(name)


def make_pod_group(name: str) -> PodGroupBuilder:
    return PodGroupBuilder(name)


def make_queue(name: str) -> QueueBuilder:
    return QueueBuilder(name)


def _container(
    name: str,
    image: str,
    requests: dict[str, Quantity] | None,
    limits: dict[str, Quantity] | None,
) -> Raw:
    container: Raw = {"name": name, "image": image}
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {**container, "resources": resources} if resources else container


def _expression(key: str, operator: str, values: list[str] | None = None) -> Raw:
    expression: Raw = {"key": key, "operator": operator}
    return {**expression, "values": values} if values else expression


def _term(expressions: list[Raw] | None = None, fields: list[Raw] | None = None) -> Raw:
    term: Raw = {}
    if expressions:
        term["matchExpressions"] = expressions
    if fields:
        term["matchFields"] = fields
    return term


def make_namespace(name: str, labels: dict[str, str] | None = None) -> Object:
    return _other("v1", "Namespace", name, "", labels=labels)


def make_service(name: str, selector: dict[str, str] | None, namespace: str = "default") -> Object:
    return _other("v1", "Service", name, namespace, {"selector": selector})


def make_controller(
    kind: str, name: str, selector: dict[str, Any] | None, namespace: str = "default"
) -> Object:
    """A ReplicationController with a map of labels, or anything of apps/v1 with a selector."""
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return _other(version, kind, name, namespace, {"selector": selector})


def make_budget(
    name: str,
    match_labels: dict[str, str],
    allowed: int = 0,
    *,
    namespace: str = "default",
    disrupted: list[str] | None = None,
    **spec: Any,
) -> Object:
    """A PodDisruptionBudget that allows so many disruptions now."""
    status: Raw = {"disruptionsAllowed": allowed}
    if disrupted:
        status["disruptedPods"] = dict.fromkeys(disrupted, CREATED)
    selector = {"selector": {"matchLabels": match_labels}}
    return _other("policy/v1", "PodDisruptionBudget", name, namespace, {**selector, **spec}, status)


def _other(
    api_version: str,
    kind: str,
    name: str,
    namespace: str,
    spec: Raw | None = None,
    status: Raw | None = None,
    labels: dict[str, str] | None = None,
) -> Object:
    metadata: Raw = {"name": name, "uid": f"uid-{name}", "labels": labels or {}}
    if namespace:
        metadata["namespace"] = namespace
    raw: Raw = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    if spec is not None:
        raw["spec"] = spec
    if status is not None:
        raw["status"] = status
    return decode(raw)

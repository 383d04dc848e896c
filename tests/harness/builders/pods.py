"""Pods, with everything scheduling reads of them."""

from __future__ import annotations

from typing import Any, Self, cast

from harness.builders.metadata import Builder, Raw
from holdfast.api import names
from holdfast.api.pod import Pod
from holdfast.api.quantity import Quantity


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

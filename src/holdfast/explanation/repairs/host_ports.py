"""Host ports of nodes: who has those that a pod requests, and others that are free."""

import copy
from collections.abc import Iterator

from holdfast.api.plurals import plural
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.facts.own_reservations import own_entries
from holdfast.explanation.phrases import needs_more
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair, spec_changes
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.node_table import HostPort, conflict
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_LOOKED_AT = 50
_HIGHEST = 65535
_TRIED = 100
"""How many ports above the requested one are looked at."""


def port_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    for name in nodes[:_LOOKED_AT]:
        for other in _holders(snapshot, pod, row_of(snapshot, name)):
            for port in conflicting_ports(pod, other):
                text = f"host port {port.port}/{port.protocol} on {name}"
                if other.reservation is not None:
                    yield f"{text} is reserved by reservation {other.name}"
                else:
                    yield f"{text} is used by pod {other.namespace}/{other.name}"


def too_few_nodes(snapshot: ClusterSnapshot, pod: PodRecord, pods: int) -> Iterator[str]:
    """Host ports of more pods of one workload than there are nodes."""
    nodes = snapshot.cluster.nodes.count
    if pod.cls.ports and nodes < pods:
        ports = sorted({each.port for each in pod.cls.ports})
        which = plural(len(ports), "its host port", "each of its host ports")
        what = f"{which} {', '.join(map(str, ports))}"
        yield needs_more(what, "node", nodes, pods)


def conflicting_ports(pod: PodRecord, other: PodRecord) -> list[HostPort]:
    """The host ports of the other that the pod requests too."""
    return [port for port in other.cls.ports if any(conflict(port, each) for each in pod.cls.ports)]


def _holders(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[PodRecord]:
    """The pods on a row, and the reserve pods of reservations that are not the pod's own."""
    own = {entry.pod.uid for entry in own_entries(snapshot, pod, row)}
    for other in snapshot.cluster.ledger.pods.get(row, {}).values():
        if other is not pod and other.reservation is None:
            yield other
    for entry in snapshot.cluster.ledger.reservations.on(row):
        if entry.pod.uid not in own:
            yield entry.pod


def other_ports(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int) -> list[Repair]:
    """The next free host ports of a row in place of those that others have there."""
    holders = list(_holders(snapshot, pod, row))
    taken = {port for other in holders for port in conflicting_ports(pod, other)}
    wanted = {port.port for port in pod.cls.ports if any(conflict(port, each) for each in taken)}
    in_use = {port.port for other in (*holders, pod) for port in other.cls.ports}
    found: dict[int, int] = {}
    for port in sorted(wanted):
        above = range(port + 1, min(port + _TRIED, _HIGHEST) + 1)
        free = next((each for each in above if each not in in_use), None)
        if free is None:
            return []
        found[port] = free
        in_use.add(free)
    if not found:
        return []
    texts = " and ".join(f"{then} instead of {now}" for now, then in found.items())
    objects = spec_changes(snapshot, subject, lambda spec: _changed(spec, found))
    return [repair(f"use the host port {texts}", "ChangePort", objects, RESIZE)]


def _changed(spec: Raw, ports: dict[int, int]) -> Raw:
    """The containers with other host ports; with hostNetwork, container ports are the same."""
    patch: Raw = {}
    for field in ("containers", "initContainers"):
        containers = copy.deepcopy(spec.get(field) or [])
        for port in (port for each in containers for port in each.get("ports") or ()):
            now = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else 0)
            if now in ports:
                port["hostPort"] = ports[now]
                if spec.get("hostNetwork"):
                    port["containerPort"] = ports[now]
        if containers:
            patch[field] = containers
    return patch

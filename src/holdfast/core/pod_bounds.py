"""How much one pod may add to what the scheduler keeps for all of them.

A topology key, a label, a resource, a port is a column over all nodes, and is looked at often. Objects
may be large enough for thousands of them; no pod that means to run has as many. One that does is not
scheduled, and its condition says why.
"""

from collections.abc import Iterator

from holdfast.api.affinity import NodeSelectorTerm
from holdfast.api.errors import InvalidObject
from holdfast.api.pod import Pod

MAX_POD_TERMS = 256
MAX_SPREAD = 64
MAX_NODE_EXPRESSIONS = 2_000
MAX_NODE_KEYS = 512
MAX_RESOURCES = 128
MAX_PORTS = 512


def check_bounds(pod: Pod) -> None:
    """Raises InvalidObject."""
    spec = pod.spec
    affinity = spec.affinity
    if affinity is not None:
        sides = [side for side in (affinity.pod_affinity, affinity.pod_anti_affinity) if side]
        terms = sum(
            len(side.required_during_scheduling_ignored_during_execution)
            + len(side.preferred_during_scheduling_ignored_during_execution)
            for side in sides
        )
        _check("spec.affinity", terms, MAX_POD_TERMS, "terms of pod affinity and anti-affinity")
    if affinity is not None or spec.node_selector:
        keys = [*spec.node_selector]
        for term in _node_terms(pod):
            keys += [expression.key for expression in term.match_expressions]
        _check("spec.affinity", len(keys), MAX_NODE_EXPRESSIONS, "requirements on nodes")
        _check("spec.affinity", len(set(keys)), MAX_NODE_KEYS, "labels of nodes that are asked for")
    spread = len(spec.topology_spread_constraints)
    _check("spec.topologySpreadConstraints", spread, MAX_SPREAD, "constraints")
    containers = (*spec.init_containers, *spec.containers)
    lists = [spec.overhead]
    for each in (*(c.resources for c in containers), spec.resources):
        if each is not None:
            lists += (each.requests, each.limits)
    if sum(map(len, lists)) > MAX_RESOURCES:
        _check("spec.containers", len(set().union(*lists)), MAX_RESOURCES, "resources")
    ports = sum(len(container.ports) for container in containers)
    if ports > MAX_PORTS:
        taken = sum(1 for c in containers for port in c.ports if port.host_port or spec.host_network)
        _check("spec.containers", taken, MAX_PORTS, "host ports")


def _node_terms(pod: Pod) -> Iterator[NodeSelectorTerm]:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None:
        return
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from required.node_selector_terms
    for term in affinity.preferred_during_scheduling_ignored_during_execution:
        yield term.preference


def _check(field: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidObject("", field, f"{count} {what} are more than the {most} that are scheduled")

"""Drains nodes as `kubectl drain` does: pods are evicted, as far as their disruption budgets allow.

An eviction that a budget refuses is tried again when replacements of other pods are ready, until no
further pod can be evicted. Pods of DaemonSets and static pods stay.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from holdfast.api import names
from holdfast.api.decode import convert
from holdfast.api.meta import LabelSelector
from holdfast.api.selectors import compile_selector
from holdfast.local.component import ENDED
from holdfast.local.store.objects import Key, Raw
from holdfast.local.timeline import EVICTED
from holdfast.local.workloads.lister import annotations_of, controller_of, labels_of
from holdfast.machinery.pod_subresources import (
    EvictionRefusal,
    decrement_budget,
    with_disruption_target,
)
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster

_BUDGET = ("policy", "PodDisruptionBudget")
_MOST_PASSES = 10_000


@dataclass(frozen=True, slots=True)
class BlockedEviction:
    """A pod that stays on a drained node."""

    pod: Key
    node: str
    budget: str
    """The PodDisruptionBudget that does not allow the eviction, if one does not."""
    message: str


def drain(
    cluster: HypotheticalCluster, nodes: Collection[str], rest: Callable[[], None]
) -> list[BlockedEviction]:
    """Evicts the pods of cordoned nodes; `rest` lets everything come to rest. Returns what stays."""
    on = set(nodes)
    left = [
        (Key("", "Pod", raw["metadata"]["namespace"], raw["metadata"]["name"]), raw["metadata"]["uid"])
        for raw in cluster.objects.scan("", "Pod")
        if raw["spec"].get("nodeName") in on and _leaves(raw)
    ]
    _keep_budgets(cluster, [key for key, _ in left])
    cluster.settle()
    for _ in range(_MOST_PASSES):
        before = len(left)
        blocked: list[BlockedEviction] = []
        remaining = []
        for key, uid in left:
            pod = cluster.objects.get(key)
            if pod is None or pod["metadata"]["uid"] != uid:
                continue
            refusal = _evict(cluster, key, pod)
            if refusal is not None:
                remaining.append((key, uid))
                message = f"{refusal.message} {refusal.why}".rstrip()
                budget = refusal.budget or _budget_of(cluster, key, pod)
                blocked.append(BlockedEviction(key, pod["spec"]["nodeName"], budget, message))
        left = remaining
        rest()
        if not left or len(left) == before:
            return blocked
    return blocked


def is_daemon(pod: Raw) -> bool:
    """Whether a drain leaves the pod where it is."""
    owner = controller_of(pod)
    return (owner is not None and owner.get("kind") == "DaemonSet") or (
        names.MIRROR_POD_ANNOTATION in annotations_of(pod)
    )


def _leaves(pod: Raw) -> bool:
    return not is_daemon(pod) and pod["status"].get("phase") not in ENDED


def _keep_budgets(cluster: HypotheticalCluster, pods: list[Key]) -> None:
    """The budgets of these pods are counted anew as pods come and go."""
    labels: dict[str, list[dict[str, str]]] = {}
    for key in pods:
        pod = cluster.objects.get(key)
        assert pod is not None
        labels.setdefault(key.namespace, []).append(labels_of(pod))
    for budget in cluster.objects.scan(*_BUDGET):
        metadata = budget["metadata"]
        selector = (budget.get("spec") or {}).get("selector")
        if metadata["namespace"] not in labels or selector is None:
            continue
        selects = compile_selector(convert(selector, LabelSelector)).matches
        if any(map(selects, labels[metadata["namespace"]])):
            cluster.budgets.keep(Key(*_BUDGET, metadata["namespace"], metadata["name"]))


def _budget_of(cluster: HypotheticalCluster, key: Key, pod: Raw) -> str:
    """The first budget that covers the pod."""
    for budget in cluster.objects.scan(*_BUDGET):
        selector = (budget.get("spec") or {}).get("selector")
        if budget["metadata"]["namespace"] != key.namespace or selector is None:
            continue
        if compile_selector(convert(selector, LabelSelector)).matches(labels_of(pod)):
            return str(budget["metadata"]["name"])
    return ""


def _evict(cluster: HypotheticalCluster, key: Key, pod: Raw) -> EvictionRefusal | None:
    now = cluster.clock.stamp()
    budgets = [
        budget
        for budget in cluster.objects.scan(*_BUDGET)
        if budget["metadata"]["namespace"] == key.namespace
    ]
    disrupted = decrement_budget(pod, budgets, now)
    if isinstance(disrupted, EvictionRefusal):
        return disrupted
    if disrupted is not None:
        name = disrupted["metadata"]["name"]
        cluster.objects.update(Key(*_BUDGET, key.namespace, name), disrupted)
    cluster.objects.update(key, with_disruption_target(pod, now))
    cluster.record(key, EVICTED, node=pod["spec"]["nodeName"], message="drained")
    cluster.delete_pod(key)
    return None

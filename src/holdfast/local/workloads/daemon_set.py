"""The DaemonSet controller: one pod for each eligible node.

A pod is pinned to its node by node affinity and placed by the scheduler like any other. In an update
the old pod of a node is deleted before the new one is created; with `maxSurge` the new one is created
first, and the old one is deleted once the new one is available.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.api import names
from holdfast.api.affinity import NodeAffinity, Taint, Toleration
from holdfast.api.decode import convert
from holdfast.api.errors import MalformedText
from holdfast.api.selectors import find_untolerated, match_node_selector
from holdfast.api.workloads import scaled_value
from holdfast.local.workloads.lister import (
    NORMAL,
    ActionOutcome,
    CreateDependent,
    DeleteDependent,
    EmitEvent,
    Lister,
    Member,
    Raw,
    Ref,
    claim,
    is_going,
    labels_of,
)
from holdfast.local.workloads.pods import available_at, created, ended, from_template, ready
from holdfast.local.workloads.revisions import REVISION_LABEL, recorded

SOURCE = "daemonset-controller"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _everywhere(key: str, effect: str) -> Raw:
    return {"key": key, "operator": "Exists", "effect": effect}


_TOLERATED = [
    _everywhere(names.TAINT_NOT_READY, names.NO_EXECUTE),
    _everywhere(names.TAINT_UNREACHABLE, names.NO_EXECUTE),
    _everywhere(names.TAINT_DISK_PRESSURE, names.NO_SCHEDULE),
    _everywhere(names.TAINT_MEMORY_PRESSURE, names.NO_SCHEDULE),
    _everywhere(names.TAINT_PID_PRESSURE, names.NO_SCHEDULE),
    _everywhere(names.TAINT_UNSCHEDULABLE, names.NO_SCHEDULE),
]
"""Tolerations of every DaemonSet pod."""
_TOLERATED_ON_HOST_NETWORK = _everywhere(names.TAINT_NETWORK_UNAVAILABLE, names.NO_SCHEDULE)


class _NodeMatcher:
    """Decides which nodes the template can run on."""

    def __init__(self, spec: Raw) -> None:
        self.tolerations = tolerations_of(spec)
        self._node_name = spec.get("nodeName") or ""
        self._labels: dict[str, str] = spec.get("nodeSelector") or {}
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        self._required = convert(
            affinity, NodeAffinity
        ).required_during_scheduling_ignored_during_execution
        self._typed = [convert(each, Toleration) for each in self.tolerations]

    def judge(self, node: Raw) -> tuple[bool, bool]:
        """Whether a pod is to run there, and whether one that does may stay."""
        name, labels = node["metadata"]["name"], labels_of(node)
        if self._node_name and self._node_name != name:
            return False, False
        if not self._labels.items() <= labels.items():
            return False, False
        if self._required is not None and not match_node_selector(self._required, labels, name):
            return False, False
        taints = [convert(each, Taint) for each in (node.get("spec") or {}).get("taints") or ()]
        if find_untolerated(taints, self._typed) is None:
            return True, True
        return False, find_untolerated(taints, self._typed, (names.NO_EXECUTE,)) is None


@dataclass(slots=True)
class _NodePods:
    """The pods that stay on a node for now."""

    node: str
    should_run: bool
    old: Member | None = None
    """A pod of a former template; next to a new one only with `maxSurge`."""
    new: Member | None = None


@dataclass(slots=True)
class _Counts:
    desired: int = 0
    current: int = 0
    misscheduled: int = 0
    ready: int = 0
    available: int = 0
    updated: int = 0


class _Availability:
    """Whether a pod has been ready long enough."""

    def __init__(self, min_ready: float, now: float, outcome: ActionOutcome) -> None:
        self._min_ready, self._now, self._outcome = min_ready, now, outcome

    def __call__(self, member: Member | None) -> bool:
        at = available_at(member[1], self._min_ready) if member is not None else None
        if at is not None and at > self._now:
            self._outcome.sync_again(at)
        return at is not None and at <= self._now


def reconcile(view: Lister, ref: Ref, owner: Raw, now: float) -> ActionOutcome:
    outcome = ActionOutcome()
    spec = owner["spec"]
    template = spec.get("template") or {}
    members = claim(view, owner, ("", "Pod"), outcome, may_adopt=lambda pod: not ended(pod))
    by_node: dict[str, list[Member]] = {}
    for member in members:
        by_node.setdefault(_node_of(member[1]), []).append(member)
    in_use = {labels_of(pod).get(REVISION_LABEL, "") for _, pod in members}
    digest = recorded(view, ref, owner, in_use, outcome).digest
    matcher = _NodeMatcher(template.get("spec") or {})
    available = _Availability(view.min_ready(owner), now, outcome)
    managed, counts = not is_going(owner), _Counts()
    rolled: list[_NodePods] = []
    vacant: list[str] = []
    for node in sorted(view.objects.scan("", "Node"), key=lambda each: str(each["metadata"]["name"])):
        name = node["metadata"]["name"]
        there = by_node.pop(name, [])
        should_run, may_stay = matcher.judge(node)
        kept = _on_node(owner, there if may_stay else [], digest, available)
        for member in there if managed else ():
            if member not in kept:
                _delete(owner, member, outcome)
        if should_run:
            counts.desired += 1
            _count(kept[:1], digest, available, counts)
            if not kept and not any(is_going(pod) for _, pod in there):
                vacant.append(name)
        elif kept:
            counts.misscheduled += 1
        rolled.append(_by_template(name, should_run, kept, digest))
    for there in by_node.values() if managed else ():
        for member in there:  # their node is gone
            _delete(owner, member, outcome)
    if managed:
        for name in (*vacant, *_roll(owner, rolled, counts, available, outcome)):
            pod = _pod(owner, template, name, digest, matcher.tolerations)
            outcome.actions.append(CreateDependent(pod, ref))
    _report(ref, owner, counts, outcome)
    return outcome


def _on_node(owner: Raw, there: list[Member], digest: str, available: _Availability) -> list[Member]:
    """The pods that stay on the node, oldest first: one, or with `maxSurge` one of the present and one
    of a former template until the new one can replace it."""
    alive = [member for member in there if not is_going(member[1]) and not ended(member[1])]
    alive.sort(key=lambda each: (not each[1]["spec"].get("nodeName"), created(each[1])))
    if len(alive) < 2 or not _bound(owner, "maxSurge", 1):
        return alive[:1]
    found = _by_template("", True, alive, digest)
    if found.old is None or found.new is None:
        return alive[:1]
    if not ready(found.old[1]) or available(found.new):
        return [found.new]
    return [member for member in alive if member in (found.old, found.new)]


def _by_template(node: str, should_run: bool, kept: list[Member], digest: str) -> _NodePods:
    found = _NodePods(node, should_run)
    for member in kept:
        if labels_of(member[1]).get(REVISION_LABEL) == digest:
            found.new = found.new or member
        else:
            found.old = found.old or member
    return found


def _count(kept: list[Member], digest: str, available: _Availability, counts: _Counts) -> None:
    for member in kept:
        counts.current += 1
        counts.ready += ready(member[1])
        counts.available += available(member)
        counts.updated += labels_of(member[1]).get(REVISION_LABEL) == digest


def _roll(
    owner: Raw,
    nodes: list[_NodePods],
    counts: _Counts,
    available: _Availability,
    outcome: ActionOutcome,
) -> list[str]:
    """Deletes pods of former templates that may go. Returns nodes that get a new pod beside them."""
    if (owner["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
        return []
    unavailable = _bound(owner, "maxUnavailable", counts.desired)
    surge = _bound(owner, "maxSurge", counts.desired)
    if surge:
        return _surge(owner, nodes, surge, counts.desired - unavailable, available, outcome)
    may_go = max(1, unavailable) - (counts.desired - counts.available)
    for each in nodes:
        if each.old is None or not each.should_run:
            continue
        if available(each.old):
            if may_go <= 0:
                continue
            may_go -= 1
        _delete(owner, each.old, outcome)
    return []


def _surge(
    owner: Raw,
    nodes: list[_NodePods],
    surge: int,
    needed: int,
    available: _Availability,
    outcome: ActionOutcome,
) -> list[str]:
    """Where new pods are created: beside old pods that are not available, and beside as many others as
    `maxSurge` allows. Pods on nodes that are no longer eligible go while `needed` others are available.
    """
    spare = sum(available(each.old) or available(each.new) for each in nodes) - needed
    surge -= sum(each.old is not None and each.new is not None for each in nodes)
    chosen = []
    for each in nodes:
        if each.old is None or each.new is not None:
            continue
        if not each.should_run:
            is_available = available(each.old)
            if not is_available or spare > 0:
                spare -= is_available
                _delete(owner, each.old, outcome)
        elif not available(each.old):
            chosen.append(each.node)
        elif surge > 0:
            surge -= 1
            chosen.append(each.node)
    return chosen


def _bound(owner: Raw, name: str, desired: int) -> int:
    """`maxUnavailable` or `maxSurge` as a number of pods, rounded up."""
    rolling = (owner["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    default = 1 if name == "maxUnavailable" else 0
    try:
        return scaled_value(rolling.get(name, default), desired, round_up=True)
    except MalformedText:
        return default


def _pod(owner: Raw, template: Raw, node: str, digest: str, tolerations: list[Raw]) -> Raw:
    spec = template.get("spec") or {}
    affinity = spec.get("affinity") or {}
    near = affinity.get("nodeAffinity") or {}
    only = {"matchFields": [{"key": names.NODE_NAME_FIELD, "operator": "In", "values": [node]}]}
    near = {**near, _REQUIRED: {"nodeSelectorTerms": [only]}}
    more = {"affinity": {**affinity, "nodeAffinity": near}, "tolerations": tolerations}
    return from_template(owner, template, labels={REVISION_LABEL: digest}, spec=more)


def tolerations_of(spec: Raw) -> list[Raw]:
    given = [*(spec.get("tolerations") or ())]
    added = [*_TOLERATED, *([_TOLERATED_ON_HOST_NETWORK] if spec.get("hostNetwork") else ())]
    return [*given, *(each for each in added if each not in given)]


def _node_of(pod: Raw) -> str:
    """The node the pod is on, or is pinned to."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for wanted in term.get("matchFields") or ():
            if wanted.get("key") == names.NODE_NAME_FIELD and wanted.get("values"):
                return str(wanted["values"][0])
    return ""


def _delete(owner: Raw, member: Member, outcome: ActionOutcome) -> None:
    ref, pod = member
    if is_going(pod):
        return
    outcome.actions.append(DeleteDependent(ref, pod["metadata"]["uid"]))
    message = f"Deleted pod: {ref.name}"
    outcome.actions.append(EmitEvent(owner, NORMAL, "SuccessfulDelete", message, SOURCE))


def _report(ref: Ref, owner: Raw, counts: _Counts, outcome: ActionOutcome) -> None:
    always = {
        "currentNumberScheduled": counts.current,
        "numberMisscheduled": counts.misscheduled,
        "desiredNumberScheduled": counts.desired,
        "numberReady": counts.ready,
    }
    some = {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "updatedNumberScheduled": counts.updated,
        "numberAvailable": counts.available,
        "numberUnavailable": counts.desired - counts.available,
    }
    kept = {key: value for key, value in some.items() if value}
    outcome.update(ref, owner, {**owner, "status": {**always, **kept}})

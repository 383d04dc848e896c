"""The DaemonSet controller: one pod for each eligible node.

A pod is pinned to its node by node affinity and placed by the scheduler like any other. In an update
the old pod of a node is deleted before the new one is created; `maxSurge` is not supported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
class _Counts:
    desired: int = 0
    current: int = 0
    misscheduled: int = 0
    ready: int = 0
    available: int = 0
    updated: int = 0
    outdated: list[tuple[Member, bool]] = field(default_factory=list)
    """Pods of a former template, and whether they are available."""


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
    managed, counts = not is_going(owner), _Counts()
    for node in sorted(view.objects.scan("", "Node"), key=lambda each: str(each["metadata"]["name"])):
        name = node["metadata"]["name"]
        there = by_node.pop(name, [])
        should_run, may_stay = matcher.judge(node)
        kept = _on_node(owner, there, may_stay, managed, outcome)
        if should_run:
            counts.desired += 1
            _count(kept, view.min_ready(owner), digest, now, counts, outcome)
            if not kept and managed and not any(is_going(pod) for _, pod in there):
                pod = _pod(owner, template, name, digest, matcher.tolerations)
                outcome.actions.append(CreateDependent(pod, ref))
        elif kept:
            counts.misscheduled += 1
    for there in by_node.values() if managed else ():
        for member in there:  # their node is gone
            _delete(owner, member, outcome)
    if managed:
        _roll(owner, counts, outcome)
    _report(ref, owner, counts, outcome)
    return outcome


def _on_node(
    owner: Raw, there: list[Member], may_stay: bool, managed: bool, outcome: ActionOutcome
) -> list[Member]:
    """The pod that stays on the node, if any; the others are deleted."""
    alive = [member for member in there if not is_going(member[1])]
    kept = [member for member in alive if may_stay and not ended(member[1])]
    kept = sorted(kept, key=lambda each: (not each[1]["spec"].get("nodeName"), created(each[1])))[:1]
    for member in alive if managed else ():
        if member not in kept:
            _delete(owner, member, outcome)
    return kept


def _count(
    kept: list[Member],
    min_ready: float,
    digest: str,
    now: float,
    counts: _Counts,
    outcome: ActionOutcome,
) -> None:
    for member in kept:
        pod = member[1]
        counts.current += 1
        counts.ready += ready(pod)
        at = available_at(pod, min_ready)
        available = at is not None and at <= now
        counts.available += available
        if at is not None and not available:
            outcome.sync_again(at)
        if labels_of(pod).get(REVISION_LABEL) == digest:
            counts.updated += 1
        else:
            counts.outdated.append((member, available))


def _roll(owner: Raw, counts: _Counts, outcome: ActionOutcome) -> None:
    """Deletes pods of old templates, at most as many at a time as may be unavailable."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        return
    given = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
    try:
        limit = scaled_value(given, counts.desired, round_up=True)
    except MalformedText:
        limit = 1
    may_go = max(1, limit) - (counts.desired - counts.available)
    for member, available in counts.outdated:
        if available:
            if may_go <= 0:
                continue
            may_go -= 1
        _delete(owner, member, outcome)


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

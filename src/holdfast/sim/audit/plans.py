"""Rules about reservations with a start: certain plans, and what comes of them.

Checked once nothing more follows at a moment:

* what is planned for certain on a node, with the pods and reservations that will still be there, is
  within what the node has, at every planned start; and no host port is planned twice;
* a reservation that was planned for certain is Available at its start;
* only `Preempt` evicts pods, and not before the lead time.

A pod counts as gone after its run-time estimate; one without an estimate stays. What it has from a
reservation returns to that.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from holdfast.sim.audit.capacity import remaining
from holdfast.sim.audit.cluster import ClusterState, NodeState
from holdfast.sim.audit.facts import (
    Amounts,
    PodFacts,
    Raw,
    ReservationFacts,
    Usage,
    add,
    duration,
    is_device_resource,
    parse_time,
)

TWICE, TAKEN = "planned twice", "planned port is taken"
LATE, EVICTS = "planned for certain, but late", "evicts without Preempt"

_STARTS_AT, _BEFORE, _LEAD = "holdfast.io/starts-at", "holdfast.io/before-start", "holdfast.io/lead"
_AT_END, _ESTIMATE = "holdfast.io/at-end", "holdfast.io/run-estimate"
_VOLCANO_JOB = "volcano.sh/job-name"
_EVICTED = re.compile(r"evicted for Reservation/(\S+), which starts at")
_GRACE = 1.0
"""Timestamps of objects are in whole seconds."""


class CertainPlan(NamedTuple):
    """A reservation that will have its capacity at its start, by its status."""

    reservation: ReservationFacts
    start: float
    preempts: bool

    @property
    def end(self) -> float:
        expires = self.reservation.expires
        return float("inf") if expires is None else expires


class PlanAudit:
    """Follows the plans of a cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._certain: dict[str, CertainPlan] = {}
        """By uid, as of the last moment."""
        self._disturbed: set[str] = set()
        """Nodes that others changed or put pods on, and reservations that they edited, since then."""
        self._evicted_for: dict[str, None] = {}
        """The names of reservations for which pods were evicted since then."""

    def disturbed(self, name: str) -> None:
        """Somebody else changed a node, or put a pod on it, or changed a reservation."""
        self._disturbed.add(name)

    def event(self, raw: Raw) -> None:
        found = _EVICTED.match(raw.get("message") or "")
        if found is not None:
            self._evicted_for[found[1]] = None

    def at_rest(self, now: float) -> Iterator[str]:
        yield from self._evictions(now)
        before, self._certain = self._certain, {}
        by_node: dict[str, list[CertainPlan]] = {}
        for uid, reservation in self._cluster.reservations.items():
            start = _start(reservation)
            if start is None:
                continue
            if start > now and _is_certain(reservation):
                preempts = reservation.annotations.get(_BEFORE) == "Preempt"
                plan = self._certain[uid] = CertainPlan(reservation, start, preempts)
                by_node.setdefault(reservation.node, []).append(plan)
            elif start <= now and uid in before:
                yield from self._late(before[uid], reservation, now)
        for name, plans in by_node.items():
            node = self._cluster.node(name)
            if node.raw is not None:
                yield from self._amounts(node, plans, now)
                yield from self._ports(node, plans, now)
        self._disturbed.clear()

    def _evictions(self, now: float) -> Iterator[str]:
        names, self._evicted_for = self._evicted_for, {}
        for reservation in self._cluster.reservations.values():
            start = _start(reservation)
            if reservation.name not in names or start is None:
                continue
            lead = duration(reservation.annotations.get(_LEAD, ""))
            preempts = reservation.annotations.get(_BEFORE) == "Preempt"
            is_allowed = preempts and now + _GRACE >= start - lead
            if not is_allowed and reservation.uid not in self._disturbed:
                yield f"{EVICTS}: {reservation}"

    def _late(self, plan: CertainPlan, now_is: ReservationFacts, now: float) -> Iterator[str]:
        """Reports a certain plan that is not met, unless something happened that nobody could know."""
        node = self._cluster.node(plan.reservation.node)
        if now_is.phase in ("Available", "Succeeded") or plan.preempts:
            return
        if now_is.expires is not None and now_is.expires <= now:
            return
        if {node.name, now_is.uid} & self._disturbed or node.raw is None:
            return
        if any(pod.deleting or self._has_overrun(pod, now) for pod in node.pods.values()):
            return
        yield f"{LATE}: {now_is}: {now_is.phase} since its start, was planned on Node/{node.name}"

    def _amounts(self, node: NodeState, plans: list[CertainPlan], now: float) -> Iterator[str]:
        for at in sorted({plan.start for plan in plans}):
            active = [plan for plan in plans if plan.start <= at < plan.end]
            taken: Amounts = {}
            for plan in active:
                add(taken, _resources(plan.reservation.usage))
            evicts = any(plan.preempts for plan in active)
            is_gone = partial(self._is_gone, at=at, now=now)
            for reservation in node.reservations.values():
                if not reservation.is_starvation_hold and _lasts(reservation, at):
                    add(taken, remaining(self._cluster, reservation, _resources, is_gone))
            for pod in node.pods.values():
                if pod.is_daemon or not (evicts or is_gone(pod)):
                    add(taken, _resources(pod.usage))
            for name, amount in sorted(taken.items()):
                planned = any(_resources(plan.reservation.usage).get(name) for plan in active)
                if planned and amount > node.allocatable.get(name, 0):
                    who = ", ".join(str(plan.reservation) for plan in active)
                    has = node.allocatable.get(name, 0)
                    yield f"{TWICE}: Node/{node.name}: {name} {amount} of {has} at {at:g} ({who})"

    def _ports(self, node: NodeState, plans: list[CertainPlan], now: float) -> Iterator[str]:
        for i, plan in enumerate(plans):
            for port in plan.reservation.usage.ports:
                for other in plans[:i]:
                    overlap = plan.start < other.end and other.start < plan.end
                    if overlap and any(port.conflicts(each) for each in other.reservation.usage.ports):
                        who = f"{plan.reservation} and {other.reservation}"
                        yield f"{TWICE}: Node/{node.name}: port {port} ({who})"
                for pod in node.pods.values():
                    stays = pod.is_daemon or not (plan.preempts or self._is_gone(pod, plan.start, now))
                    if stays and any(port.conflicts(each) for each in pod.usage.ports):
                        yield f"{TAKEN}: Node/{node.name}: {port} of {plan.reservation} by {pod}"

    # When pods end

    def _is_gone(self, pod: PodFacts, at: float, now: float) -> bool:
        """Whether a pod is expected to have ended by a time, or to be evicted as its reservation
        expires."""
        end = self._expected_end(pod, now)
        reservation = self._cluster.reservations.get(pod.reservation) if pod.reservation else None
        if reservation is not None and reservation.is_live:
            expires = reservation.expires
            if expires is not None and reservation.annotations.get(_AT_END) == "Evict":
                end = expires if end is None else min(end, expires)
        return end is not None and end <= at + _GRACE

    def _expected_end(self, pod: PodFacts, now: float) -> float | None:
        """When a pod is expected to end; None if unknown, or if that is past."""
        if _VOLCANO_JOB in pod.labels or _VOLCANO_JOB in pod.annotations:
            return now  # its job may have an estimate
        raw = self._cluster.existing.get(pod.uid) or {"spec": {}}
        estimates = []
        if raw["spec"].get("activeDeadlineSeconds") is not None:
            estimates.append(float(raw["spec"]["activeDeadlineSeconds"]))
        if pod.annotations.get(_ESTIMATE):
            estimates.append(duration(pod.annotations[_ESTIMATE]))
        if not estimates:
            return None
        started = _started(raw.get("status") or {})
        end = (parse_time(started) if started else now) + min(estimates)
        return end if end + _GRACE > now else None

    def _has_overrun(self, pod: PodFacts, now: float) -> bool:
        """Whether a pod should have ended by now."""
        if not pod.has_run_estimate:
            return False
        end = self._expected_end(pod, now)
        return end is None or end <= now + _GRACE


def _started(status: dict[str, Any]) -> str | None:
    """When a pod started; before that, when it was bound."""
    if status.get("startTime"):
        return str(status["startTime"])
    bound = (each for each in status.get("conditions") or () if each["type"] == "PodScheduled")
    return next((each.get("lastTransitionTime") for each in bound if each["status"] == "True"), None)


def _start(reservation: ReservationFacts) -> float | None:
    text = reservation.annotations.get(_STARTS_AT)
    return parse_time(text) if text else None


def _is_certain(reservation: ReservationFacts) -> bool:
    conditions = reservation.status.get("conditions") or ()
    states = {each.get("type"): each.get("status") for each in conditions}
    planned = states.get("Planned") == "True" and states.get("Feasible") == "True"
    return planned and reservation.phase == "Pending" and bool(reservation.node)


def _lasts(reservation: ReservationFacts, at: float) -> bool:
    return reservation.expires is None or reservation.expires > at + _GRACE


def _resources(usage: Usage) -> Amounts:
    return {
        name: amount
        for name, amount in usage.requests.items()
        if name != "pods" and not is_device_resource(name)
    }

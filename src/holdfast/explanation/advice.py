"""Advice for a pod or reservation that cannot be scheduled.

A change is tried on the snapshot, the scheduler is asked again, and the change is advised only if the
object would then be scheduled. On thousands of nodes only a few candidates are tried: of the nodes that
share a reason, those that lack the least capacity.

Changes are ranked by cost: waiting, configuration, smaller requests, deleting a reservation. Ending
pods is considered only if nothing cheaper helps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray

from holdfast.api.names import CPU as CPU_NAME
from holdfast.api.names import MEMORY as MEMORY_NAME
from holdfast.api.names import STARTS_AT
from holdfast.api.resource_claims import ResourceClaim
from holdfast.api.times import format_time
from holdfast.explanation.capacity import (
    SCHEDULE,
    ExpectedEnd,
    ended_pod,
    expected_ends,
    in_time,
    kind_of_holder,
    missing_on,
    own_entries,
    plans_on,
    pods_text,
    requested,
    row_of,
    rows_freed_first,
    schedule_of,
    shortages,
    waiting_for,
)
from holdfast.explanation.details import limits_on, users_of_claims
from holdfast.explanation.hardware import device_requests
from holdfast.explanation.host_ports import conflicting_ports, other_ports
from holdfast.explanation.numa_alignment import numa_requests
from holdfast.explanation.repairs import (
    DELETE_RESERVATION,
    EVICT,
    RESIZE,
    WAIT,
    Repair,
    node_repairs,
    repair,
    resize,
    unmet_labels,
    wider_numa_policies,
    workload_text,
)
from holdfast.explanation.report import Advice, few
from holdfast.explanation.verdicts import (
    NodeVerdicts,
    Subject,
    at_time,
    fits_on,
    profile_for,
    rejection_on,
    starts_on,
)
from holdfast.scheduler.cluster.records import PodRecord, ReservationEntry
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.framework.config.plugin_sets import NODE_RESOURCES_FIT
from holdfast.scheduler.framework.diagnosis import FITS, NodeRejection
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey
from holdfast.scheduler.plugins.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.reservations.calendar import PlannedReservation
from holdfast.snapshot.cluster_changes import PATCH, ClusterChange, ObjectChange, applied, delete, patch
from holdfast.snapshot.cluster_snapshot import POD, RESERVATION, RESOURCE_CLAIM, ClusterSnapshot

_CAPACITY = (NODE_RESOURCES_FIT, "LimitAware", "DeviceShare", "NodeNUMAResource", "DynamicResources")
"""Plugins whose rejections smaller requests, or pods that end, may change."""
_MOST_ADVICE = 5
_REASONS = 8
_NODES_PER_REASON = 2
_STEPS = 3
"""How many changes of configuration are combined for one node."""
_ENDS = 40
_NODES = 3
_GANG_ENDS = 400
_LONG = 3600.0
"""Waiting for longer than this many seconds is not the cheapest change."""
_CRITICAL = 2 * 10**9
"""Pods of this priority and above are the system's own."""
_SHARES = (7, 6, 5, 4, 3, 2)
"""How many eighths of their requests the members of a gang are tried with."""
_DAEMONS = ("DaemonSet", "Node")


class Advisor:
    """Collects verified advice for one object."""

    def __init__(self, snapshot: ClusterSnapshot, subject: Subject) -> None:
        self._snapshot = snapshot
        self._goal = subject
        """What must be scheduled."""
        self._subject = subject
        """What is changed: the same, or another member of its gang."""
        self._before: tuple[Repair, ...] = ()
        """Changes without which nothing else can help."""
        self._found: dict[str, tuple[int, int, Advice]] = {}
        self._tried: set[str] = set()
        self._given: set[tuple[str, ...]] = set()
        """The kinds of change that are advised already."""
        self._moved_ports: set[str] = set()
        """Advice of other host ports. Who uses a port may not care about capacity, but about the port:
        whose end would free it is said as well."""
        self._protected: dict[str, tuple[list[PodRecord], list[PodRecord]]] = {}
        """By node, the pods that were not advised to end because disruption budgets protect them, and
        the others that may end."""

    @property
    def advice(self) -> list[Advice]:
        """The best few, cheapest first. Combinations of changes are left out where one change helps."""
        ranked = sorted(self._found.values(), key=lambda each: each[:2])
        if any(len(advice.change["actions"]) == 1 for _, _, advice in ranked):
            ranked = [each for each in ranked if len(each[2].change["actions"]) == 1]
        return [advice for _, _, advice in ranked[:_MOST_ADVICE]]

    @contextmanager
    def about(self, subject: Subject, *before: Repair) -> Iterator[None]:
        """Changes are made to another member of the gang, after some that are needed in any case."""
        outer = self._subject, self._before
        self._subject, self._before = subject, before
        try:
            yield
        finally:
            self._subject, self._before = outer

    def propose(self, *repairs: Repair) -> bool:
        """Advises the changes together if they help; tells whether they do."""
        repairs = (*self._before, *repairs)
        text = " and ".join(f"{self._whose(each)}{each.text}" for each in repairs)
        if text in self._tried:
            return text in self._found
        self._tried.add(text)
        change = sum((each.change for each in repairs), ClusterChange())
        with applied(self._snapshot, change.objects), at_time(self._snapshot, change.until):
            nodes = starts_on(self._snapshot, self._goal)
        if not nodes:
            return False
        cost = sum(10**each.cost for each in repairs)
        result = "" if change.until is not None else f"; then it fits {few(nodes, _NODES)}"
        where = "" if "template of" in text else workload_text(change) or _members_text(change, text)
        advice = Advice(f"{text}{where}{result}", change.data(), nodes)
        self._found[text] = (cost, len(self._found), advice)
        return True

    def _whose(self, each: Repair) -> str:
        """`default/q: ` for a change of other members than the pod."""
        pods = {(c.name, c.namespace) for c in each.change.objects if _edits_pod(c)}
        if not pods or (self._goal.name, self._goal.namespace) in pods or self._goal == self._subject:
            return ""
        return f"{self._subject.namespace}/{self._subject.name}: "

    # Nodes

    def consider_nodes(self, placing: NodeVerdicts) -> None:
        """Looks for changes that make a node eligible."""
        snapshot, subject = self._snapshot, self._subject
        pod = subject.record(snapshot)
        if pod is None or placing.column.rejected is not None:
            return
        short = shortages(snapshot, pod)
        groups = self._by_reason(placing, short)
        capacity: list[int] = []
        is_gang = snapshot.cluster.jobs.of(pod) is not None
        for rejection, rows in groups[:_REASONS]:
            repairable = bool(node_repairs(snapshot, subject, pod, rows[0], rejection))
            if repairable and any(self._repair_row(row) for row in rows[:_NODES_PER_REASON]):
                continue
            if rejection.plugin in _CAPACITY or (rejection.resolvable and not repairable):
                capacity += rows
        capacity.sort(key=lambda row: (float(short[row]), snapshot.cluster.nodes.name(row)))
        self._wait(pod, capacity, is_gang)
        for row in capacity[:_NODES]:
            self._smaller(pod, row, ())
            self._wider_policy(pod, row)
            self._other_ports(pod, row)
        for row in capacity[:_NODES]:
            self._delete_reservations(pod, row)
            missing = missing_on(snapshot, pod, row)
            if missing:
                self.delete_plans(plans_on(snapshot, pod, row), row, missing)
        if not self._found:
            self._evict_for_own(pod)
        if self._found.keys() <= self._moved_ports:
            self._evict(pod, capacity[:_NODES])

    def consider_wait(self, node: str) -> None:
        """Waiting for what is expected to end on the node."""
        pod = self._subject.record(self._snapshot)
        if pod is not None:
            self._wait_on(pod, row_of(self._snapshot, node))

    def consider_start(self, planned: PlannedReservation, row: int) -> None:
        """Waiting until a planned reservation, which the pod may use, starts on its row."""
        snapshot = self._snapshot
        pod, raw = self._subject.record(snapshot), snapshot.find(RESERVATION, planned.reservation.name)
        if pod is None or raw is None:
            return
        ends = [each for each in expected_ends(snapshot, pod, row) if each.time <= planned.start]
        started = {"metadata": {"annotations": {STARTS_AT: None}}, "status": {"phase": "Available"}}
        objects = [change for each in ends for change in each.changes]
        objects.append(patch(RESERVATION, raw, started))
        how_long = in_time(planned.start, snapshot.now).removeprefix("in ")
        text = f"wait {how_long}, until {format_time(planned.start)}: {planned.reservation.name} starts"
        cost = WAIT if planned.start - snapshot.now <= _LONG else RESIZE
        self.propose(Repair(text, ClusterChange(("Wait",), tuple(objects), planned.start), cost))

    def consider_gang_wait(self, pod: PodRecord) -> None:
        """Waiting until the whole job of the pod would start, if nothing else helps."""
        if not self._found:
            self._wait(pod, [], True)

    def smaller_members(self, pod: PodRecord) -> None:
        """Smaller requests of all members like the pod, of one resource if that is enough."""
        slots = self._snapshot.cluster.nodes.slots
        asked = {slots.name(slot): n for slot, n in requested(pod).items() if slot != PODS and n > 1}
        for names in (*([name] for name in asked), list(asked)):
            for eighths in _SHARES if names else ():
                lowered = {
                    name: (asked[name], _round_down(name, asked[name] * eighths // 8)) for name in names
                }
                smaller = resize(self._snapshot, Subject.of(pod), lowered)
                if smaller is not None and self.propose_once(("Resize",), smaller):
                    return

    def _by_reason(
        self, placing: NodeVerdicts, short: NDArray[np.float64]
    ) -> list[tuple[NodeRejection, list[int]]]:
        """The rows of each rejection, those that lack the least first; the most frequent one first."""
        groups: dict[NodeRejection, list[int]] = {}
        for name, rejection in placing.rejections.items():
            if rejection.texts:
                groups.setdefault(rejection, []).append(row_of(self._snapshot, name))
        for rejection, rows in groups.items():
            lacking = self._unmet(rejection, rows)
            rows.sort(
                key=lambda row: (
                    float(short[row]),
                    lacking.get(row, 0),
                    self._snapshot.cluster.nodes.name(row),
                )
            )
        return sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))

    def _unmet(self, rejection: NodeRejection, rows: list[int]) -> dict[int, int]:
        """Of nodes that lack labels, how many; empty for other rejections."""
        pod = self._subject.record(self._snapshot)
        if pod is None or rejection.plugin != "NodeAffinity":
            return {}
        return {row: sum(map(len, unmet_labels(self._snapshot, pod, row))) for row in rows}

    def _repair_row(self, row: int) -> bool:
        """Repairs one rejection of a node after the other, until it is eligible or cannot be."""
        snapshot, subject = self._snapshot, self._subject
        made: list[Repair] = []
        for _ in range(_STEPS):
            with applied(snapshot, [each for made_ in made for each in made_.change.objects]):
                pod = subject.record(snapshot)
                if pod is None:
                    return False
                rejection = rejection_on(snapshot, pod, row)
                options = node_repairs(snapshot, subject, pod, row, rejection)
                if rejection == FITS:
                    break
            if not options:
                return self._smaller_after(made, row)
            made.append(options[0])
        return bool(made) and self.propose(*made)

    def _smaller_after(self, made: list[Repair], row: int) -> bool:
        """Repairs that leave only a shortage are combined with smaller requests."""
        pod = self._subject.record(self._snapshot)
        return bool(made) and pod is not None and self._smaller(pod, row, made)

    # Capacity

    def _wait(self, pod: PodRecord, rows: list[int], is_gang: bool) -> None:
        """Waiting for pods and reservations whose end is known."""
        if is_gang:
            self._wait_for_gang(pod, rows)
            return
        own = {each.entry.row for each in waiting_for(self._snapshot, pod) if each.entry is not None}
        rows = [*own, *(row for row in rows if row not in own)]
        for row in rows_freed_first(self._snapshot, pod, rows, _NODES):
            if self._wait_on(pod, row):
                return

    def _wait_on(self, pod: PodRecord, row: int) -> bool:
        snapshot, subject = self._snapshot, self._subject
        ends = expected_ends(snapshot, pod, row)[:_ENDS]
        node = snapshot.cluster.nodes.name(row)
        with ExitStack() as stack:
            for at, end in enumerate(ends):
                stack.enter_context(applied(snapshot, end.changes))
                then = self._available_then(subject)
                with applied(snapshot, then), at_time(snapshot, end.time):
                    record = subject.record(snapshot)
                    if record is None or not fits_on(snapshot, record, row):
                        continue
                stack.close()
                return self._propose_wait(ends[: at + 1], then, f" on {node}")
        return False

    def _propose_wait(self, ends: list[ExpectedEnd], then: list[ObjectChange], where: str) -> bool:
        snapshot = self._snapshot
        until = ends[-1].time
        names = few([each.name for each in ends], _NODES)
        how_long = in_time(until, snapshot.now).removeprefix("in ")
        text = f"wait {how_long}, until {format_time(until)}: {names} should end{where}"
        objects = (*(change for each in ends for change in each.changes), *then)
        cost = WAIT if until - snapshot.now <= _LONG else RESIZE
        return self.propose(Repair(text, ClusterChange(("Wait",), objects, until), cost))

    def _wait_for_gang(self, pod: PodRecord, rows: list[int]) -> None:
        """The first time at which the whole job would start, by bisection over all expected ends."""
        snapshot, subject = self._snapshot, self._subject
        nodes = snapshot.cluster.nodes
        alive = [row for _, row in nodes.names() if nodes.alive[row]]
        ends = sorted(end for row in alive for end in expected_ends(snapshot, pod, row))[:_GANG_ENDS]

        def helps(count: int) -> list[ObjectChange] | None:
            with applied(snapshot, [change for each in ends[:count] for change in each.changes]):
                then = self._available_then(subject)
                with applied(snapshot, then), at_time(snapshot, ends[count - 1].time):
                    return then if starts_on(snapshot, self._goal) else None

        if not ends or helps(len(ends)) is None:
            return
        low, high = 0, len(ends)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if helps(middle) is not None else (middle, high)
        self._propose_wait(ends[:high], helps(high) or [], "")

    def _available_then(self, subject: Subject) -> list[ObjectChange]:
        """Its own reservations, and those of its job, that have their capacity now become Available."""
        snapshot = self._snapshot
        pod = subject.record(snapshot)
        if pod is None:
            return []
        job = snapshot.cluster.jobs.of(pod)
        members = job.waiting() if job is not None else [pod]
        found = {each.name: each for member in members for each in waiting_for(snapshot, member)}
        return [
            patch(RESERVATION, raw, {"status": {"phase": "Available"}})
            for name, each in sorted(found.items())
            if snapshot.cluster.reservations.has_capacity(each)
            and (raw := snapshot.find(RESERVATION, name)) is not None
        ]

    def _smaller(self, pod: PodRecord, row: int, made: Iterable[Repair]) -> bool:
        """Requests that fit what is free, or limits that fit what is allowed."""
        snapshot = self._snapshot
        made = tuple(made)
        slots, asked = snapshot.cluster.nodes.slots, requested(pod)
        lowered = {
            slots.name(slot): (asked[slot], asked[slot] - lack)
            for slot, lack in missing_on(snapshot, pod, row).items()
            if slot != PODS
        }
        devices = device_requests(snapshot, pod, row)
        for name, (now, then) in devices.items():
            lowered[name] = (now, min(then, lowered.get(name, (now, then))[1]))
        for each in (lowered, numa_requests(snapshot, pod, row)):
            smaller = resize(snapshot, self._subject, each)
            if smaller is not None and self.propose_once(_actions(*made, smaller), *made, smaller):
                return True
        limits = {
            resource: (own, allowed - there)
            for resource, (own, there, allowed) in limits_on(snapshot, pod, row).items()
        }
        smaller = resize(snapshot, self._subject, limits, "limits")
        return smaller is not None and self.propose_once(_actions(*made, smaller), *made, smaller)

    def _wider_policy(self, pod: PodRecord, row: int) -> None:
        """A NUMA policy that demands less."""
        for each in wider_numa_policies(self._snapshot, self._subject, pod, row):
            if self.propose_once(_actions(each), each):
                return

    def _other_ports(self, pod: PodRecord, row: int) -> None:
        """Host ports that are free."""
        for each in other_ports(self._snapshot, self._subject, pod, row):
            if self.propose_once(_actions(each), each):
                self._moved_ports.add(each.text)
                return

    def propose_once(self, kind: tuple[str, ...], *repairs: Repair) -> bool:
        """Proposes one change of a kind: others would differ in the node only."""
        if kind in self._given:
            return True
        helps = self.propose(*repairs)
        if helps:
            self._given.add(kind)
        return helps

    def _delete_reservations(self, pod: PodRecord, row: int) -> None:
        """The fewest reservations of others that keep what is missing. Holds are not considered: the
        scheduler would make them again."""
        snapshot = self._snapshot
        missing = missing_on(snapshot, pod, row)
        own = {entry.pod.uid for entry in own_entries(snapshot, pod, row)}
        entries = [
            entry
            for entry in snapshot.cluster.ledger.reservations.on(row)
            if entry.pod.uid not in own
            and kind_of_holder(snapshot, entry.reservation) == "Reservation"
            and (
                any(entry.left(slot) for slot in missing)
                or conflicting_ports(pod, entry.pod)
                or (pod.cls.claims and snapshot.cluster.claims.held.of(entry.pod.uid))
            )
        ]
        enough = [
            entry
            for entry in entries
            if all(entry.left(slot) >= lack for slot, lack in missing.items() if slot != PODS)
            and (not pod.cls.ports or conflicting_ports(pod, entry.pod))
        ]
        enough.sort(key=lambda entry: entry.reservation.name)
        # Whether the devices of one are enough is known only once it is tried.
        sets = [[entry] for entry in (enough if pod.cls.claims else enough[:1])[:_NODES]]
        if pod.cls.claims or not sets:
            sets.append(entries)
        for chosen in sets:
            if chosen and ("Delete",) not in self._given:
                self._delete_these(chosen, row)

    def _delete_these(self, entries: list[ReservationEntry], row: int) -> None:
        """Deleting these reservations, with the claims with which they hold devices."""
        snapshot, claims = self._snapshot, self._snapshot.cluster.claims
        names = sorted(entry.reservation.name for entry in entries)
        objects = [delete(RESERVATION, name) for name in names]
        held = [key for entry in entries for key in claims.held.of(entry.pod.uid)]
        objects += [delete(RESOURCE_CLAIM, key.name, key.namespace) for key in held]
        plural = "reservation" if len(names) == 1 else "reservations"
        node = snapshot.cluster.nodes.name(row)
        text = f"delete the {plural} {few(names, _NODES)} on {node}"
        self.propose_once(("Delete",), repair(text, "DeleteReservation", objects, DELETE_RESERVATION))

    def delete_plans(self, plans: list[PlannedReservation], row: int, missing: Amounts) -> None:
        """The fewest planned reservations that will take what is missing. One that a schedule made goes
        with the schedule, which is suspended."""
        taking = [each for each in plans if each.amounts.keys() & missing.keys()]
        taking.sort(key=lambda each: (each.start, each.reservation.name))
        sets = [[each] for each in taking[:_NODES]]
        if len(taking) > 1:
            sets.append(taking)
        for chosen in sets:
            if ("DeletePlans",) in self._given:
                return
            self.propose_once(("DeletePlans",), self._without_plans(chosen, row))

    def _without_plans(self, plans: list[PlannedReservation], row: int) -> Repair:
        snapshot = self._snapshot
        schedules = {
            raw["metadata"]["name"]: raw
            for each in plans
            if (raw := schedule_of(snapshot, each)) is not None
        }
        alone = [each.reservation.name for each in plans if schedule_of(snapshot, each) is None]
        objects = [delete(RESERVATION, each.reservation.name) for each in plans]
        objects += [patch(SCHEDULE, raw, {"spec": {"suspend": True}}) for raw in schedules.values()]
        texts = []
        if alone:
            plural = "reservation" if len(alone) == 1 else "reservations"
            node = snapshot.cluster.nodes.name(row)
            texts.append(f"delete the planned {plural} {few(alone, _NODES)} on {node}")
        if schedules:
            command = f"kubectl patch rsvs {' '.join(sorted(schedules))} --type merge -p"
            body = '{"spec":{"suspend":true}}'
            plural = "ReservationSchedule" if len(schedules) == 1 else "ReservationSchedules"
            names = few(sorted(schedules), _NODES)
            texts.append(f"suspend the {plural} {names} ({command} '{body}')")
        action = "DeleteReservation" if alone else "SuspendSchedule"
        return repair(" and ".join(texts), action, objects, DELETE_RESERVATION)

    # Ending pods

    def _evict_for_own(self, pod: PodRecord) -> None:
        """Pods that must end before the pod's own waiting reservation, or those of its job, have their
        capacity: the fewest on each node, the least important ones first."""
        snapshot = self._snapshot
        job = snapshot.cluster.jobs.of(pod)
        members = job.waiting() if job is not None and not job.is_ready else [pod]
        victims: dict[str, PodRecord] = {}
        nodes: set[str] = set()
        for member in members:
            for reservation in waiting_for(snapshot, member):
                entry = reservation.entry
                assert entry is not None
                found = self._enough(member, entry.row)
                if found:
                    victims |= {each.uid: each for each in found}
                    nodes.add(snapshot.cluster.nodes.name(entry.row))
        if not victims:
            return
        objects = [change for each in victims.values() for change in ended_pod(snapshot, each)]
        with applied(snapshot, objects):
            then = self._available_then(self._subject)
        self.propose_end(list(victims.values()), f" on {few(sorted(nodes), _NODES)}", then)

    def _enough(self, pod: PodRecord, row: int) -> list[PodRecord]:
        """The fewest evictable pods on a row that have what the pod lacks there; empty if all of them
        have too little."""
        missing = missing_on(self._snapshot, pod, row)
        pods = self._evictable(pod, row)
        single = [each for each in pods if _covers([each], missing)]
        if single:
            return single[:1]
        largest = sorted(pods, key=lambda each: -sum(dict(each.cls.usage).get(s, 0) for s in missing))
        for count in range(2, len(largest) + 1):
            if _covers(largest[:count], missing):
                return largest[:count]
        return []

    def _evict(self, pod: PodRecord, rows: list[int]) -> None:
        """The fewest pods whose end makes room, the least important ones first. Pods of daemons, of the
        system, of its own controller, and pods that a disruption budget protects, are left alone."""
        snapshot = self._snapshot
        for users in users_of_claims(snapshot, pod).values():
            if self.propose_end(users, ""):
                return
        found: list[tuple[int, int, str, list[PodRecord]]] = []
        for row in rows:
            victims = self._fewest(pod, row)
            if victims:
                highest = max(each.cls.priority for each in victims)
                found.append((len(victims), highest, snapshot.cluster.nodes.name(row), victims))
        for _, _, node, victims in sorted(found, key=lambda each: each[:3]):
            if self.propose_end(victims, f" on {node}"):
                return
        self._evict_claim_users(pod)

    def _evict_claim_users(self, pod: PodRecord) -> None:
        """The pods that share allocated claims with the pod: once they have ended, the claims can be
        allocated elsewhere."""
        cluster = self._snapshot.cluster
        needs = cluster.claims.of_class(pod.cls).claims
        claims = {each.key for each in needs if each.allocation is not None}
        if not claims:
            return
        users = [
            each
            for each in cluster.pods.values()
            if each.row >= 0
            and each is not pod
            and any(_claim_key(claim) in claims for claim in cluster.claims.reserved_for(each))
        ]
        evictable = {each.uid for row in {u.row for u in users} for each in self._evictable(pod, row)}
        if users and all(each.uid in evictable for each in users):
            nodes = sorted({cluster.nodes.name(each.row) for each in users})
            self.propose_end(users, f" on {few(nodes, _NODES)}")

    def propose_end(
        self, victims: list[PodRecord], where: str, then: Iterable[ObjectChange] = ()
    ) -> bool:
        ended = (change for each in victims for change in ended_pod(self._snapshot, each))
        objects = [*ended, *then]
        noun = "pod" if len(victims) == 1 else f"{len(victims)} pods"
        highest = max(each.cls.priority for each in victims)
        text = f"end {noun} {pods_text(victims)} (priority {highest}){where}"
        return self.propose(repair(text, "EndPods", objects, EVICT))

    def _evictable(self, pod: PodRecord, row: int) -> list[PodRecord]:
        """The pods on a row that may be advised to end, the least important ones first."""
        snapshot = self._snapshot
        controller = {each.uid for each in pod.cls.owners if each.controller}
        pods = [
            each
            for each in snapshot.cluster.ledger.pods.get(row, {}).values()
            if each.reservation is None
            and not each.cls.is_daemon
            and each.cls.priority < _CRITICAL
            and not controller.intersection(owner.uid for owner in each.cls.owners)
            and not any(owner.kind in _DAEMONS for owner in each.cls.owners)
        ]
        pods.sort(key=lambda each: (each.cls.priority, each.name))
        protected, pods = DisruptionBudgets(snapshot.cluster).split(pods)
        if protected:
            self._protected[snapshot.cluster.nodes.name(row)] = protected, pods
        return pods

    @property
    def budget_facts(self) -> list[str]:
        """The disruption budgets that kept pods from being advised to end, if nothing else helps."""
        if self._found:
            return []
        found, budgets = [], DisruptionBudgets(self._snapshot.cluster)
        for node, (protected, others) in self._protected.items():
            ended = [c for pod in (*protected, *others) for c in ended_pod(self._snapshot, pod)]
            with applied(self._snapshot, ended):
                helps = starts_on(self._snapshot, self._goal)
            for budget in budgets.violated_by(protected) if helps else ():
                pods = pods_text([pod for pod in protected if budget.protects(pod)])
                found.append(f"{budget.text}: ending {pods} on {node} is not advised")
        return found

    def _fewest(self, pod: PodRecord, row: int) -> list[PodRecord]:
        snapshot = self._snapshot
        scheduler = snapshot.scheduler
        pods = self._evictable(pod, row)
        profile = profile_for(scheduler, pod)
        column = scheduler.columns.column(profile, pod.cls)
        if not pods or column.rejected is not None:
            return []
        dry_run = DryRun(snapshot.cluster, column, pod, profile.pins(pod))
        asked = requested(pod)

        def size(each: PodRecord) -> float:
            amounts = dict(each.cls.usage)
            return sum(amounts.get(slot, 0) / asked[slot] for slot in asked if slot != PODS)

        orders = (
            lambda those: sorted(those, key=lambda each: (-each.cls.priority, size(each), each.name)),
            lambda those: sorted(those, key=lambda each: (size(each), -each.cls.priority, each.name)),
        )
        found = [dry_run.victims(row, pods, order) for order in orders]
        sets = [each for each in found if isinstance(each, list) and each]
        return min(sets, key=lambda each: (len(each), max(p.cls.priority for p in each)), default=[])


def _members_text(change: ClusterChange, text: str) -> str:
    """`, in each of 3 pods (w-0, w-1, w-2)`; empty if one pod is edited, or the text names them."""
    edited = dict.fromkeys(each.name for each in change.objects if _edits_pod(each))
    if len(edited) < 2 or any(f"/{name}" in text for name in edited):
        return ""
    return f", in each of {len(edited)} pods ({few(list(edited))})"


def _round_down(name: str, amount: int) -> int:
    """An amount that reads well, and is not larger: whole CPUs, whole GiB."""
    whole = {CPU_NAME: 1000, MEMORY_NAME: 2**30}.get(name, 1)
    return amount // whole * whole if amount >= 2 * whole else amount


def _claim_key(claim: ResourceClaim) -> ResourceClaimKey:
    return ResourceClaimKey(claim.metadata.namespace, claim.metadata.name)


def _covers(pods: list[PodRecord], missing: Amounts) -> bool:
    freed: Counter[int] = Counter()
    for each in pods:
        freed.update(dict(each.cls.usage))
    return all(freed[slot] >= lack for slot, lack in missing.items() if slot != PODS)


def _edits_pod(change: ObjectChange) -> bool:
    return change.info is POD and change.operation == PATCH and "status" not in change.body


def _actions(*repairs: Repair) -> tuple[str, ...]:
    return tuple(action for each in repairs for action in each.change.actions)

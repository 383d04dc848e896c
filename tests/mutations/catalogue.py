"""The mistakes, by what they break: the ledger, the resource managers, reservations and holds.

Each breaks one rule of the design. The text before a mistake occurs once in its file, so that whoever
moves a rule in the code also moves its mistake here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    name: str
    rule: str
    """The rule that does not hold with the mistake."""
    file: str
    """Below `src/holdfast`."""
    before: str
    after: str
    tests: tuple[str, ...]
    """Below `tests`: files or tests, the quickest first, of which one fails."""

    @property
    def module(self) -> str:
        name = "holdfast." + self.file.removesuffix(".py").replace("/", ".")
        return name.removesuffix(".__init__")

    def applied(self, source: str) -> str:
        """The file with the mistake in it."""
        found = source.count(self.before)
        if found != 1:
            raise LookupError(f"{self.name}: its text occurs {found} times in {self.file}, not once")
        return source.replace(self.before, self.after)


LEDGER = (
    Mutation(
        "pod-claims-nothing",
        "a pod on a node claims its requests",
        "scheduler/cluster/ledger.py",
        "                column += claim",
        "                column += 0 * claim",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "pod-gone-still-claims",
        "a pod that is gone gives its requests back",
        "scheduler/cluster/ledger.py",
        "                column -= claim",
        "                column -= 0 * claim",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "row-closed-while-undoing",
        "the row of a deleted node stays open while a pod on it is being put back",
        "scheduler/cluster/ledger.py",
        "        if self._depth or self.undoing or not self._emptied:",
        "        if self._depth or not self._emptied:",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "place-not-undone",
        "undoing a transaction takes a placed pod away again",
        "scheduler/cluster/ledger.py",
        """        pod.row = row
        if self._depth:
            self._undo.append(lambda: self.remove(pod))""",
        """        pod.row = row
        if self._depth > 1:
            self._undo.append(lambda: self.remove(pod))""",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "remove-not-undone",
        "undoing a transaction puts a removed pod back",
        "scheduler/cluster/ledger.py",
        """        if self._depth:
            self._undo.append(lambda: self.place(pod, row))""",
        """        if self._depth > 1:
            self._undo.append(lambda: self.place(pod, row))""",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "undone-forwards",
        "steps are undone in reverse order",
        "scheduler/cluster/ledger.py",
        "for step in reversed(steps):",
        "for step in list(steps):",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "inner-commit-final",
        "a nested commit is undone with the transaction around it",
        "scheduler/cluster/ledger.py",
        """                if not self._depth:
                    self._undo.clear()""",
        """                self._undo.clear()""",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "reservation-claims-nothing",
        "a live reservation claims what remains of it",
        "scheduler/cluster/ledger.py",
        """            more = left - before.get(slot, 0)
            if more:""",
        """            more = left - before.get(slot, 0)
            if more < 0:""",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "release-keeps-claim",
        "a reservation that ends gives back what remained of it",
        "scheduler/cluster/ledger.py",
        "                table.claimed[slot, row] -= left\n",
        "                pass\n",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "release-not-undone",
        "undoing a transaction gives a released reservation its capacity back",
        "scheduler/cluster/ledger.py",
        "self._undo.append(lambda: self.reserve(pod, row, amounts))",
        "self._undo.append(lambda: None)",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "hold-not-undone",
        "undoing a transaction releases a reservation that was placed in it",
        "scheduler/cluster/ledger.py",
        "self._undo.append(lambda: self.release(pod))",
        "self._undo.append(lambda: None)",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "resize-not-undone",
        "undoing a transaction restores the size of a resized reservation",
        "scheduler/cluster/ledger.py",
        "self._undo.append(lambda: self.resize(pod, before))",
        "self._undo.append(lambda: None)",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "allocation-not-undone",
        "undoing a transaction returns what a pod allocated from a reservation",
        "scheduler/cluster/ledger.py",
        "self._undo.append(lambda: self.allocate_from(pod, before))",
        "self._undo.append(lambda: None)",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "shrunk-slot-kept",
        "a resource a resized reservation no longer reserves is given back",
        "scheduler/cluster/ledger.py",
        "            table.claimed[slot, row] -= before[slot]\n",
        "            pass\n",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "owner-takes-twice",
        "an owner is allocated from its reservation first, and only the rest from the node",
        "scheduler/cluster/reservation_usage.py",
        "claims[slot] = claims.get(slot, 0) + left - usage.remaining[slot]",
        "claims[slot] = claims.get(slot, 0)",
        ("scheduler/cluster/test_reservation_usage.py",),
    ),
    Mutation(
        "remaining-below-zero",
        "what remains of a reservation is never negative",
        "scheduler/cluster/reservation_usage.py",
        "{slot: max(0, amount - taken.get(slot, 0)) for slot, amount in amounts.items()}",
        "{slot: amount - taken.get(slot, 0) for slot, amount in amounts.items()}",
        ("scheduler/cluster/test_reservation_usage.py",),
    ),
    Mutation(
        "allocated-capped",
        "what owners have of a reservation is not capped at what it reserves",
        "scheduler/cluster/reservation_usage.py",
        "            if amount:\n                taken[slot] = amount",
        "            if amount:\n                taken[slot] = min(amount, usage.amounts[slot])",
        ("scheduler/cluster/test_reservation_usage.py",),
    ),
    Mutation(
        "owner-elsewhere-takes",
        "a pod on another node takes nothing of a reservation",
        "scheduler/cluster/ledger.py",
        "        if entry is not None and entry.row == row:\n            usage, claims",
        "        if entry is not None:\n            usage, claims",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "owners-forgotten-on-hold",
        "owners already on the node count when their reservation is placed",
        "scheduler/cluster/ledger.py",
        "self._claim_left(entry, {}, self._usage_by_pods(entry, entry.usage))",
        "self._claim_left(entry, {}, entry.usage)",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "owners-forgotten-on-resize",
        "what owners have is kept when their reservation is resized",
        "scheduler/cluster/ledger.py",
        "usage = self._usage_by_pods(entry, self.reservations.renewed(entry, amounts))",
        "usage = self.reservations.renewed(entry, amounts)",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "ports-not-counted",
        "host ports of pods and reserve pods are taken",
        "scheduler/cluster/ledger.py",
        "            self._table.ports.add(row, port, sign)",
        "            self._table.ports.add(row, port, 0)",
        ("scheduler/cluster/test_ledger.py",),
    ),
    Mutation(
        "wildcard-port-free",
        "a port on the wildcard address conflicts with the same port on every address",
        "scheduler/cluster/node_table.py",
        "return (self.uses(port), self.uses(port._replace(ip=WILDCARD)))",
        "return (self.uses(port),)",
        ("scheduler/plugins",),
    ),
    Mutation(
        "daemon-may-end",
        "pods that never end are counted apart",
        "scheduler/cluster/ledger.py",
        "                table.daemon_requested[slot, row] += sign * amount",
        "                table.daemon_requested[slot, row] += 0 * amount",
        ("scheduler/actions/test_reserve.py",),
    ),
    Mutation(
        "row-log-silent",
        "a row on which something changed is in the row log",
        "scheduler/cluster/ledger.py",
        """            listen(pod, row, sign)
        self._usage_log.add(row)""",
        """            listen(pod, row, sign)
        self._usage_log.add(row if sign > 0 else 0)""",
        ("scheduler/actions/test_reserve.py",),
    ),
    Mutation(
        "lowest-priority-stale",
        "the lowest priority on a node follows the pods that leave",
        "scheduler/cluster/ledger.py",
        "table.lowest[row] = _lowest(on_row.values(), cls.priority)",
        "pass",
        ("scheduler/cluster/test_ledger.py",),
    ),
)

RESERVATIONS = (
    Mutation(
        "owner-namespace-ignored",
        "an owner that names a namespace means pods of that namespace only",
        "scheduler/reservations/owners.py",
        "(not wanted.namespace or wanted.namespace == cls.namespace)",
        "(not wanted.namespace or bool(cls.namespace))",
        ("scheduler/reservations/test_owners_and_affinity.py",),
    ),
    Mutation(
        "owner-controller-ignored",
        "an owner that names a controller means pods of that controller only",
        "scheduler/reservations/owners.py",
        "return any(_is_reference(wanted, owner) for owner in cls.owners)",
        "return bool(cls.owners)",
        ("scheduler/reservations/test_owners_and_affinity.py",),
    ),
    Mutation(
        "owner-selector-ignored",
        "an owner's label selector is honoured",
        "scheduler/reservations/owners.py",
        "and (self._selector is None or self._selector.matches(cls.labels))",
        "and (self._selector is None or self._selector is not None)",
        ("scheduler/reservations/test_owners_and_affinity.py",),
    ),
    Mutation(
        "ignored-label-unread",
        "a pod that ignores reservations is no owner of any",
        "scheduler/reservations/owners.py",
        'or cls.labels.get(RESERVATION_IGNORED) == "true"',
        'or cls.labels.get(RESERVATION_IGNORED) == "yes"',
        ("scheduler/reservations/test_owners_and_affinity.py",),
    ),
    Mutation(
        "reservation-taint-open",
        "a reservation's taint keeps out owners that do not tolerate it",
        "scheduler/reservations/reservation_affinity.py",
        "taint.effect in _KEEPING_OUT]",
        "taint.effect in _KEEPING_OUT and not taint.key]",
        ("scheduler/reservations/test_owners_and_affinity.py",),
    ),
    Mutation(
        "exact-match-unread",
        "an exact match is asked of the resources a pod names",
        "scheduler/reservations/reservation_affinity.py",
        "        return not (self._exact and self.unequal(reservation))",
        "        return True",
        ("scheduler/reservations/test_owners_and_affinity.py",),
    ),
    Mutation(
        "waiting-usable",
        "no pod is allocated from a reservation that waits for its capacity",
        "scheduler/reservations/reservation_index.py",
        "            and not reservation.waiting\n            and not reservation.ending\n",
        "            and not reservation.ending\n",
        ("scheduler/reservations/test_proposal_scheduling.py",),
    ),
    Mutation(
        "evicted-usable",
        "no pod is allocated from a reservation that is being preempted",
        "scheduler/cluster/records.py",
        "return self.deleting or self.expiring or self.being_evicted\n",
        "return self.deleting or self.expiring\n",
        ("scheduler/plugins/test_reservation_preemption.py",),
    ),
    Mutation(
        "once-used-twice",
        "an allocateOnce reservation serves one owner",
        "scheduler/reservations/reservation_index.py",
        "and reservation.uid in self._allocated\n",
        "and False\n",
        ("scheduler/reservations/test_allocation.py",),
    ),
    Mutation(
        "restricted-open",
        "what a Restricted reservation reserves comes from it alone",
        "scheduler/framework/feasibility/reservation_scores.py",
        "        if entry.reservation.restricted is not None and self.lacking(entry):",
        "        if entry.reservation.restricted is not None and not self.lacking(entry):",
        ("scheduler/reservations/test_restricted.py",),
    ),
    Mutation(
        "expiry-missed",
        "a reservation ends when it expires",
        "scheduler/controllers/reservation_lifecycle.py",
        "        expires, unused = reservation.expires, ",
        "        expires, unused = None, ",
        ("scheduler/controllers/test_reservation_lifecycle.py",),
    ),
    Mutation(
        "node-gone-missed",
        "a reservation on a node that is gone expires",
        "scheduler/controllers/reservation_lifecycle.py",
        "if reservation.node_gone or not self._cluster.nodes.alive[pod.row]:",
        "if reservation.node_gone and reservation.waiting:",
        ("scheduler/controllers/test_reservation_lifecycle.py",),
    ),
    Mutation(
        "once-never-succeeds",
        "an allocateOnce reservation with a bound owner has succeeded",
        "scheduler/controllers/reservation_lifecycle.py",
        "self._is_used(reservation):\n                if reservation.waiting:\n",
        "False:\n                if reservation.waiting:\n",
        ("scheduler/controllers/test_reservation_lifecycle.py",),
    ),
    Mutation(
        "grows-without-capacity",
        "a reservation grows only where the node has the capacity",
        "scheduler/controllers/reservation_lifecycle.py",
        "if not lacking:\n            self._reservations.resize(reservation, wanted)",
        "if lacking or not lacking:\n            self._reservations.resize(reservation, wanted)",
        ("scheduler/controllers/test_reservation_lifecycle.py",),
    ),
    Mutation(
        "never-collected",
        "a finished reservation is collected after its time",
        "scheduler/controllers/reservation_lifecycle.py",
        "        if self._gc_after is None:\n            return\n",
        "        if self._gc_after is None or now >= 0:\n            return\n",
        ("scheduler/controllers/test_reservation_lifecycle.py",),
    ),
    Mutation(
        "allocated-of-unbound",
        "only bound pods are named as current owners",
        "scheduler/reservations/reservation_status.py",
        "bound = [pod for pod in allocated_pods if pod.phase is Phase.ASSIGNED]",
        "bound = [pod for pod in allocated_pods if pod.phase is not Phase.PENDING]",
        ("scheduler/reservations/test_random_reservations.py",),
    ),
    Mutation(
        "virtual-too-small",
        "a created reservation replaces a virtual one only if it is at least as large",
        "scheduler/reservations/virtual_reservations.py",
        "            if name and given < least:",
        "            if name and given < 0 * least:",
        ("scheduler/controllers/test_provisioner_faults.py",),
    ),
    Mutation(
        "preemption-hold-kept",
        "a preemption hold ends with the pod it is for",
        "scheduler/controllers/reservation_lifecycle.py",
        "            return owner is None or owner.reservation_uid != reservation.uid",
        "            return owner is not None and owner.reservation_uid != reservation.uid",
        ("scheduler/reservations/test_preemption_holds.py",),
    ),
)

HOLDS = (
    Mutation(
        "held-node-open",
        "a node with a starvation hold takes nothing new",
        "scheduler/reservations/starvation_holds.py",
        "        rows = self.rows()\n        if not cls.private:",
        "        rows = self.rows() & False\n        if not cls.private:",
        ("scheduler/actions/test_reserve.py",),
    ),
    Mutation(
        "own-hold-closed",
        "a starvation hold does not keep out the pod it is for",
        "scheduler/reservations/starvation_holds.py",
        "            rows[own] = False",
        "            rows[own] = True",
        ("scheduler/actions/test_reserve.py",),
    ),
    Mutation(
        "percent-ignored",
        "no more than the configured share of nodes is held",
        "scheduler/framework/hold_planner.py",
        "        return math.ceil(self._nodes.count * percent / 100)",
        "        return self._nodes.count if percent else 0",
        ("scheduler/actions/test_reserve.py",),
    ),
    Mutation(
        "held-beyond-node",
        "what is held on a node, with pods that never end, is within what it has",
        "scheduler/framework/hold_planner.py",
        "            self._unavailable(slot)[row] + amount <= feasibility.capacity(slot)[row]",
        "            amount <= feasibility.capacity(slot)[row]",
        ("scheduler/actions/test_reserve.py",),
    ),
    Mutation(
        "reusable-used-up",
        "a reusable reservation has again what its owners used",
        "scheduler/cluster/ledger.py",
        "        if entry.reservation.once or not entry.taken:",
        "        if entry.reservation or not entry.taken:",
        ("scheduler/reservations/test_waiting_beside_reusable.py",),
    ),
    Mutation(
        "half-a-gang-held",
        "holds are made only if they make the whole job ready",
        "scheduler/framework/hold_planner.py",
        "        if not (ready or on_condition):",
        "        if not (ready or on_condition or held):",
        ("scheduler/actions/test_reserve.py",),
    ),
    Mutation(
        "starves-too-soon",
        "a job starves once it has waited for the threshold",
        "scheduler/actions/reserve.py",
        "self._timers.put(unit.key, unit.since + self._threshold, pod)",
        "self._timers.put(unit.key, unit.since + self._threshold / 2, pod)",
        ("scheduler/actions/test_reserve.py",),
    ),
    Mutation(
        "late-status-undoes",
        "a status that the server carries out late undoes no later one",
        "kube/writer/status_writes.py",
        """    return {"uid": ref.uid} | ({"resourceVersion": version} if version else {})""",
        """    return {"uid": ref.uid}""",
        ("kube/writer/test_reservation_writes.py",),
    ),
    Mutation(
        "interrupted-start-backs-off",
        "the rest of a gang whose start was interrupted is tried before others, at once",
        "scheduler/framework/scheduling_queue.py",
        "        if due > now and not self._ignores_backoff(pod):",
        "        if due > now:",
        ("scheduler/framework/test_gangs.py",),
    ),
    Mutation(
        "gang-ready-early",
        "a job is ready when as many members as it needs have a place",
        "scheduler/jobs/job.py",
        "        if have < least:",
        "        if have + 1 < least:",
        ("scheduler/framework/test_gangs.py",),
    ),
    Mutation(
        "task-minimum-ignored",
        "a job needs so many members of each task",
        "scheduler/jobs/job.py",
        "            if tasks[task] < needed:",
        "            if tasks[task] < 0 * needed:",
        ("scheduler/jobs/test_queue_limits.py",),
    ),
    Mutation(
        "statement-kept",
        "what was placed for a job that is not ready is given back",
        "scheduler/framework/scheduling_cycle.py",
        "            self._cycle.binding.unreserve(profile, pod)",
        "            pass",
        ("scheduler/framework/test_gangs.py",),
    ),
    Mutation(
        "capability-ignored",
        "a queue has no more than its capability",
        "scheduler/jobs/queue_limits.py",
        "                slot: limit - record.allocated.get(slot, 0)",
        "                slot: limit",
        ("scheduler/jobs/test_queues.py",),
    ),
    Mutation(
        "held-is-nobodys",
        "what is held for starving jobs of a queue counts as theirs",
        "scheduler/jobs/queue_limits.py",
        "            total.update(pod.cls.amounts)\n        return total\n\n    def held_pods",
        "            pass\n        return total\n\n    def held_pods",
        ("scheduler/jobs/test_queues.py",),
    ),
    Mutation(
        "guarantee-ignored",
        "what is guaranteed to other queues is kept free",
        "scheduler/jobs/queue_limits.py",
        "            free = self._free(slot) - kept",
        "            free = self._free(slot)",
        ("scheduler/jobs/test_queues.py",),
    ),
)

MANAGERS = (
    Mutation(
        "device-not-taken",
        "a pod's share of a device is taken from what is free",
        "scheduler/managers/devices/device_table.py",
        "                self.free[resource, row, at] -= sign * amount",
        "                self.free[resource, row, at] -= 0 * amount",
        ("scheduler/plugins/test_device_share.py",),
    ),
    Mutation(
        "device-not-returned",
        "a pod that is gone gives its share of a device back",
        "scheduler/managers/devices/device_table.py",
        "                self.free[resource, row, at] -= sign * amount",
        "                self.free[resource, row, at] -= max(0, sign) * amount",
        ("scheduler/plugins/test_device_share.py",),
    ),
    Mutation(
        "gpu-core-unchecked",
        "a GPU serves a pod only if its core is free too",
        "scheduler/managers/devices/device_table.py",
        "        return ok & (available[CORE] >= core) if core else ok",
        "        return ok",
        ("scheduler/managers/devices/test_random_devices.py",),
    ),
    Mutation(
        "reserved-device-open",
        "what remains of a reserved device is not free to others",
        "scheduler/managers/devices/device_manager.py",
        "                    table.free[:, row] -= left",
        "                    table.free[:, row] -= 0 * left",
        ("scheduler/plugins/test_device_share.py",),
    ),
    Mutation(
        "owner-device-counted-twice",
        "what an owner has of a reserved device is not reserved besides",
        "scheduler/managers/devices/device_manager.py",
        "left = np.maximum(held - taken.get(uid, 0), 0)",
        "left = np.maximum(held, 0)",
        ("scheduler/managers/devices/test_random_devices.py",),
    ),
    Mutation(
        "partition-any-set",
        "GPUs of a partitioned node are given as one of its sets",
        "scheduler/managers/devices/partitions.py",
        "if each.minors <= usable]",
        "if each.minors & usable]",
        ("scheduler/managers/devices/test_partitions.py",),
    ),
    Mutation(
        "cpu-given-twice",
        "a CPU that somebody has is not free",
        "scheduler/managers/numa/allocation.py",
        "        return NumaCapacity(self.cpus - other.cpus, zones)",
        "        return NumaCapacity(self.cpus, zones)",
        ("scheduler/plugins/test_node_numa_resource.py",),
    ),
    Mutation(
        "numa-amount-given-twice",
        "what somebody has of a NUMA node is not free",
        "scheduler/managers/numa/allocation.py",
        "zones[numa][name] -= min(value, zones[numa][name]) if most else value",
        "zones[numa][name] -= 0 * value",
        ("scheduler/plugins/test_node_numa_resource.py",),
    ),
    Mutation(
        "guess-not-settled",
        "what a pod was assigned in Reserve is written on it",
        "scheduler/managers/resource_manager.py",
        "        self.settled[pod.uid] = self.tentative.pop(pod.uid)\n",
        "        pass\n",
        ("scheduler/plugins/test_device_share.py",),
    ),
    Mutation(
        "written-devices-unread",
        "the devices and CPUs written on a pod are the ones it has",
        "scheduler/managers/resource_manager.py",
        "            self.settled[pod.uid] = found\n            self.chosen.pop(pod.uid, None)",
        "            self.chosen.pop(pod.uid, None)",
        ("scheduler/managers/devices/test_random_devices.py",),
    ),
)

MUTATIONS = (*LEDGER, *RESERVATIONS, *HOLDS, *MANAGERS)
BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}

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
        "core/ledger.py",
        "(np.add if sign > 0 else np.subtract)(column, self._usage(cls), column)",
        "(np.add if sign > 1 else np.subtract)(column, 0 * self._usage(cls), column)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "pod-gone-still-claims",
        "a pod that is gone gives its requests back",
        "core/ledger.py",
        "(np.add if sign > 0 else np.subtract)(column, self._usage(cls), column)",
        "np.add(column, max(sign, 0) * self._usage(cls), column)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "place-not-undone",
        "undoing a transaction takes a placed pod away again",
        "core/ledger.py",
        """        pod.row = row
        if self._depth:
            self._undo.append(lambda: self.remove(pod))""",
        """        pod.row = row
        if self._depth > 1:
            self._undo.append(lambda: self.remove(pod))""",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "remove-not-undone",
        "undoing a transaction puts a removed pod back",
        "core/ledger.py",
        """        if self._depth:
            self._undo.append(lambda: self.place(pod, row))""",
        """        if self._depth > 1:
            self._undo.append(lambda: self.place(pod, row))""",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "undone-forwards",
        "steps are undone in reverse order",
        "core/ledger.py",
        "for step in reversed(steps):",
        "for step in list(steps):",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "inner-commit-final",
        "a nested commit is undone with the transaction around it",
        "core/ledger.py",
        """                if not self._depth:
                    self._undo.clear()""",
        """                self._undo.clear()""",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "reservation-claims-nothing",
        "a live reservation claims what remains of it",
        "core/ledger.py",
        """            more = left - before.get(slot, 0)
            if more:""",
        """            more = left - before.get(slot, 0)
            if more < 0:""",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "release-keeps-claim",
        "a reservation that ends gives back what remained of it",
        "core/ledger.py",
        "                table.claimed[slot, row] -= left\n",
        "                pass\n",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "release-not-undone",
        "undoing a transaction gives a released reservation its capacity back",
        "core/ledger.py",
        "self._undo.append(lambda: self.hold(pod, row, amounts))",
        "self._undo.append(lambda: None)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "hold-not-undone",
        "undoing a transaction releases a reservation that was placed in it",
        "core/ledger.py",
        "self._undo.append(lambda: self.release(pod))",
        "self._undo.append(lambda: None)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "resize-not-undone",
        "undoing a transaction restores the size of a resized reservation",
        "core/ledger.py",
        "self._undo.append(lambda: self.resize(pod, before))",
        "self._undo.append(lambda: None)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "draw-not-undone",
        "undoing a transaction returns what a pod allocated from a reservation",
        "core/ledger.py",
        "self._undo.append(lambda: self.draw(pod, before))",
        "self._undo.append(lambda: None)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "shrunk-slot-kept",
        "a resource a resized reservation no longer reserves is given back",
        "core/ledger.py",
        "            table.claimed[slot, row] -= before[slot]\n",
        "            pass\n",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "owner-takes-twice",
        "an owner is allocated from its reservation first, and only the rest from the node",
        "core/fills.py",
        "claims[slot] = claims.get(slot, 0) + left - fill.remaining[slot]",
        "claims[slot] = claims.get(slot, 0)",
        ("core/test_fills.py",),
    ),
    Mutation(
        "remaining-below-zero",
        "what remains of a reservation is never negative",
        "core/fills.py",
        "{slot: max(0, amount - taken.get(slot, 0)) for slot, amount in amounts.items()}",
        "{slot: amount - taken.get(slot, 0) for slot, amount in amounts.items()}",
        ("core/test_fills.py",),
    ),
    Mutation(
        "allocated-capped",
        "what owners have of a reservation is not capped at what it reserves",
        "core/fills.py",
        "            if amount:\n                taken[slot] = amount",
        "            if amount:\n                taken[slot] = min(amount, fill.amounts[slot])",
        ("core/test_fills.py",),
    ),
    Mutation(
        "owner-elsewhere-takes",
        "a pod on another node takes nothing of a reservation",
        "core/ledger.py",
        "        if hold is not None and hold.row == row:\n            fill, claims",
        "        if hold is not None:\n            fill, claims",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "owners-forgotten-on-hold",
        "owners already on the node count when their reservation is placed",
        "core/ledger.py",
        "self._claim_left(hold, {}, self._drawn_on(hold, hold.fill))",
        "self._claim_left(hold, {}, hold.fill)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "owners-forgotten-on-resize",
        "what owners have is kept when their reservation is resized",
        "core/ledger.py",
        "fill = self._drawn_on(hold, self.holds.renewed(hold, amounts))",
        "fill = self.holds.renewed(hold, amounts)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "ports-not-counted",
        "host ports of pods and reserve pods are taken",
        "core/ledger.py",
        "            self._table.ports.add(row, port, sign)",
        "            self._table.ports.add(row, port, 0)",
        ("core/test_ledger.py",),
    ),
    Mutation(
        "wildcard-port-free",
        "a port on the wildcard address conflicts with the same port on every address",
        "core/ports.py",
        "return (self.uses(port), self.uses(port._replace(ip=WILDCARD)))",
        "return (self.uses(port),)",
        ("plugins",),
    ),
    Mutation(
        "daemon-may-end",
        "pods that never end are counted apart",
        "core/ledger.py",
        "                self._table.permanent[slot, row] += sign * amount",
        "                self._table.permanent[slot, row] += 0 * amount",
        ("jobs/test_reserve.py",),
    ),
    Mutation(
        "row-log-silent",
        "a row on which something changed is in the row log",
        "core/ledger.py",
        """            listen(pod, row, sign)
        self.changed.add(row)""",
        """            listen(pod, row, sign)
        self.changed.add(row if sign > 0 else 0)""",
        ("jobs/test_reserve.py",),
    ),
    Mutation(
        "lowest-priority-stale",
        "the lowest priority on a node follows the pods that leave",
        "core/ledger.py",
        "self._table.lowest[row] = _lowest(on_row.values(), cls.priority)",
        "pass",
        ("core/test_ledger.py",),
    ),
)

MUTATIONS = LEDGER
BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}

"""The tables of `holdfast what-if`."""

from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.api.plurals import number_of, plural
from holdfast.api.quantity import shown
from holdfast.cli.text_table import Column, Screen, TextTable
from holdfast.sim.what_if.answer import NODE_PODS, WhatIfAnswer, by_workload, pending_groups
from holdfast.sim.what_if.capacity import ResourceAmounts
from holdfast.sim.what_if.node_plan import NodePlan, PendingCount, most_frequent_first

_MOST_NODES = 6
_MOST_ROWS = 40


def print_answer(screen: Screen, answer: WhatIfAnswer) -> None:
    if answer.changes:
        screen.note("What if: " + "; ".join(answer.changes))
    if answer.plan is not None:
        _print_plan(screen, answer, answer.plan)
    if answer.placed:
        screen.show(_placed(answer))
    if answer.displaced:
        screen.show(_displaced(answer))
    if answer.lost_reservations:
        screen.show(_lost_reservations(answer))
    if answer.pending:
        screen.show(_pending(answer))
    if answer.blocked:
        screen.show(_blocked(answer))
    if answer.nodes:
        screen.show(_nodes(answer))
    screen.show(_capacity(answer))
    if answer.capacity_note:
        screen.note(f"note: {answer.capacity_note}")
    for note in answer.notes:
        screen.note(f"note: {note}")
    screen.note(summary_text(answer))


def summary_text(answer: WhatIfAnswer) -> str:
    """One sentence."""
    counts = answer.counts()
    parts = [f"{counts['placed']} placed"]
    if waited := counts["placedThatWerePending"]:
        parts[0] += f" ({waited} of them pending before)"
    if counts["preempted"]:
        parts.append(f"{counts['preempted']} preempted")
    if others := counts["displaced"] - counts["preempted"]:
        parts.append(f"{others} displaced")
    if counts["lost"]:
        parts.append(f"{counts['lost']} lost without replacement")
    if reservations := counts["lostReservations"]:
        parts.append(f"{number_of(reservations, 'reservation')} lost")
    parts.append(f"{counts['newlyPending']} newly pending")
    if still := counts["pending"] - counts["newlyPending"]:
        parts.append(f"{still} still pending")
    if counts["blockedEvictions"]:
        parts.append(f"{counts['blockedEvictions']} evictions blocked")
    return f"{', '.join(parts)}."


def _print_plan(screen: Screen, answer: WhatIfAnswer, plan: NodePlan) -> None:
    wanted = [f"{count} x {shape}" for shape, count in plan.nodes.items() if count]
    nodes = number_of(plan.total, "node")
    if not plan.total:
        text = "no more nodes are needed" if plan.fits else "more nodes of these shapes do not help"
    elif plan.exact:
        text = f"{nodes} needed: {', '.join(wanted)}; fewer do not suffice"
    else:
        text = f"{nodes} needed: {', '.join(wanted)}; not all smaller numbers were tried"
    screen.note(f"Plan: {text}{_lost_text(answer)}")
    if plan.binding:
        screen.note(f"With one node less: {_counted(plan.binding)}")
    if count := plan.unplaceable.total:
        do = plural(count, "does", "do")
        why = _counted(plan.unplaceable_reasons)
        screen.note(f"{plan.unplaceable} {do} not fit with any number of these nodes: {why}")


def _lost_text(answer: WhatIfAnswer) -> str:
    """Pods without a controller that everything fits at the expense of."""
    lost = sum(each.reason == "Preempted" for each in answer.lost)
    if not lost:
        return ""
    return f"; but {number_of(lost, 'pod is', 'pods are')} preempted and not replaced"


def _counted(reasons: dict[str, PendingCount]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in most_frequent_first(reasons))


def _placed(answer: WhatIfAnswer) -> TextTable:
    table = TextTable(
        "Placed", [Column("workload"), Column("was"), Column("pods", right=True), Column("nodes")]
    )
    groups = by_workload(answer.placed)
    for (workload, was), pods in [*groups.items()][:_MOST_ROWS]:
        where = _tallied(each.node for each in pods)
        if allocated := [each.reservation for each in pods if each.reservation]:
            some = f", {len(allocated)} of them" if len(allocated) < len(pods) else ""
            only = len(set(allocated)) == 1
            where += f"{some} by reservation {allocated[0] if only else _tallied(allocated)}"
        table.add(workload, was, str(len(pods)), where, styled=1, style="green")
    _note_more(table, len(groups))
    return table


def _displaced(answer: WhatIfAnswer) -> TextTable:
    columns = ("pod", "reason", "from", "replaced by", "to")
    table = TextTable("Displaced", [Column(each) for each in columns])
    for each in answer.displaced[:_MOST_ROWS]:
        reason = f"{each.reason} by {each.by}" if each.by else each.reason
        made = each.replaced_by.removeprefix("Pod/") or ("" if each.reason == "Deleted" else "nothing")
        to = each.to or ("pending" if each.replaced_by else "")
        style = "magenta" if each.to or each.reason == "Deleted" else "red"
        pod = each.object.removeprefix("Pod/")
        table.add(pod, reason, each.node, made, to, styled=1, style=style)
    _note_more(table, len(answer.displaced))
    return table


def _lost_reservations(answer: WhatIfAnswer) -> TextTable:
    columns = ("reservation", "reason", "node")
    table = TextTable("Lost reservations", [Column(each) for each in columns])
    for each in answer.lost_reservations[:_MOST_ROWS]:
        reason = f"{each.reason} by {each.by}" if each.by else each.reason
        name = each.object.removeprefix("Reservation/")
        table.add(name, reason, each.node, styled=1, style="red")
    _note_more(table, len(answer.lost_reservations))
    return table


def _pending(answer: WhatIfAnswer) -> TextTable:
    table = TextTable(
        "Pending", [Column("workload"), Column("was"), Column("pods", right=True), Column("reason")]
    )
    groups = pending_groups(answer.pending)
    for (workload, was, message), pods in [*groups.items()][:_MOST_ROWS]:
        table.add(workload, was, str(len(pods)), message, styled=1, style="yellow")
    _note_more(table, len(groups))
    return table


def _blocked(answer: WhatIfAnswer) -> TextTable:
    table = TextTable(
        "Blocked evictions", [Column("pod"), Column("node"), Column("budget"), Column("")]
    )
    for each in answer.blocked[:_MOST_ROWS]:
        pod = str(each.pod).removeprefix("Pod/")
        table.add(pod, each.node, each.budget, each.message, styled=2, style="red")
    _note_more(table, len(answer.blocked))
    return table


def _nodes(answer: WhatIfAnswer) -> TextTable:
    table = TextTable("Nodes", [Column("node"), Column("change"), Column(NODE_PODS, right=True)])
    for each in answer.nodes[:_MOST_ROWS]:
        table.add(each.name, each.change, str(each.pods))
    _note_more(table, len(answer.nodes))
    return table


def _note_more(table: TextTable, count: int) -> None:
    if count > _MOST_ROWS:
        rest = [""] * (len(table.columns) - 1)
        table.add(f"and {count - _MOST_ROWS} more; -o json has all", *rest, style="dim")


def _capacity(answer: WhatIfAnswer) -> TextTable:
    before, after = answer.before, answer.after
    has_reserved = any(each.reserved for part in (before, after) for each in part.resources.values())
    table = TextTable(
        "Capacity before and after",
        [
            Column("resource"),
            Column("allocatable", right=True),
            Column("requested", right=True),
            *([Column("reserved", right=True)] if has_reserved else []),
            Column("free", right=True),
            Column("utilisation", right=True),
            Column("fragmentation", right=True),
        ],
    )
    nodes = _change(str(before.nodes), str(after.nodes))
    table.add("nodes", nodes, *[""] * (len(table.columns) - 2))
    none = ResourceAmounts("", 0, 0, 0, 0, 0)
    for name in dict.fromkeys((*before.resources, *after.resources)):
        if name in ("pods", "ephemeral-storage"):
            continue
        old = before.resources.get(name, none)
        new = after.resources.get(name, none)
        table.add(
            name,
            _change(shown(name, old.allocatable), shown(name, new.allocatable)),
            _change(shown(name, old.requested), shown(name, new.requested)),
            *([_change(shown(name, old.reserved), shown(name, new.reserved))] if has_reserved else []),
            _change(shown(name, old.free), shown(name, new.free)),
            _change(_percent(old.utilisation), _percent(new.utilisation)),
            _change(_percent(old.fragmentation), _percent(new.fragmentation)),
        )
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} -> {after}"


def _tallied(names: Iterable[str]) -> str:
    """Each name once, with how often it occurs if that is more than once: `n1 (2), n2`."""
    return _few([f"{name} ({n})" if n > 1 else name for name, n in sorted(Counter(names).items())])


def _few(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NODES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NODES])} and {len(names) - _MOST_NODES} more"

"""The answer as one HTML file, in the style of reports: complete without a script or a server."""

from collections import Counter
from collections.abc import Sequence
from html import escape

from holdfast.api.quantity import shown
from holdfast.api.times import format_time
from holdfast.sim.figures import share
from holdfast.sim.report.page import document, table
from holdfast.sim.what_if.answer import NODE_PODS, WhatIfAnswer, by_workload, pending_groups
from holdfast.sim.what_if.capacity import ClusterCapacity

_MOST = 1_000
_HIDDEN = ("pods", "ephemeral-storage")


def answer_page(answer: WhatIfAnswer) -> str:
    changes = "".join(f"<li>{escape(each)}</li>" for each in answer.changes)
    texts = [answer.capacity_note] if answer.capacity_note else []
    texts += answer.notes
    notes = "".join(f'<p class="note">{escape(each)}</p>' for each in texts)
    body = f"""<h1>What if</h1>
<p class="sub">Cluster as of {format_time(answer.time)}</p>
<ul>{changes}</ul>
<section class="cards" aria-label="Figures">{_cards(answer)}</section>
{_plan(answer)}{_placed(answer)}{_displaced(answer)}{_lost_reservations(answer)}
{_pending(answer)}{_blocked(answer)}{_nodes(answer)}
<h2>Capacity before and after</h2>
{_capacity(answer)}
{notes}"""
    return document("What if", body)


def _cards(answer: WhatIfAnswer) -> str:
    counts = answer.counts()
    cards = [
        (str(counts["placed"]), "placed"),
        (str(counts["newlyPending"]), "newly pending"),
        (str(counts["pending"] - counts["newlyPending"]), "still pending"),
        (str(counts["preempted"]), "preempted"),
        (str(counts["displaced"] - counts["preempted"]), "displaced"),
    ]
    if answer.plan is not None:
        cards.insert(0, (str(answer.plan.total), "more nodes needed"))
    for name in ("cpu", "memory"):
        if name in answer.after.resources:
            after = answer.after.resources[name]
            before = answer.before.resources.get(name, after)
            change = f"{share(before.utilisation)} → {share(after.utilisation)}"
            cards.append((change, f"{name} requested"))
    return "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in cards
    )


def _plan(answer: WhatIfAnswer) -> str:
    plan = answer.plan
    if plan is None:
        return ""
    rows = [(shape, str(count)) for shape, count in plan.nodes.items()]
    found = f"<h2>Nodes needed</h2>{table(('shape', 'nodes'), rows, right=(1,))}"
    for title, reasons in (
        ("With one node less, pending because of", plan.binding),
        ("Not helped by any number of these nodes", plan.unplaceable_reasons),
    ):
        if reasons:
            lines = [(str(count), reason) for reason, count in sorted(reasons.items())]
            found += table(("pending", "reason"), lines, caption=title)
    return found


def _placed(answer: WhatIfAnswer) -> str:
    rows = []
    for (workload, was), pods in by_workload(answer.placed).items():
        nodes = Counter(each.node for each in pods)
        where = ", ".join(f"{node} ({count})" for node, count in sorted(nodes.items()))
        rows.append((workload, was, str(len(pods)), where))
    return _section("Placed", ("workload", "was", "pods", "nodes"), rows, (2,))


def _displaced(answer: WhatIfAnswer) -> str:
    rows = [
        (
            each.object.removeprefix("Pod/"),
            f"{each.reason} by {each.by}" if each.by else each.reason,
            each.node,
            each.replaced_by.removeprefix("Pod/"),
            each.to,
        )
        for each in answer.displaced
    ]
    return _section("Displaced", ("pod", "reason", "from", "replaced by", "to"), rows)


def _lost_reservations(answer: WhatIfAnswer) -> str:
    rows = [
        (
            each.object.removeprefix("Reservation/"),
            f"{each.reason} by {each.by}" if each.by else each.reason,
            each.node,
        )
        for each in answer.lost_reservations
    ]
    return _section("Lost reservations", ("reservation", "reason", "node"), rows)


def _pending(answer: WhatIfAnswer) -> str:
    rows = [
        (workload, was, str(len(pods)), message)
        for (workload, was, message), pods in pending_groups(answer.pending).items()
    ]
    return _section("Pending", ("workload", "was", "pods", "reason"), rows, (2,))


def _blocked(answer: WhatIfAnswer) -> str:
    rows = [
        (str(each.pod).removeprefix("Pod/"), each.node, each.budget, each.message)
        for each in answer.blocked
    ]
    return _section("Blocked evictions", ("pod", "node", "budget", "message"), rows)


def _nodes(answer: WhatIfAnswer) -> str:
    rows = [(each.name, each.change, str(each.pods)) for each in answer.nodes]
    return _section("Nodes", ("node", "change", NODE_PODS), rows, (2,))


def _section(
    title: str, headers: tuple[str, ...], rows: Sequence[Sequence[str]], right: tuple[int, ...] = ()
) -> str:
    if not rows:
        return ""
    caption = f"The first {_MOST} of {len(rows)}." if len(rows) > _MOST else ""
    return f"<h2>{title}</h2>{table(headers, rows[:_MOST], right=right, caption=caption)}\n"


def _capacity(answer: WhatIfAnswer) -> str:
    headers = ("", "nodes", *(_names(answer)))
    rows = []
    for title, capacity in (("before", answer.before), ("after", answer.after)):
        rows.append((title, str(capacity.nodes), *(_cell(capacity, name) for name in _names(answer))))
    return table(headers, rows, right=(1,))


def _names(answer: WhatIfAnswer) -> list[str]:
    found = dict.fromkeys((*answer.before.resources, *answer.after.resources))
    return [name for name in found if name not in _HIDDEN]


def _cell(capacity: ClusterCapacity, name: str) -> str:
    each = capacity.resources.get(name)
    if each is None:
        return "none"
    used = f"{shown(name, each.requested)} of {shown(name, each.allocatable)}"
    return f"{used} ({share(each.utilisation)}), free capacity {share(each.fragmentation)} fragmented"

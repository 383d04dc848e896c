"""The text of `holdfast explain`."""

from textwrap import wrap

from holdfast.cli.printing import event_cells, table
from holdfast.explanation.report import Report, few


def text(report: Report, now: float) -> str:
    """The answer first, then what would help, then what it is based on."""
    lines = [f"{report.object}: {report.phase}", "", f"  {report.summary}"]
    lines += _listed("Details", report.details)
    advice = [each.text for each in report.advice]
    lines += _listed("What would help (verified with the scheduler)", advice)
    pods = [[str(p.count), p.state, few(p.pods, 3), p.reason or "-"] for p in report.pods]
    lines += _part("Pods", ("COUNT", "STATE", "PODS", "REASON"), pods)
    if report.told:
        lines += ["", "Last message", f"  {report.told}"]
    if report.would_say and report.would_say != report.told:
        lines += ["", "Message if tried now", f"  {report.would_say}"]
    lines += _part("Rejected nodes", ("REASON", "COUNT", "PLUGIN", "NODES"), _reasons(report))
    ranked = [
        [p.node, str(p.node_score), str(p.reservation_score or "-"), p.reservation or "-"]
        for p in report.ranked
    ]
    headers: tuple[str, ...] = ("NODE", "NODE SCORE", "RESERVATION SCORE", "RESERVATION")
    lines += _part("Feasible nodes, best first", headers, ranked)
    matching = [[p.name, p.phase, p.node or "-", p.left or "-", p.why] for p in report.reservations]
    headers = ("NAME", "PHASE", "NODE", "LEFT", "")
    lines += _part("Matching reservations", headers, matching)
    if report.owners:
        lines += ["", "Owners", *(f"  {owner}" for owner in report.owners)]
    if report.members:
        lines += ["", "Members", *(f"  {member}" for member in report.members)]
    events = [event_cells(each, now) for each in report.events]
    lines += _part("Events", ("TYPE", "REASON", "AGE", "FROM", "MESSAGE"), events)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _listed(title: str, texts: list[str]) -> list[str]:
    """A list, wrapped to the width of a terminal."""
    if not texts:
        return []
    lines = ["", title]
    for each in texts:
        lines += wrap(each, 98, initial_indent="  * ", subsequent_indent="    ", break_long_words=False)
    return lines


def _reasons(report: Report) -> list[list[str]]:
    return [[each.reason, str(len(each.nodes)), each.plugin, few(each.nodes)] for each in report.nodes]


def _part(title: str, headers: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    return ["", title, *(f"  {line}" for line in table(headers, rows))]

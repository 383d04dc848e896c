"""The text of `holdfast explain`."""

from holdfast.cli.printing import event_cells, table
from holdfast.explanation.report import Report, few


def text(report: Report, now: float) -> str:
    lines = [f"{report.object}: {report.phase}", "", f"  {report.summary}"]
    if report.told:
        lines += ["", "Condition", f"  {report.told}"]
    if report.would_say and report.would_say != report.told:
        lines += ["", "Condition if scheduled now", f"  {report.would_say}"]
    lines += _part("Infeasible nodes", ("REASON", "COUNT", "PLUGIN", "NODES"), _reasons(report))
    ranked = [[each.node, str(each.score), each.reservation or "-"] for each in report.ranked]
    lines += _part("Feasible nodes, best first", ("NODE", "SCORE", "RESERVATION"), ranked)
    matching = [[p.name, p.phase, p.node or "-", p.left or "-", p.why] for p in report.reservations]
    headers = ("NAME", "PHASE", "NODE", "LEFT", "")
    lines += _part("Matching reservations", headers, matching)
    if report.owners:
        lines += ["", "Owners", *(f"  {owner}" for owner in report.owners)]
    if report.members:
        lines += ["", "Members", *(f"  {member}" for member in report.members)]
    if report.help:
        lines += ["", "Suggestions", *(f"  * {each}" for each in report.help)]
    events = [event_cells(each, now) for each in report.events]
    lines += _part("Events", ("TYPE", "REASON", "AGE", "FROM", "MESSAGE"), events)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _reasons(report: Report) -> list[list[str]]:
    return [[each.reason, str(len(each.nodes)), each.plugin, few(each.nodes)] for each in report.nodes]


def _part(title: str, headers: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    return ["", title, *(f"  {line}" for line in table(headers, rows))]

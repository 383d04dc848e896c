"""Why a pod has no node, or where it went and why."""

from holdfast.actions.scheduler import Scheduler
from holdfast.backends.embedded.setup import SERVED
from holdfast.cli.asking.picture import Picture
from holdfast.cli.asking.server import POD, Raw, Server
from holdfast.cli.explaining.helping import help_for, stopping_on
from holdfast.cli.explaining.placing import place, rank
from holdfast.cli.explaining.promised import promised_to
from holdfast.cli.explaining.queues import over_capability
from holdfast.cli.explaining.report import Report
from holdfast.core.pods import PodRecord


async def explain_pod(server: Server, picture: Picture, name: str, namespace: str) -> Report:
    raw = picture.find(POD, name, namespace) or await server.get(POD, name, namespace)
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    report = Report(f"Pod {namespace}/{name}", str(status.get("phase") or "Pending"), "")
    report.events = await server.events(raw)
    report.node = str(spec.get("nodeName") or "")
    report.told = told(raw, "PodScheduled")
    pod = picture.cluster.pod(namespace, name)
    if pod is None:
        report.summary = _not_known(raw)
    elif report.node:
        _placed(picture, pod, report)
    else:
        _waiting(picture, pod, raw, report)
    return report


def _not_known(raw: Raw) -> str:
    if (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        node = (raw.get("spec") or {}).get("nodeName")
        return f"It has ended, on {node}." if node else "It has ended."
    return "It makes no sense to the scheduler; see what it was told."


def _placed(picture: Picture, pod: PodRecord, report: Report) -> None:
    """Why there: how nodes would rank for it were it not there yet."""
    cluster = picture.cluster
    drawn = cluster.promises.known.get(pod.draws_on)
    report.reservation = drawn.name if drawn is not None else ""
    through = f", through the reservation {report.reservation}" if report.reservation else ""
    report.summary = f"It is on {report.node}{through}."
    cluster.ledger.remove(pod)
    placing = place(picture.scheduler, pod)
    report.ranked = rank(picture.scheduler, placing)
    report.nodes = placing.reasons
    report.reservations = promised_to(cluster, placing.column)


def _waiting(picture: Picture, pod: PodRecord, raw: Raw, report: Report) -> None:
    scheduler = picture.scheduler
    placing = place(scheduler, pod)
    report.would_say = placing.message
    report.nodes = placing.reasons
    report.ranked = rank(scheduler, placing)
    report.reservations = promised_to(picture.cluster, placing.column)
    nominated = (raw.get("status") or {}).get("nominatedNodeName")
    if nominated and placing.message:
        report.help = stopping_on(picture, nominated)
    else:
        report.help = help_for(picture, pod, placing)
    if pod.leaving:
        report.summary = "It is being deleted, and gets no node any more."
    elif pod.gates:
        report.summary = "It is kept back by scheduling gates."
        report.help.insert(0, f"scheduling gates to remove: {', '.join(pod.gates)}")
    elif scheduler.profile_of(pod.scheduler) is None:
        report.summary = (
            f"It asks for {pod.scheduler}, which is not one of ours ({', '.join(_served(scheduler))}); "
            "see --config."
        )
        report.help = []
    elif nominated:
        report.summary = f"{nominated} is being cleared for it."
    elif refusal := picture.cluster.jobs.queues.refusal(pod):
        report.summary = f"No node is looked for: {refusal}."
        if full := over_capability(picture, [pod]):
            text, never = full
            report.help.insert(0, f"{text}: it can never start" if never else text)
    elif placing.message:
        report.summary = "No node will do."
    elif held_up := _held_up(picture, pod):
        report.summary = held_up
    elif asked := _asked_for(picture, pod):
        report.summary = asked
    else:
        best = f": {report.ranked[0].node}" if report.ranked else ""
        report.summary = (
            f"A node will do now{best}. It waits for its turn, or the scheduler does not run."
        )


def _served(scheduler: Scheduler) -> list[str]:
    """The names pods may ask for: those of profiles, and those served by them besides."""
    own = [profile.scheduler_name for profile in scheduler.profiles]
    return [*own, *(each for each in SERVED if each not in own and scheduler.profile_of(each))]


def _held_up(picture: Picture, pod: PodRecord) -> str:
    """Why a pod that would fit waits for the rest of its job, if it does."""
    job = pod.job
    if job is None or job.is_ready:
        return ""
    hindrance = picture.scheduler.gangs.hindrance(picture.cluster.jobs.partners(job), job.waiting())
    if hindrance is not None:
        return f"It is placed with the rest of its job only: {hindrance.problem.message}."
    return f"A node will do for it, but it is placed with the rest of {job.name} only."


def _asked_for(picture: Picture, pod: PodRecord) -> str:
    """What became of the reservation that was asked for on the pod's behalf, if one was."""
    requirements = picture.cluster.virtuals.requirements
    ask = requirements.asks.get(pod.uid)
    if ask is None or ask.requirement is None:
        return ""
    if ask.error:
        return f"The reservation asked for on its behalf, {ask.id}, was not made: {ask.error}"
    if ask.id in requirements.made:
        return (
            f"The reservation that was asked for on its behalf, {ask.id}, is there; it is bound next."
        )
    amounts = ", ".join(f"{name}: {amount}" for name, amount in ask.requirement.resources.items())
    return f"It waits until the reservation {ask.id} is made for it ({amounts})."


def told(raw: Raw, type: str) -> str:
    """What the condition of that type says, if it is not true."""
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == type and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "")
    return ""

"""Why a group of pods does not run: who of it has a node, and how many of the others would fit now."""

from holdfast.api.kinds import KINDS
from holdfast.api.names import SIGS_PODGROUP_API, VOLCANO_API
from holdfast.backends.kubernetes.errors import ApiError
from holdfast.cli.asking.picture import Picture
from holdfast.cli.asking.server import POD, RESERVATION, Raw, Server
from holdfast.cli.explaining.helping import help_for
from holdfast.cli.explaining.placing import place
from holdfast.cli.explaining.pods import told
from holdfast.cli.explaining.queues import over_capability
from holdfast.cli.explaining.report import Report
from holdfast.core.jobs import Job
from holdfast.core.pods import PodRecord

_GROUPS = (KINDS[VOLCANO_API, "PodGroup"], KINDS[SIGS_PODGROUP_API, "PodGroup"])


async def explain_group(server: Server, picture: Picture, name: str, namespace: str) -> Report:
    raw = await _find(server, name, namespace)
    phase = (raw.get("status") or {}).get("phase") or "Pending"
    report = Report(f"PodGroup {namespace}/{name}", str(phase), "")
    report.events = await server.events(raw)
    job = picture.cluster.jobs.get(namespace, name)
    if job is None:
        report.summary = "It makes no sense to the scheduler."
        return report
    report.members = [_member(picture, pod) for pod in job.members.values()]
    done = f", {len(job.done)} have done their work" if job.done else ""
    counted = f"{len(list(job.placed()))} of {len(job.members)} members have a node{done}"
    report.summary = f"{counted}, {job.min_member} are needed. {_standing(picture, job, report)}"
    return report


def _standing(picture: Picture, job: Job, report: Report) -> str:
    waiting = job.waiting()
    full = over_capability(picture, waiting[: max(1, job.still_needs - job.ready_members)])
    fitting = _fitting(picture, waiting, report)
    if job.is_ready:
        return "It runs."
    if job.lacks(waiting) or not waiting:
        return "There are too few pods."
    if full is not None:
        text, never = full
        return f"It can never start: {text}." if never else f"It waits for its queue: {text}."
    if refusal := picture.cluster.jobs.queues.refusal(waiting[0]):
        return f"No nodes are looked for: {refusal}."
    if job.would_be_ready(fitting):
        return f"{len(fitting)} more fit now; it waits for its turn."
    return f"Only {len(fitting)} more fit now."


async def _find(server: Server, name: str, namespace: str) -> Raw:
    refused: ApiError | None = None
    for info in _GROUPS:
        try:
            return await server.get(info, name, namespace)
        except ApiError as error:
            if error.status != 404:
                raise
            refused = refused or error
    assert refused is not None
    raise refused


def _fitting(picture: Picture, waiting: list[PodRecord], report: Report) -> list[PodRecord]:
    """Those that would fit, one after the other; of the first that would not, the report says why."""
    scheduler, ledger = picture.scheduler, picture.cluster.ledger
    fitting = []
    with ledger.transaction():
        for pod in waiting:
            if picture.cluster.jobs.queues.refusal(pod):
                continue
            placing = place(scheduler, pod)
            if placing.message:
                if not report.would_say:
                    report.would_say = placing.message
                    report.nodes = placing.reasons
                    report.help = help_for(picture, pod, placing)
                continue
            row = scheduler.cycle.find_row(placing.profile, pod, placing.column)
            pod.draws_on = placing.column.draws_on(row)
            ledger.place(pod, row)
            fitting.append(pod)
    for pod in waiting:
        pod.draws_on = ""
    return fitting


def _member(picture: Picture, pod: PodRecord) -> str:
    if pod.row >= 0:
        return f"{pod.ref} is on {picture.cluster.nodes.name(pod.row)}"
    if pod.promise is None:
        raw, condition = picture.find(POD, pod.name, pod.namespace), "PodScheduled"
    else:
        raw, condition = picture.find(RESERVATION, pod.name), "Scheduled"
    said = told(raw, condition) if raw is not None else ""
    return f"{pod.ref} waits: {said}" if said else f"{pod.ref} waits"

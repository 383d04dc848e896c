"""Why a group of pods does not run: who of it has a node, and how many of the others would fit now."""

from holdfast.api.kinds import KINDS
from holdfast.api.names import (
    GANG_NAME,
    POD_GROUP_KEYS,
    POD_GROUP_LABEL,
    SIGS_PODGROUP_API,
    VOLCANO_API,
)
from holdfast.backends.kubernetes.errors import ApiError
from holdfast.cli.asking.picture import Picture
from holdfast.cli.asking.server import POD, Raw, Server
from holdfast.cli.explaining.helping import help_for
from holdfast.cli.explaining.placing import place
from holdfast.cli.explaining.pods import told
from holdfast.cli.explaining.report import Report
from holdfast.core.pods import Phase, PodRecord

_GROUPS = (KINDS[VOLCANO_API, "PodGroup"], KINDS[SIGS_PODGROUP_API, "PodGroup"])


async def explain_group(server: Server, picture: Picture, name: str, namespace: str) -> Report:
    raw = await _find(server, name, namespace)
    needed = int((raw.get("spec") or {}).get("minMember") or 1)
    phase = (raw.get("status") or {}).get("phase") or "Pending"
    report = Report(f"PodGroup {namespace}/{name}", str(phase), "")
    report.events = await server.events(raw)
    members = [
        each
        for each in picture.all(POD)
        if each["metadata"].get("namespace") == namespace and group_of(each) == name
    ]
    known = [picture.cluster.pod(namespace, each["metadata"]["name"]) for each in members]
    waiting = [pod for pod in known if pod is not None and pod.phase is Phase.PENDING]
    placed = len(members) - len(waiting)
    report.members = [_member(each) for each in members]
    fit = _try_all(picture, waiting, report)
    counted = f"{placed} of {len(members)} members have a node, {needed} are needed"
    if len(members) < needed:
        report.summary = f"{counted}. There are too few pods."
    elif placed >= needed:
        report.summary = f"{counted}. It runs."
    elif placed + fit >= needed:
        report.summary = f"{counted}. {fit} more fit now; it waits for its turn."
    else:
        report.summary = f"{counted}. Only {fit} more fit now."
    return report


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


def group_of(pod: Raw) -> str:
    """The group a pod says it belongs to; empty if none."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for key in (*POD_GROUP_KEYS, GANG_NAME):
        found = (labels if key == POD_GROUP_LABEL else annotations).get(key)
        if found:
            return str(found)
    return ""


def _try_all(picture: Picture, waiting: list[PodRecord], report: Report) -> int:
    """How many of them would fit, one after the other; of the first that would not, why."""
    scheduler, ledger = picture.scheduler, picture.cluster.ledger
    fit = 0
    with ledger.transaction():
        for pod in waiting:
            placing = place(scheduler, pod)
            if placing.message:
                if not report.would_say:
                    report.would_say = placing.message
                    report.nodes = placing.reasons
                    report.help = help_for(scheduler, pod, placing)
                continue
            row = scheduler.cycle.find_row(placing.profile, pod, placing.column)
            pod.draws_on = placing.column.draws_on(row)
            ledger.place(pod, row)
            fit += 1
    for pod in waiting:
        pod.draws_on = ""
    return fit


def _member(raw: Raw) -> str:
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    name = f"Pod/{metadata['namespace']}/{metadata['name']}"
    if spec.get("nodeName"):
        return f"{name} is on {spec['nodeName']}"
    said = told(raw, "PodScheduled")
    return f"{name} waits: {said}" if said else f"{name} waits"

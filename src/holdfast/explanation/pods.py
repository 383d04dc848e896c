"""Explains a pod: why it is pending, or why it runs where it does."""

from holdfast.api.names import MIRROR_POD_ANNOTATION
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.advice import Advisor
from holdfast.explanation.blocked_members import explain_blocked_members
from holdfast.explanation.capacity import (
    deletion_deadline,
    in_time,
    kind_of_holder,
    kind_text,
    missing_node,
)
from holdfast.explanation.details import details_of, terminating_on
from holdfast.explanation.ignored_annotations import ignored_annotations
from holdfast.explanation.matching_reservations import (
    matching_reservations,
)
from holdfast.explanation.min_resources import consider_min_resources, lacking_min_resources
from holdfast.explanation.misspellings import consider_scheduler, served_schedulers
from holdfast.explanation.no_node import explain_no_node
from holdfast.explanation.queue_limits import (
    consider_queue,
    job_over_capability,
    needed_members,
    queue_details,
    too_large,
)
from holdfast.explanation.repair_search import consider_nodes
from holdfast.explanation.repairs import metadata_changes, remove_gates, repair, spec_changes
from holdfast.explanation.report import Report
from holdfast.explanation.resizes import note_resize
from holdfast.explanation.verdicts import NodeVerdicts, Subject, place, rank, starts_on
from holdfast.explanation.waits import consider_wait_on
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.placements import TopologyPlacement
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.jobs.job import CORE, KEYS
from holdfast.snapshot.cluster_changes import create
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot


def explain_pod(snapshot: ClusterSnapshot, raw: Raw) -> Report:
    metadata = raw["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace") or ""
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    report = Report(f"Pod {namespace}/{name}", str(status.get("phase") or "Pending"), "")
    report.node = str(spec.get("nodeName") or "")
    report.told = condition_message(raw, "PodScheduled")
    pod = snapshot.cluster.pod(namespace, name)
    if pod is None:
        report.summary = _not_known(raw)
    elif report.node:
        _placed(snapshot, pod, report)
        if missing_node(snapshot, report.node) is None:
            note_resize(snapshot, pod, raw, report)
    else:
        explain_pending(snapshot, pod, raw, report)
    return report


def _not_known(raw: Raw) -> str:
    phase, node = (raw.get("status") or {}).get("phase"), (raw.get("spec") or {}).get("nodeName")
    if phase in ("Succeeded", "Failed"):
        return f"It has ended ({phase}), on {node}." if node else f"It has ended ({phase})."
    return "It is invalid for the scheduler; see its condition."


def _placed(snapshot: ClusterSnapshot, pod: PodRecord, report: Report) -> None:
    """Ranks the nodes as if the pod were not bound yet."""
    cluster = snapshot.cluster
    reservation = cluster.reservations.known.get(pod.reservation_uid)
    report.reservation = reservation.name if reservation is not None else ""
    through = ""
    if reservation is not None:
        through = f", through the {kind_text(kind_of_holder(snapshot, reservation))} {reservation.name}"
    stopping = "; it is being deleted" if pod.cls.terminating else ""
    report.summary = f"It is on {report.node}{through}{stopping}."
    if missing_node(snapshot, report.node) is not None:
        report.summary = f"It is assigned to {report.node}{through}, which does not exist{stopping}."
        report.details.append(
            "no scheduler looks for another node once spec.nodeName is set: delete the pod, and create "
            "it without nodeName if its controller does not"
        )
        if near := missing_node(snapshot, report.node):
            report.details.append(f"its spec.nodeName is {report.node}{near}")
        return
    if MIRROR_POD_ANNOTATION in pod.cls.pod.metadata.annotations:
        report.details.append(
            f"it is a static pod: the kubelet of {report.node} runs it, and no scheduler places it"
        )
        return
    with cluster.ledger.transaction():
        cluster.ledger.remove(pod)
        placing = place(snapshot.scheduler, pod)
        report.ranked = rank(snapshot.scheduler, placing)
        report.nodes = placing.reasons
        report.reservations = matching_reservations(cluster, placing.column)
    report.details += ignored_annotations(pod.cls)


def explain_pending(snapshot: ClusterSnapshot, pod: PodRecord, raw: Raw, report: Report) -> None:
    scheduler, subject = snapshot.scheduler, Subject.of(pod)
    advisor = Advisor(snapshot, subject)
    report.details += ignored_annotations(pod.cls)
    job = snapshot.cluster.jobs.of(pod)
    domain = _own_domain(snapshot, job) if job is not None and job.topology_key else None
    with scheduler.search.within(domain.rows if domain is not None else None):
        placing = place(scheduler, pod)
    report.would_say, report.nodes = placing.message, placing.reasons
    report.ranked = rank(scheduler, placing)
    report.reservations = matching_reservations(snapshot.cluster, placing.column)
    if domain is not None and job is not None:
        where = f"{job.topology_key}={domain.domain}"
        report.details.append(f"only nodes with {where} are considered: {job_text(job)} is there")
    nominated = str((raw.get("status") or {}).get("nominatedNodeName") or "")
    if pod.deletion_pending:
        report.summary = "It is being deleted and will not be scheduled."
        return
    if scheduler.profile_of(pod.scheduler) is None:
        report.summary = (
            f"Its schedulerName is {pod.scheduler}, but this configuration serves "
            f"{', '.join(served_schedulers(scheduler))} (see --config)"
            f"{did_you_mean(pod.scheduler, served_schedulers(scheduler)) or '.'}"
        )
        consider_scheduler(snapshot, subject, pod, advisor)
        report.advice = advisor.advice
        return
    refusal = snapshot.cluster.jobs.queue_limits.admission_error(pod)
    if pod.gates:
        _gated(snapshot, subject, pod, placing, advisor, report)
        if placing.message:
            report.details += details_of(snapshot, pod, placing)
    elif nominated and placing.message:
        _nominated(snapshot, nominated, advisor, report)
    elif (
        job is not None
        and not job.is_ready
        and (job.lacks(job.waiting()) or not job.is_known or not refusal)
        and (why := _gang_refusal(snapshot, job))
    ):
        report.summary = f"It starts only together with the rest of its job: {why}."
        if not job.is_known:
            known = [each.name.name for each in snapshot.cluster.jobs.known.values() if each.is_known]
            near = did_you_mean(job.name.name, known)
            report.details.append(f"there is no PodGroup {job.name.namespace}/{job.name.name}{near}")
            _consider_similar_group(snapshot, subject, job, raw, advisor)
        consider_job(snapshot, subject, job, advisor, report)
    elif refusal:
        report.summary = f"Its queue does not admit it: {refusal}."
        pods = job.waiting() if job is not None and not job.is_ready else [pod]
        report.details += queue_details(snapshot, pods)
        consider_queue(snapshot, subject, pods, advisor)
    elif job is not None and (full := job_over_capability(snapshot, job)):
        report.summary = f"Its queue does not admit the whole of {job_text(job)}."
        report.details.append(full)
        if placing.message:
            report.details += details_of(snapshot, pod, placing)
        consider_queue(snapshot, subject, needed_members(job), advisor)
    elif placing.message and (job is None or job.is_ready) and (found := starts_on(snapshot, subject)):
        report.summary = (
            f"It fits now: {found[0]}, as it ends before others need the capacity. It is queued, or "
            "the scheduler is not running."
        )
    elif placing.message:
        explain_no_node(snapshot, pod, placing, advisor, report)
    else:
        _fitting(snapshot, subject, pod, job, placing, advisor, report)
    report.advice = advisor.advice


def _own_domain(snapshot: ClusterSnapshot, job: Job) -> TopologyPlacement | None:
    """The topology domain of the job's members that are on nodes; None if it may be placed in any."""
    placements = snapshot.scheduler.gangs.placements.of(job)
    return placements[0] if placements and job.placed() else None


def _gated(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    report.summary = "It is blocked by scheduling gates."
    report.details.append(f"scheduling gates to remove: {', '.join(pod.gates)}")
    job = snapshot.cluster.jobs.of(pod)
    others = job.waiting() if job is not None and not job.is_ready else []
    gates = remove_gates(snapshot, [pod, *(each for each in others if each.gates and each is not pod)])
    if not advisor.propose(gates) and placing.message:
        with advisor.about(subject, gates):
            consider_nodes(advisor, placing)


def _nominated(snapshot: ClusterSnapshot, node: str, advisor: Advisor, report: Report) -> None:
    """A node is nominated: which pods it waits for."""
    if snapshot.cluster.nodes.row(node) is None:
        report.summary = f"{node} was nominated for it, but no longer exists."
        return
    victims = terminating_on(snapshot, node)
    consider_wait_on(advisor, node)
    report.summary = f"{node} is nominated for it; it waits until pods there have terminated."
    if not victims:
        report.details.append(f"no pod is terminating on {node}: the scheduler will try it again")
    for victim in victims:
        raw = snapshot.find(POD, victim.name, victim.namespace)
        deadline = deletion_deadline(raw)
        when = f", grace period ends {in_time(deadline, snapshot.now)}" if deadline is not None else ""
        report.details.append(f"terminating on {node}: {victim.namespace}/{victim.name}{when}")


def _fitting(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    job: Job | None,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    """The pod itself fits a node."""
    if job is not None and not job.is_ready:
        report.summary = f"It fits, but starts only together with the rest of {job_text(job)}."
        report.details.append(f"see: holdfast explain podgroup {job.name.name} -n {job.name.namespace}")
        if never := too_large(snapshot, job):
            report.details.append(never)
        if blocked := explain_blocked_members(snapshot, job, advisor, report):
            report.summary += f" {blocked}"
    elif asked := _asked_for(snapshot, pod):
        report.summary = asked
    else:
        node = report.ranked[0].node if report.ranked else pod.nominated
        best = f": {node}" if node else ""
        report.summary = f"It fits now{best}. It is queued, or the scheduler is not running."
        if report.told.startswith("0/"):
            report.details.append(
                "its condition has reasons that this configuration does not give; if they persist, the "
                "scheduler runs with another configuration: pass it with --config"
            )


def _asked_for(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """The state of the reservation requested for the pod, if there is one."""
    requirements = snapshot.cluster.virtuals.requirements
    ask = requirements.requests.get(pod.uid)
    if ask is None or ask.requirement is None:
        return ""
    if ask.error:
        return f"The reservation requested for it, {ask.id}, was not created: {ask.error}"
    if ask.id in requirements.made:
        return f"The reservation requested for it, {ask.id}, exists; the pod is bound next."
    amounts = ", ".join(f"{name}: {amount}" for name, amount in ask.requirement.resources.items())
    return f"It waits until its provisioner creates the reservation {ask.id} ({amounts})."


def condition_message(raw: Raw, type: str) -> str:
    """The message of the condition of that type, if it is not true."""
    for each in (raw.get("status") or {}).get("conditions") or ():
        if each.get("type") == type and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "")
    return ""


# Jobs


def job_text(job: Job) -> str:
    """`PodGroup default/g`, or `gang default/g` if annotations of its pods declare it."""
    kind = "PodGroup" if job.group is not None else "gang"
    return f"{kind} {job.name.namespace}/{job.name.name}"


def _gang_refusal(snapshot: ClusterSnapshot, job: Job) -> str:
    """Why the job cannot start whatever the nodes are like; empty if it may."""
    members = [each for partner in snapshot.cluster.jobs.partners(job) for each in partner.waiting()]
    partners = snapshot.cluster.jobs.partners(job)
    refusal = snapshot.scheduler.gangs.early_refusal(partners, members)
    if refusal is None:
        return ""
    return refusal.problem.message.replace(str(job.name), job_text(job))


def consider_job(
    snapshot: ClusterSnapshot, subject: Subject, job: Job, advisor: Advisor, report: Report
) -> None:
    """A job that lacks pods, or that its queue does not admit."""
    waiting = job.waiting()
    lacking = max(0, job.still_needs - job.ready_members - len(waiting))
    raw = snapshot.find(POD, waiting[0].name, waiting[0].namespace) if waiting else None
    if lacking and raw is not None and job.is_known:
        clones = [create(POD, _clone(raw, number)) for number in range(lacking)]
        pods = "1 more pod" if lacking == 1 else f"{lacking} more pods"
        report.details.append(
            f"{job_text(job)} needs {job.min_member} pods; {lacking} more must be created"
        )
        advisor.propose(repair(f"create {pods} of {job_text(job)}", "CreatePods", clones))
    elif not lacking and waiting:
        report.details += [each.text for each in lacking_min_resources(snapshot, job)]
        consider_min_resources(snapshot, job, advisor)
        needed = needed_members(job)
        report.details += queue_details(snapshot, needed)
        consider_queue(snapshot, subject, needed, advisor)


def _consider_similar_group(
    snapshot: ClusterSnapshot, subject: Subject, job: Job, raw: Raw, advisor: Advisor
) -> None:
    """Joining the group of the pod's namespace whose name is most like the one that does not exist."""
    wrong, jobs = job.name.name, snapshot.cluster.jobs.known.values()
    known = sorted(
        each.name.name
        for each in jobs
        if each.is_known and each.name.namespace == job.name.namespace and each is not job
    )
    metadata = raw["metadata"]
    for near in nearest(wrong, known):
        body = {
            field: changed
            for field in ("annotations", "labels")
            if (changed := _named(metadata.get(field), wrong, near))
        }
        if job.name.family == CORE:
            group = {"schedulingGroup": {"podGroupName": near}}
            objects = spec_changes(snapshot, subject, lambda spec: group)  # noqa: B023
        else:
            objects = metadata_changes(snapshot, subject, body)
        if objects:
            text = f"name the PodGroup {near} instead of {wrong}"
            advisor.propose(repair(text, "JoinGroup", objects))


def _named(given: Raw | None, wrong: str, near: str) -> Raw:
    """The annotations or labels by which a pod joins a group, with another name."""
    return {key: near for key in KEYS if (given or {}).get(key) == wrong}


def _clone(raw: Raw, number: int) -> Raw:
    metadata = raw["metadata"]
    name = f"{metadata['name']}-more-{number}"
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if key in metadata}
    spec = {key: value for key, value in raw["spec"].items() if key != "nodeName"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**kept, "name": name, "uid": name},
        "spec": spec,
        "status": {"phase": "Pending"},
    }

"""Explains a pod: why it is pending, or why it runs where it does."""

import re

from holdfast.api.names import MIRROR_POD_ANNOTATION, RESERVATION_IGNORED
from holdfast.explanation.advice import Advisor
from holdfast.explanation.capacity import (
    amounts_text,
    deletion_deadline,
    holder_text,
    holders_on,
    in_time,
    kind_of_holder,
    kind_text,
    missing_on,
    row_of,
    shortages,
    waiting_for,
)
from holdfast.explanation.details import claims_of, details_of, terminating_on
from holdfast.explanation.matching_reservations import (
    consider_reservations,
    matching_reservations,
    named_reservation,
)
from holdfast.explanation.queue_limits import (
    consider_queue,
    job_over_capability,
    needed_members,
    queue_details,
)
from holdfast.explanation.repairs import CLAIM, bound_claim, metadata_changes, repair, spec_changes
from holdfast.explanation.report import Report
from holdfast.explanation.verdicts import NodeVerdicts, Subject, place, rank
from holdfast.kube.object_client import Raw
from holdfast.local.setup import SERVED
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.config.plugin_sets import NODE_RESOURCES_FIT
from holdfast.scheduler.framework.feasibility.compiled_class import RESERVED
from holdfast.scheduler.jobs import Job
from holdfast.scheduler.scheduler import Scheduler
from holdfast.snapshot.cluster_changes import ObjectChange, create
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_HOLDERS = 3
_NOT_FOUND = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_PLAIN = {
    "node(s) had untolerated taint(s)": "untolerated taint",
    "node(s) were unschedulable": "cordoned",
    "node(s) didn't match Pod's node affinity/selector": "node affinity or selector not met",
    "node(s) didn't have free ports for the requested pod ports": "host port in use",
    "node(s) didn't match pod affinity rules": "pod affinity not met",
    "node(s) didn't match pod anti-affinity rules": "pod anti-affinity",
    "node(s) didn't satisfy existing pods anti-affinity rules": "anti-affinity of other pods",
    "node(s) didn't match pod topology spread constraints": "topology spread constraint not met",
    RESERVED: "held for a starving job",
}
"""Reasons in a few words, for summaries; others are shortened."""
_PLAIN_PREFIXES = {
    "Insufficient GPU Devices": "no GPU has enough left",
    "not enough cpus available to satisfy request": "too few CPUs for exclusive use",
    "node(s) requested cpus not multiple cpus per core": "exclusive CPUs are not whole cores",
    "node(s) exceed max volume count": "too many volumes attached",
    "Insufficient NUMA ": "too little on one NUMA node",
    "Unaligned NUMA Hint": "does not fit the NUMA nodes by their policy",
    "Unsatisfied NUMA ": "does not fit the NUMA nodes by their policy",
}


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
    through = f", through the reservation {report.reservation}" if report.reservation else ""
    stopping = "; it is being deleted" if pod.cls.terminating else ""
    report.summary = f"It is on {report.node}{through}{stopping}."
    if cluster.nodes.row(report.node) is None:
        report.details.append(f"the node {report.node} no longer exists")
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


def explain_pending(snapshot: ClusterSnapshot, pod: PodRecord, raw: Raw, report: Report) -> None:
    scheduler, subject = snapshot.scheduler, Subject.of(pod)
    advisor = Advisor(snapshot, subject)
    placing = place(scheduler, pod)
    report.would_say, report.nodes = placing.message, placing.reasons
    report.ranked = rank(scheduler, placing)
    report.reservations = matching_reservations(snapshot.cluster, placing.column)
    nominated = str((raw.get("status") or {}).get("nominatedNodeName") or "")
    job = snapshot.cluster.jobs.of(pod)
    if pod.deletion_pending:
        report.summary = "It is being deleted and will not be scheduled."
        return
    if scheduler.profile_of(pod.scheduler) is None:
        report.summary = (
            f"Its schedulerName is {pod.scheduler}, but this configuration serves "
            f"{', '.join(_served(scheduler))}; see --config."
        )
        return
    refusal = snapshot.cluster.jobs.queue_limits.admission_error(pod)
    if pod.gates:
        _gated(snapshot, subject, pod, advisor, report)
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
        consider_job(snapshot, subject, job, advisor, report)
    elif refusal:
        report.summary = f"Its queue does not admit it: {refusal}."
        pods = job.waiting() if job is not None and not job.is_ready else [pod]
        report.details += queue_details(snapshot, pods)
        consider_queue(snapshot, subject, pods, advisor)
    elif job is not None and (full := job_over_capability(snapshot, job)):
        report.summary = f"Its queue does not admit the whole of {job_text(job)}."
        report.details.append(full)
        consider_queue(snapshot, subject, needed_members(job), advisor)
    elif placing.message:
        explain_no_node(snapshot, pod, placing, advisor, report)
    else:
        _fitting(snapshot, subject, pod, job, placing, advisor, report)
    report.advice = advisor.advice


def _served(scheduler: Scheduler) -> list[str]:
    """The scheduler names that the profiles serve."""
    own = [profile.scheduler_name for profile in scheduler.profiles]
    return [*own, *(each for each in SERVED if each not in own and scheduler.profile_of(each))]


def _gated(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor, report: Report
) -> None:
    gates = ", ".join(pod.gates)
    report.summary = "It is blocked by scheduling gates."
    report.details.append(f"scheduling gates to remove: {gates}")
    objects = spec_changes(snapshot, subject, lambda spec: {"schedulingGates": None})
    advisor.propose(repair(f"remove the scheduling gates {gates}", "RemoveGates", objects))


def _nominated(snapshot: ClusterSnapshot, node: str, advisor: Advisor, report: Report) -> None:
    """A node is nominated: which pods it waits for."""
    if snapshot.cluster.nodes.row(node) is None:
        report.summary = f"{node} was nominated for it, but no longer exists."
        return
    victims = terminating_on(snapshot, node)
    advisor.consider_wait(node)
    report.summary = f"{node} is nominated for it; it waits until pods there have terminated."
    if not victims:
        report.details.append(f"no pod is terminating on {node}: the scheduler will try it again")
    for victim in victims:
        raw = snapshot.find(POD, victim.name, victim.namespace)
        deadline = deletion_deadline(raw)
        when = f", grace period ends {in_time(deadline, snapshot.now)}" if deadline is not None else ""
        report.details.append(f"terminating on {node}: {victim.namespace}/{victim.name}{when}")


def explain_no_node(
    snapshot: ClusterSnapshot,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    """No node is feasible, for a pod or the reserve pod of a reservation."""
    subject = Subject.of(pod)
    rejected = placing.column.rejected
    report.summary = no_node_summary(snapshot, placing, pod)
    if rejected is None and (own := _own_waiting(snapshot, pod)):
        report.summary = own
    report.details += named_reservation(snapshot, pod)
    if rejected is not None:
        _claims(snapshot, subject, pod, rejected.message, advisor, report)
    else:
        nomination = snapshot.scheduler.preemption.post_filter(placing.profile, pod, placing.column)
        if nomination.node:
            report.details.append(
                f"it can preempt pods of lower priority on {nomination.node}, and will if it is tried"
            )
        report.details += details_of(snapshot, pod, placing)
        _holders(snapshot, pod, placing, report)
    consider_reservations(snapshot, subject, placing.column, advisor)
    _ignored(snapshot, subject, pod, advisor, report)
    advisor.consider_nodes(placing)
    _unbound(snapshot, subject, pod, placing, advisor)
    _note_unknown_end(snapshot, pod, placing, advisor, report)


def _own_waiting(snapshot: ClusterSnapshot, pod: PodRecord) -> str:
    """The summary for a pod whose own reservation or hold waits for capacity on its node."""
    for own in waiting_for(snapshot, pod):
        entry = own.entry
        assert entry is not None
        kind = kind_text(kind_of_holder(snapshot, own))
        missing = missing_on(snapshot, pod, entry.row)
        if missing:
            node, short = snapshot.cluster.nodes.name(entry.row), amounts_text(snapshot, missing)
            return f"It waits for its own {kind} {own.name} on {node}, which is short of {short}."
    return ""


def no_node_summary(snapshot: ClusterSnapshot, placing: NodeVerdicts, pod: PodRecord) -> str:
    count = snapshot.cluster.nodes.count
    if not count:
        return "No suitable node: the cluster has no nodes."
    if placing.column.rejected is not None:
        return f"No suitable node: {placing.column.rejected.message}."
    if pod.pinned_node is not None:
        there = placing.rejections.get(pod.pinned_node)
        why = ", ".join(plain(text) for text in there.texts) if there else "that node does not exist"
        return f"It can only run on {pod.pinned_node}: {why}."
    counts = [f"{plain(each.reason)} ({len(each.nodes)})" for each in placing.reasons]
    nodes = "1 node" if count == 1 else f"{count} nodes"
    more = f", and {len(counts) - 4} more reasons" if len(counts) > 4 else ""
    return f"No suitable node among {nodes}: {', '.join(counts[:4])}{more}."


def plain(reason: str) -> str:
    """A reason in a few words."""
    if reason in _PLAIN:
        return _PLAIN[reason]
    for prefix, text in _PLAIN_PREFIXES.items():
        if reason.startswith(prefix):
            return text
    if reason.startswith("Insufficient "):
        return f"too little {reason.removeprefix('Insufficient ')}"
    return reason.removeprefix("node(s) ")


def _holders(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts, report: Report) -> None:
    """Who keeps capacity on the nodes that are closest to being eligible."""
    short = shortages(snapshot, pod)
    rows = [
        row_of(snapshot, name)
        for name, rejection in placing.rejections.items()
        if rejection.plugin == NODE_RESOURCES_FIT or RESERVED in rejection.texts
    ]
    rows.sort(key=lambda row: (float(short[row]), snapshot.cluster.nodes.name(row)))
    held = [row for row in rows if any(True for _ in snapshot.cluster.ledger.reservations.on(row))]
    report.holders = holders_on(snapshot, pod, held[:_HOLDERS])
    report.details += [holder_text(each, snapshot.now) for each in report.holders[:_HOLDERS]]
    report.details += _waiting_in_its_job(snapshot, pod)


def _waiting_in_its_job(snapshot: ClusterSnapshot, pod: PodRecord) -> list[str]:
    """The waiting reservations and holds of the pod, besides the one in the summary, and of the others
    of its job."""
    job = snapshot.cluster.jobs.of(pod)
    members = job.waiting() if job is not None and not job.is_ready else [pod]
    said = _own_waiting(snapshot, pod)
    found = []
    for member in members:
        for own in waiting_for(snapshot, member):
            entry = own.entry
            assert entry is not None
            if member is pod and f" {own.name} " in said:
                continue
            lacking = ", ".join(snapshot.cluster.reservations.lacking(own))
            node = snapshot.cluster.nodes.name(entry.row)
            kind = kind_text(kind_of_holder(snapshot, own))
            whose = "its own" if member is pod else f"of its job, {member.name}'s"
            state = f"short of {lacking}" if lacking else "which has its capacity"
            found.append(f"{whose} {kind} {own.name} waits on {node}, {state}")
    return found


def _claims(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    message: str,
    advisor: Advisor,
    report: Report,
) -> None:
    """Claims that do not exist or are not bound."""
    names = _NOT_FOUND.findall(message)
    for name in names:
        claim = f"PersistentVolumeClaim {pod.namespace}/{name}"
        report.details.append(f"{claim} does not exist")
        objects = bound_claim(snapshot, name, pod.namespace)
        advisor.propose(repair(f"create {claim} and have it bound", "CreateClaim", objects))
    if names or "unbound immediate" not in message:
        return
    objects = []
    for name in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, name, pod.namespace)
        if raw is not None and not (raw.get("spec") or {}).get("volumeName"):
            kind = (raw.get("spec") or {}).get("storageClassName") or "(none)"
            report.details.append(f"claim {name} is not bound yet (storage class {kind})")
            objects += bound_claim(snapshot, name, pod.namespace)
    if objects:
        advisor.propose(repair("have its claims bound to volumes", "BindClaims", objects))


def _unbound(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
) -> None:
    """Claims that wait for a pod and find no volume."""
    if not any(rejection.plugin == "VolumeBinding" for rejection in placing.rejections.values()):
        return
    objects: list[ObjectChange] = []
    names = []
    for name in claims_of(snapshot, pod):
        raw = snapshot.find(CLAIM, name, pod.namespace)
        if raw is not None and not (raw.get("spec") or {}).get("volumeName"):
            names.append(name)
            objects += bound_claim(snapshot, name, pod.namespace)
    if objects:
        text = f"create a volume for claim {', '.join(names)}"
        advisor.propose(repair(text, "CreateVolume", objects))


def _ignored(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor, report: Report
) -> None:
    if pod.cls.labels.get(RESERVATION_IGNORED) != "true":
        return
    objects = metadata_changes(snapshot, subject, {"labels": {RESERVATION_IGNORED: None}})
    text = f"remove the label {RESERVATION_IGNORED}, so that it may use reservations"
    if advisor.propose(repair(text, "RemoveLabel", objects)):
        report.details.append(f"it ignores reservations: label {RESERVATION_IGNORED}=true")


def _note_unknown_end(
    snapshot: ClusterSnapshot,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
    report: Report,
) -> None:
    """Says so if nothing tells when capacity becomes free."""
    rows = [
        row_of(snapshot, name)
        for name, rejection in placing.rejections.items()
        if rejection.plugin == NODE_RESOURCES_FIT
    ][:20]
    asked = dict(pod.cls.requests)
    table = snapshot.cluster.nodes
    could = [
        row
        for row in rows
        if missing_on(snapshot, pod, row)
        and all(table.allocatable.item(slot, row) >= amount for slot, amount in asked.items())
    ]
    if could and not any("Wait" in each.change["actions"] for each in advisor.advice):
        report.details.append(
            "when enough capacity becomes free is unknown: too few pods there have run-time estimates"
        )


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
        advisor.consider_gang(job)
    elif asked := _asked_for(snapshot, pod):
        report.summary = asked
    else:
        best = f": {report.ranked[0].node}" if report.ranked else ""
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
        needed = needed_members(job)
        report.details += queue_details(snapshot, needed)
        consider_queue(snapshot, subject, needed, advisor)


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

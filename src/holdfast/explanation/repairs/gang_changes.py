"""Changes of a gang as a whole: members it lacks, members that do not count, and how many it needs.

They are only made here; `advice` asks the scheduler whether they help.
"""

import json
from collections import Counter
from collections.abc import Iterator

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import (
    GANG_GROUPS,
    GANG_MIN_AVAILABLE,
    LIGHT_GROUP_MIN_AVAILABLE,
    SIGS_PODGROUP_API,
    TASK_SPEC,
    VOLCANO_API,
    WORKLOAD_API,
)
from holdfast.api.plurals import number_of
from holdfast.api.similar_names import did_you_mean, nearest
from holdfast.explanation.facts.pod_owners import workload_of
from holdfast.explanation.phrases import job_text, pods_text
from holdfast.explanation.repairs.label_repairs import VALUE, is_discovered
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import GangName, PodRecord
from holdfast.scheduler.framework.gang_failures import member_order
from holdfast.scheduler.jobs import Job, JobName
from holdfast.scheduler.jobs.job import CORE, VOLCANO, task_of
from holdfast.snapshot.cluster_changes import ClusterChange, create, patch
from holdfast.snapshot.cluster_snapshot import NODE, POD, RESERVATION, ClusterSnapshot


def waiting_members(snapshot: ClusterSnapshot, job: Job) -> list[PodRecord]:
    """The pending members of the job and its partners, also those that are not tried, in order."""
    partners = snapshot.cluster.jobs.partners(job)
    return sorted((pod for each in partners for pod in each.waiting()), key=member_order)


def preemption_text(victims: list[PodRecord]) -> str:
    return f"it can preempt {pods_text(victims)} of lower priority, and will if it is tried"


_PRIORITY_CLASS = KINDS["scheduling.k8s.io/v1", "PriorityClass"]


# How many it needs


def lower_min_member(snapshot: ClusterSnapshot, job: Job, least: int) -> Repair | None:
    """The gang with a lower minMember; None if that is not possible."""
    if not 0 < least < job.min_member:
        return None
    text = f"of {job_text(job)} to {least}"
    if job.group is None:
        objects = [
            patch(POD, raw, {"metadata": {field: {key: str(least)}}})
            for pod in job.members.values()
            if pod.reservation is None
            and (raw := snapshot.find(POD, pod.name, pod.namespace)) is not None
            for field, key in (
                ("annotations", GANG_MIN_AVAILABLE),
                ("labels", LIGHT_GROUP_MIN_AVAILABLE),
            )
            if key in (raw["metadata"].get(field) or {})
        ]
        return repair(f"lower min-available {text}", "LowerMinMember", objects, RESIZE)
    info, raw = _group_object(snapshot, job)
    if raw is None:
        return None
    if job.name.family == CORE:
        body: Raw = {"schedulingPolicy": {"gang": {"minCount": least}}}
        text = f"lower minCount {text}"
    else:
        body, text = {"minMember": least}, f"lower minMember {text}"
    return repair(text, "LowerMinMember", [patch(info, raw, {"spec": body})], RESIZE)


def needing_one(snapshot: ClusterSnapshot, job: Job) -> Repair | None:
    """The gang as if each member could start by itself, to ask what that one lacks; None if that is not
    possible."""
    lower = lower_min_member(snapshot, job, 1)
    info, raw = _group_object(snapshot, job)
    if lower is None or raw is None or job.name.family == CORE:
        return lower
    body: Raw = {"spec": {"minMember": 1, "minTaskMember": None, "minResources": None}}
    return lower._replace(change=ClusterChange((), (patch(info, raw, body),)))


def without_task(snapshot: ClusterSnapshot, job: Job) -> Repair | None:
    """The PodGroup without the tasks in minTaskMember of which it has too few pods."""
    lacking = _lacking_tasks(job)
    info, raw = _group_object(snapshot, job)
    if not lacking or raw is None:
        return None
    tasks = Counter(task_of(pod) for pod in job.members.values())
    body = {task: tasks[task] or None for task in lacking}
    each = ", ".join(f"{task} to {tasks[task]}" for task in lacking)
    text = f"lower minTaskMember of {job_text(job)}: {each}"
    return repair(text, "LowerMinMember", [patch(info, raw, {"spec": {"minTaskMember": body}})], RESIZE)


def topology_repairs(snapshot: ClusterSnapshot, job: Job) -> Iterator[Repair]:
    """The PodGroup with another topology key, or nodes with its own, if no node has it; and without
    one. The key of an existing PodGroup cannot be changed."""
    info, raw = _group_object(snapshot, job)
    key = job.topology_key
    if raw is None or not key:
        return
    again = "(delete the PodGroup and create it again)"
    if not snapshot.scheduler.gangs.placements.domains(key):
        for near in nearest(key, label_keys(snapshot)):
            body: Raw = {"topology": [{"key": near}]}
            change = patch(info, raw, {"spec": {"schedulingConstraints": body}})
            text = f"set the topology key {near} instead of {key} in {job_text(job)} {again}"
            yield repair(text, "CorrectTopology", [change])
        if not is_discovered(key):
            labelled = [
                patch(NODE, node, {"metadata": {"labels": {key: VALUE}}}) for node in snapshot.all(NODE)
            ]
            text = f"label nodes with {key}, by where they are (kubectl label node NAME {key}={VALUE})"
            yield repair(f"{text}; tried with one value for all", "LabelNode", labelled)
    change = patch(info, raw, {"spec": {"schedulingConstraints": None}})
    text = f"remove the topology constraint of {job_text(job)} {again}"
    yield repair(text, "RemoveTopology", [change], RESIZE)


def label_keys(snapshot: ClusterSnapshot) -> list[str]:
    """The keys of the labels of nodes."""
    found = {key for raw in snapshot.all(NODE) for key in raw["metadata"].get("labels") or ()}
    return sorted(found)


def misspelt_priority_class(snapshot: ClusterSnapshot, job: Job) -> tuple[str, list[Repair]]:
    """A fact about a PriorityClass of the PodGroup that does not exist, and the group with those of
    similar names; empty if it exists, or the group names none."""
    info, raw = _group_object(snapshot, job)
    name = str(((raw or {}).get("spec") or {}).get("priorityClassName") or "")
    known = sorted(each["metadata"]["name"] for each in snapshot.all(_PRIORITY_CLASS))
    if raw is None or not name or name in known or name.startswith("system-"):
        return "", []
    repairs = [
        repair(
            f"set priorityClassName: {near} instead of {name} in {job_text(job)}",
            "CorrectPriorityClass",
            [patch(info, raw, {"spec": {"priorityClassName": near}})],
        )
        for near in nearest(name, known)
    ]
    near_text = did_you_mean(name, known)
    return f"{job_text(job)} names the PriorityClass {name}, which does not exist{near_text}", repairs


def _group_object(snapshot: ClusterSnapshot, job: Job) -> tuple[KindInfo, Raw | None]:
    api = job.group.api_version if job.group is not None else VOLCANO_API
    info = KINDS[api, "PodGroup"]
    return info, snapshot.find(info, job.name.name, job.name.namespace)


def missing_partners(snapshot: ClusterSnapshot, job: Job) -> list[GangName]:
    """The gangs that must start together with it, or with its partners, and do not exist."""
    jobs = snapshot.cluster.jobs
    return sorted({name for each in jobs.partners(job) for name in jobs.missing_partners(each)})


def without_partners(snapshot: ClusterSnapshot, job: Job) -> Repair | None:
    """The gang without the gangs that must start together with it and do not exist; None if all do."""
    jobs = snapshot.cluster.jobs
    missing = missing_partners(snapshot, job)
    if not missing:
        return None
    objects = []
    for each in jobs.partners(job):
        if not jobs.missing_partners(each):
            continue
        kept = sorted(each.gang.partners.difference(missing))
        body: Raw = {"metadata": {"annotations": {GANG_GROUPS: _groups(kept)}}}
        info, raw = _group_object(snapshot, each)
        pods = (snapshot.find(POD, pod.name, pod.namespace) for pod in each.members.values())
        named = [(info, raw), *((POD, found) for found in pods)]
        objects += [
            patch(info, raw, body)
            for info, raw in named
            if raw is not None and GANG_GROUPS in (raw["metadata"].get("annotations") or {})
        ]
    names = few([f"{each.namespace}/{each.name}" for each in missing])
    return repair(f"remove {names} from the annotation {GANG_GROUPS}", "Annotate", objects)


def _groups(kept: list[GangName]) -> str | None:
    """The value of the annotation; None if it is not needed for one gang."""
    names = [f"{each.namespace}/{each.name}" for each in kept]
    return json.dumps(names) if len(names) > 1 else None


def same_names(snapshot: ClusterSnapshot, job: Job) -> Iterator[str]:
    """Other PodGroups of the same name, of which the pods of the job are no members."""
    own = job.group.api_version if job.group is not None else ""
    name, namespace, known = job.name.name, job.name.namespace, snapshot.cluster.jobs.known
    for info in (info for (_, kind), info in KINDS.items() if kind == "PodGroup"):
        for raw in snapshot.all(info):
            there, api = str(raw["metadata"].get("namespace") or ""), info.api_version
            if raw["metadata"]["name"] != name:
                continue
            if own and there == namespace and api != own:
                other = known.get(JobName(info.group, namespace, name))
                theirs = len(other.members) if other is not None else 0
                counts = [number_of(count, "pod") for count in (theirs, len(job.members))]
                yield (
                    f"there is another PodGroup {namespace}/{name}, of {api}, with {counts[0]}; this "
                    f"is about that of {own}, with {counts[1]}"
                )
            elif not own and there != namespace:
                yield f"the PodGroup {there}/{name} is in another namespace than its pods"


# Members that it lacks


_SCALED = ("Deployment", "ReplicaSet")


def create_members(snapshot: ClusterSnapshot, job: Job) -> Repair | None:
    """As many further pods as the gang lacks, of each task and in all; None if it lacks none."""
    waiting = sorted(job.waiting(), key=member_order)
    raws = [snapshot.find(POD, pod.name, pod.namespace) for pod in waiting if pod.reservation is None]
    served = [raw for raw in raws if raw is not None]
    served.sort(key=lambda raw: bool(raw["spec"].get("schedulingGates")))
    if not served:
        return None
    tasks = [task for task, count in _lacking_tasks(job).items() for _ in range(count)]
    more = max(0, lacking_pods(job) - len(tasks))
    clones = [_clone(served[0], number, task) for number, task in enumerate([*tasks, *[""] * more])]
    if not clones:
        return None
    texts = [
        f"{_pods(count)} of task {task}" for task, count in sorted(_lacking_tasks(job).items()) if task
    ]
    texts += [_pods(more)] if more else []
    created = [create(POD, each) for each in clones]
    owner = workload_of(snapshot, served[0])
    workload = snapshot.find(owner.info, owner.name, owner.namespace) if owner is not None else None
    if owner is None or workload is None or owner.info.kind not in _SCALED:
        return repair(f"create {' and '.join(texts)} of {job_text(job)}", "CreatePods", created)
    # A ReplicaSet deletes pods beyond its replicas; it adopts those that it needs.
    replicas = workload["spec"].get("replicas", 1) + len(clones)
    scaled = patch(owner.info, workload, {"spec": {"replicas": replicas}})
    text = f"scale {owner.info.kind} {owner.name} to {replicas} replicas, for {' and '.join(texts)}"
    return repair(f"{text} of {job_text(job)}", "Scale", [scaled, *created])


def lacking_pods(job: Job) -> int:
    """How many pods must be created before the job has as many as it needs."""
    return max(0, job.still_needs - job.ready_members - len(job.waiting()))


def _lacking_tasks(job: Job) -> dict[str, int]:
    """How many pods of which task must be created."""
    have = Counter(job.done.values())
    have.update(task_of(pod) for pod in (*job.placed(), *job.waiting()))
    return {task: needed - have[task] for task, needed in job.min_tasks.items() if needed > have[task]}


def _pods(count: int) -> str:
    return number_of(count, "more pod")


def _clone(raw: Raw, number: int, task: str) -> Raw:
    metadata = raw["metadata"]
    name = f"{metadata['name']}-more-{number}"
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if key in metadata}
    if task:
        field = "labels" if TASK_SPEC in (kept.get("labels") or {}) else "annotations"
        kept[field] = {**(kept.get(field) or {}), TASK_SPEC: task}
    left_out = ("nodeName", "schedulingGates")
    spec = {key: value for key, value in raw["spec"].items() if key not in left_out}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**kept, "name": name, "uid": name},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def create_group(job: Job) -> Repair:
    """The PodGroup that the pods name, with as many members as there are."""
    least = max(1, len(job.members))
    name, namespace = job.name.name, job.name.namespace
    spec: Raw
    if job.name.family == CORE:
        api, field = WORKLOAD_API, "minCount"
        spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    else:
        api = VOLCANO_API if job.name.family == VOLCANO else SIGS_PODGROUP_API
        spec, field = {"minMember": least}, "minMember"
    raw: Raw = {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "uid": f"group-{name}"},
        "spec": spec,
    }
    text = f"create the PodGroup {namespace}/{name} with {field} {least}"
    return repair(text, "CreateGroup", [create(KINDS[api, "PodGroup"], raw)])


# Members that do not count


def set_scheduler(snapshot: ClusterSnapshot, pods: list[PodRecord], name: str) -> Repair:
    """The pods with the scheduler name that the others of their gang have."""
    objects = []
    for subject in map(Subject.of, pods):
        raw, spec = subject.raw(snapshot), {"schedulerName": name}
        body = {"template": {"spec": spec}} if subject.info is RESERVATION else spec
        objects.append(patch(subject.info, raw, {"spec": body}))
    whose = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods)
    wrong = ", ".join(dict.fromkeys(pod.scheduler for pod in pods))
    return repair(f"set schedulerName: {name} instead of {wrong} in {whose}", "SetScheduler", objects)

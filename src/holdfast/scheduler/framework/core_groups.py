"""Rules and messages of PodGroups of `scheduling.k8s.io`, as kube-scheduler 1.37 has them.

PreEnqueue           the PodGroup exists, and a gang has as many pods as it needs
validation           all members have the same scheduler name, priority and preemption policy
PlacementFeasible    as many members as the gang needs are scheduled, or remain to be tried
"""

from collections.abc import Collection

from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.gang_failures import GangRefusal
from holdfast.scheduler.jobs import Job, JobProblem

UNSCHEDULABLE = "pod group is unschedulable"
TOO_FEW_PODS = "waiting for minCount pods from a gang to appear in scheduling queue"
NO_PLACEMENTS = "no feasible placements found"
NO_DOMAIN = "cannot determine domain for already scheduled pods: {}"
_LOWER = "PreemptLowerPriority"


def missing_group(name: str) -> str:
    return f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'


def no_placements(count: int, first: str) -> str:
    return f"{UNSCHEDULABLE}, 0/{count} placements are available, first placement status: {first}"


def member_error(job: Job, members: list[PodRecord]) -> str:
    """Why the pending members, or those on nodes, cannot be in one group; empty if they can."""
    group = job.core
    if group is None or not members:
        return ""
    scheduler, priority = members[0].scheduler, job.priority_class or 0
    policy, of_group = "", group.spec.preemption_policy or ""
    for pod in (*members, *(each for each in job.placed() if each.reservation is None)):
        if pod.scheduler != scheduler:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, got: "
                f'"{pod.scheduler}" and "{scheduler}"'
            )
        spec = pod.cls.pod.spec
        if (spec.priority or 0) != priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's "
                f"priority, got {spec.priority or 0} and {priority}"
            )
        own = spec.preemption_policy or _LOWER
        if of_group and own != of_group:
            return (
                "all pods in a single pod group should have the same preemption policy as the pod "
                f"group's preemption policy, got {own} and {of_group}"
            )
        policy = policy or own
        if own != policy:
            return (
                "all pods in a single pod group should have the same preemption policy, got "
                f"{own} and {policy}"
            )
    return ""


def unmet(job: Job, members: list[PodRecord], placed: Collection[str]) -> tuple[str, int]:
    """Why too few members can be placed if only `placed` (uids) can, and after how many members that
    is certain. Placed members must be on their rows."""
    needed, remaining = job.min_member, len(members)
    scheduled = job.ready_members - len(placed)
    if remaining + scheduled < needed:
        return f"{UNSCHEDULABLE}, {_count(needed, scheduled, remaining)}", 0
    for number, pod in enumerate(members, 1):
        remaining -= 1
        scheduled += pod.uid in placed
        if remaining + scheduled < needed:
            return _count(needed, scheduled, remaining), number
    return UNSCHEDULABLE, len(members)


def _count(needed: int, scheduled: int, remaining: int) -> str:
    return f"minCount ({needed}) cannot be satisfied: {scheduled} scheduled, {remaining} remaining"


def refusal_of(
    job: Job, members: list[PodRecord], placed: Collection[str], why: GangRefusal, text: str = ""
) -> GangRefusal:
    """The refusal of a group of which only `placed` (uids) could be placed. `why` has the reasons of
    the others. Members after the one that made it certain get the message of the group, which is
    `text` if that is given."""
    own, tried = unmet(job, members, placed)
    text = text or own
    messages = {}
    for number, pod in enumerate(members):
        if number >= tried:
            messages[pod.uid] = text
        elif pod.uid in placed:
            messages[pod.uid] = text if text.startswith(UNSCHEDULABLE) else f"{UNSCHEDULABLE}, {text}"
        else:
            messages[pod.uid] = why.messages.get(pod.uid, text)
    return why._replace(problem=JobProblem(why.problem.reason, text), messages=messages)

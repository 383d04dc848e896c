"""How a pod, a reservation or a gang would start now: on nodes that are eligible, or by itself after it
has preempted pods or reservations, or reclaimed capacity of its queue's share.

Beside gangs, and where queues share capacity, this is what comes of it in `played_rounds`; otherwise
pods that are tried before it are placed first.
"""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api.plurals import plural
from holdfast.explanation.facts.other_pods import (
    starts_beside,
    taker_names,
    takers_text,
    tried_before_text,
)
from holdfast.explanation.facts.played_rounds import (
    PREEMPTED,
    RECLAIMED,
    Eviction,
    Play,
    is_played,
    played,
    was_played,
)
from holdfast.explanation.facts.reclaimed_capacity import reclaimed_text
from holdfast.explanation.facts.rehearsed_rounds import first_pod, started_before
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import GangGoal, Goal, Subject, planned_of, profile_for, starts_on
from holdfast.scheduler.cluster.decisions import Preempt
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.interface import Nomination
from holdfast.scheduler.jobs import Job
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_NODES = 3
_EVICTIONS = 3


class Start(NamedTuple):
    """How it would start."""

    nodes: list[str]
    """Empty if it would not."""
    text: str = ""
    """`it fits n1`, or `it preempts default/x on n1`; or who takes what it needs, if it does not
    start."""
    evicts: bool = False
    """Whether it preempts or reclaims."""
    victims: tuple[PodRecord, ...] = ()
    """The pods that end for it then."""


NO_START = Start([])


def start_of(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    """On eligible nodes, unless others take them first; otherwise by preempting or reclaiming."""
    if _is_played(snapshot, goal):
        return _played_start(snapshot, goal)
    found = fitting_start(snapshot, goal)
    if found.nodes:
        return found
    with started_before(snapshot, goal):
        evicting = _evicting(snapshot, goal)
    return evicting if evicting.nodes else found


def fitting_start(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    """Without preempting or reclaiming."""
    if _is_played(snapshot, goal):
        start = _played_start(snapshot, goal)
        return Start([]) if start.evicts else start
    alone = starts_on(snapshot, goal)
    nodes, takers = starts_beside(snapshot, goal, alone) if alone else ([], "")
    return _fitting(nodes) if nodes else Start([], takers)


def evicting_start(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    """By preempting or reclaiming, also beside those that are tried before it."""
    if _is_played(snapshot, goal):
        start = _played_start(snapshot, goal)
        return start if start.evicts else NO_START
    alone = _evicting(snapshot, goal)
    if not alone.nodes:
        return alone
    with started_before(snapshot, goal):
        return _evicting(snapshot, goal)


def taken_text(snapshot: ClusterSnapshot, goal: Goal) -> str:
    """`default/old is tried before it and takes n1`, if the pod or gang would start now but for those,
    and how it starts beside them; empty if they leave it enough."""
    if not _is_played(snapshot, goal):
        takers = takers_text(snapshot, goal)
        start = evicting_start(snapshot, goal) if takers else NO_START
        return f"{takers}; then {start.text}" if start.nodes else takers
    play = played(snapshot, goal)
    if play.is_at_once:
        return ""
    takers = _takers_text(snapshot, goal, play)
    start = _of_play(snapshot, play)
    if not start.nodes:
        return takers
    if not takers:
        return start.text if start.evicts else ""
    then = start.text if _is_following(play) else f"then {start.text}"
    return f"{takers}; {then}"


def following_text(snapshot: ClusterSnapshot, goal: Goal) -> str:
    """`once default/x has preempted default/y, it fits n1`, if the pod or gang, which does not start by
    itself, does with what others leave of the capacity that they preempt or reclaim; or beside others
    that start before it."""
    if not _is_played(snapshot, goal):
        return ""
    play = played(snapshot, goal)
    if play.nodes and _is_following(play):
        return _of_play(snapshot, play).text
    names = taker_names(snapshot, (pod for pod, _ in play.others)) if play.is_at_once else []
    if not names or starts_on(snapshot, goal):
        return ""
    has = plural(len(names), "has", "have")
    return f"once {few(names, _NODES)} {has} started, {_of_play(snapshot, play).text}"


def lost_text(snapshot: ClusterSnapshot, goal: Goal) -> str:
    """Who takes what the pod would preempt, if it were tried by itself; empty if no pod does."""
    if not _is_played(snapshot, goal):
        return ""
    play = played(snapshot, goal)
    if play.nodes:
        return ""
    return _others_text(snapshot, play.others) or "others preempt or reclaim what it would preempt"


def own_victims(snapshot: ClusterSnapshot, goal: Goal) -> list[PodRecord]:
    """The pods that are preempted for the pod or gang, if it then starts."""
    play = _start_by_itself(snapshot, goal)
    return play.victims(PREEMPTED)


def _start_by_itself(snapshot: ClusterSnapshot, goal: Goal) -> Play:
    """The play, if it starts in it, and not only once others have evicted."""
    play = played(snapshot, goal) if _is_played(snapshot, goal) else Play()
    return play if play.nodes and not _is_following(play) else Play()


def member_evictions(snapshot: ClusterSnapshot, pod: PodRecord) -> list[Eviction]:
    """What is preempted for the members of its gang until this one starts, one after the other. Only
    PodGroups of `scheduling.k8s.io` preempt for members beyond those that they need."""
    return [each for each in _start_by_itself(snapshot, Subject.of(pod)).own if each.verb == PREEMPTED]


def gang_victims(snapshot: ClusterSnapshot, job: Job) -> list[PodRecord]:
    """The pods that a gang preempts to start."""
    return own_victims(snapshot, GangGoal(job.name))


# Of a play


def _is_played(snapshot: ClusterSnapshot, goal: Goal) -> bool:
    """Not at another time than now: what happens until then is not played."""
    pod = goal.record(snapshot) if isinstance(goal, Subject) else None
    if snapshot.cluster.now != snapshot.now or (pod and planned_of(snapshot, pod) is not None):
        return False
    return is_played(snapshot)


def _played_start(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    if not was_played(snapshot, goal) and not _may_start(snapshot, goal):
        return NO_START
    play = played(snapshot, goal)
    if play.is_at_once and isinstance(goal, GangGoal):
        return _fitting(nodes) if (nodes := starts_on(snapshot, goal)) else NO_START
    if play.nodes:
        return _of_play(snapshot, play)
    return Start([], _takers_text(snapshot, goal, play) if starts_on(snapshot, goal) else "")


def _may_start(snapshot: ClusterSnapshot, goal: Goal) -> bool:
    """Whether it starts if nothing else is pending: it need not be played otherwise."""
    if starts_on(snapshot, goal) or _evicting(snapshot, goal).nodes:
        return True
    pod, scheduler = first_pod(snapshot, goal), snapshot.scheduler
    if pod is None or scheduler.profile_of(pod.scheduler) is None:
        return False
    job = snapshot.cluster.jobs.of(pod)
    if job is not None and scheduler.preemption_for(job).victims:
        return True
    if job is None and scheduler.victims_in_queue(pod):
        return True
    names = {each.name for each in snapshot.cluster.jobs.partners(job)} if job is not None else set()
    plans = scheduler.reclaim_plans() if scheduler.reclaims else []
    return any(plan.leader is pod or plan.leader.job in names for plan in plans)


def _is_following(play: Play) -> bool:
    """Whether it starts only once others have evicted."""
    return bool(play.first) and not play.is_at_once and play.own_round != 1


def _of_play(snapshot: ClusterSnapshot, play: Play) -> Start:
    if not play.nodes:
        return NO_START
    text = f"it fits {few(play.nodes, _NODES)}"
    if play.own:
        text = " and ".join(_evictions(snapshot, play))
    if _is_following(play):
        text = f"once {_made_text(snapshot, play.first)}, {text}"
    victims = (*play.victims(PREEMPTED), *play.victims(RECLAIMED))
    return Start(play.nodes, text, bool(play.own), victims)


def _evictions(snapshot: ClusterSnapshot, play: Play) -> Iterable[str]:
    if victims := play.victims(PREEMPTED):
        reservations = [each for each in victims if each.reservation is not None]
        names = few(sorted(each.name for each in reservations), _NODES)
        whom = f"reservation {names}" if reservations else pods_text(victims)
        rows = {victim.row for victim in victims if victim.row >= 0}
        nodes = sorted(map(snapshot.cluster.nodes.name, rows)) or play.nodes
        yield f"it preempts {whom} on {few(nodes, _NODES)}"
    if play.victims(RECLAIMED):
        yield f"it reclaims {reclaimed_text(snapshot, play.own)}"


def _made_text(snapshot: ClusterSnapshot, evictions: list[Eviction]) -> str:
    made = [
        f"{taker_names(snapshot, [each.pod])[0]} has {each.verb} {pods_text(each.victims)}"
        for each in evictions[:_EVICTIONS]
    ]
    return " and ".join(made)


def _takers_text(snapshot: ClusterSnapshot, goal: Goal, play: Play) -> str:
    """Who takes what it needs, if it would start now but for them."""
    if found := takers_text(snapshot, goal):
        return found
    before = set(starts_on(snapshot, goal))
    return _others_text(snapshot, [each for each in play.others if each[1] in before] or play.others)


def _others_text(snapshot: ClusterSnapshot, takers: list[tuple[PodRecord, str]]) -> str:
    nodes = sorted({node for _, node in takers})
    return tried_before_text(snapshot, [pod for pod, _ in takers], nodes) if takers else ""


# Where there are neither queues nor gangs


def _fitting(nodes: list[str]) -> Start:
    return Start(nodes, f"it fits {few(nodes, _NODES)}")


def _evicting(snapshot: ClusterSnapshot, goal: Goal) -> Start:
    pod = goal.record(snapshot) if isinstance(goal, Subject) else None
    if pod is None or pod.gates or pod.deletion_pending or planned_of(snapshot, pod) is not None:
        return NO_START
    scheduler = snapshot.scheduler
    if scheduler.profile_of(pod.scheduler) is None or snapshot.cluster.jobs.of(pod) is not None:
        return NO_START
    profile = profile_for(scheduler, pod)
    column = scheduler.columns.column(profile, pod.cls)
    if column.rejected is not None or scheduler.search.find_row(profile, pod, column) >= 0:
        return NO_START
    nomination = scheduler.preemption.post_filter(profile, pod, column)
    if nomination.reserve_pods:
        return _preempting_reservations(snapshot, nomination)
    if not nomination.node:
        return NO_START
    victims = victims_of(snapshot, nomination)
    whom = pods_text(victims) if victims else "pods of lower priority"
    return Start([nomination.node], f"it preempts {whom} on {nomination.node}", True, tuple(victims))


def victims_of(snapshot: ClusterSnapshot, nomination: Nomination) -> list[PodRecord]:
    """The pods that are preempted for the nomination."""
    known = snapshot.cluster.pods
    uids = [each.pod.uid for each in nomination.decisions if isinstance(each, Preempt)]
    return [known[uid] for uid in uids if uid in known]


def _preempting_reservations(snapshot: ClusterSnapshot, nomination: Nomination) -> Start:
    known = snapshot.cluster.reservations.known
    name = snapshot.cluster.nodes.name
    nodes = sorted({name(row) for _, row, _ in nomination.reserve_pods})
    uids = {uid for _, _, victims in nomination.reserve_pods for uid in victims}
    names = sorted(known[uid].name for uid in uids if uid in known)
    whom = f"reservation {few(names, _NODES)}" if names else "reservations of lower priority"
    return Start(nodes, f"it preempts {whom} on {few(nodes, _NODES)}", True)

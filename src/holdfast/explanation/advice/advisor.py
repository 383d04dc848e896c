"""Advice for a pod or reservation that cannot be scheduled.

A change is tried on the snapshot, the scheduler is asked again, and the change is advised only if the
object would then be scheduled: on an eligible node, or because it then preempts pods or reclaims
capacity by itself. Advice is ranked by cost: waiting, configuration, smaller requests,
deleting a reservation, ending pods. What is tried is in `repair_search`, and in the functions of other
modules whose names begin with `consider`.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice, permutations
from types import MappingProxyType
from typing import NamedTuple

from holdfast.api.plurals import plural
from holdfast.explanation.advice.forecast_waits import (
    TOLERANCE,
    WAITING,
    agrees,
    forecast_of,
    forecast_wait,
)
from holdfast.explanation.facts.created_claims import created_pods
from holdfast.explanation.facts.expected_plans import all_planned
from holdfast.explanation.facts.followed_changes import (
    ExpectedOutcome,
    UserStep,
    first_order_that_holds,
    others_compete,
)
from holdfast.explanation.facts.other_pods import (
    Fitting,
    replicas_that_start,
    siblings,
    taker_names,
    takers_text,
    uncreated_replicas,
)
from holdfast.explanation.facts.own_starts import (
    NO_START,
    Start,
    evicting_start,
    fitting_start,
    start_of,
)
from holdfast.explanation.facts.played_rounds import is_played
from holdfast.explanation.facts.pod_owners import workload_text
from holdfast.explanation.facts.replaced_pods import replaced
from holdfast.explanation.facts.workload_dry_runs import (
    WorkloadParts,
    all_replaced,
    all_unavailable,
    dry_run,
    edits_strategy,
    edits_template,
    others_wait,
    parts_of,
    parts_of_new,
    unchanged_run,
)
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.repairs.kept_pods import with_deletions, with_rollout
from holdfast.explanation.repairs.pod_sizes import Sizes
from holdfast.explanation.repairs.repair import EVICT, Repair, edits_migration
from holdfast.explanation.repairs.smaller_workloads import marks_pod, replacements_text, scales_workload
from holdfast.explanation.report import END_PODS, Advice, few
from holdfast.explanation.verdicts import Goal, Subject, at_time, starts_on
from holdfast.kube.object_client import Raw
from holdfast.local.store.objects import Key
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import (
    CREATE,
    DELETE,
    PATCH,
    ClusterChange,
    ObjectChange,
    applied,
    delete,
)
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot, ForecastStart

MOST_ADVICE = 5
_MOST_PARTIAL = 2
_MOST_ORDERS = 6
"""Orders of changes that are tried: all of three."""
_NODES = 3

Actions = tuple[str, ...]
"""The kind of a change: what each of its steps does."""

END_OLD_PODS: Actions = ("EndOldPodsFirst",)
"""A higher `maxUnavailable` of a rolling update. Where that is enough, changes that need it too add
nothing."""


class _Ranked(NamedTuple):
    """Advice with what it is ranked by."""

    cost: int
    lost: float
    """The share of the requests that it takes away."""
    at: int
    """The order in which it was found."""
    advice: Advice
    sizes: Sizes = MappingProxyType({})
    """The most that is requested, by resource, if nothing else is changed."""
    until: float | None = None
    """When what is waited for will have happened; None for another change."""
    harm: tuple[int, int] = (0, 0)
    """The highest priority of the pods of others that end for it, and how many these are."""

    @property
    def actions(self) -> Actions:
        return tuple(self.advice.change["actions"])

    @property
    def ends_pods(self) -> bool:
        return self.advice.ends_pods

    def is_part_of(self, other: "_Ranked") -> bool:
        """Whether it is of the same kind, or one step of a combination that takes no more away."""
        is_step = set(self.actions) < set(other.actions) and other.lost <= self.lost
        return set(self.actions) == set(other.actions) or is_step

    def asks_less_than(self, other: "_Ranked") -> bool:
        """Whether it makes requests of the same pods smaller that the other one leaves larger."""
        if not self.sizes or not other.sizes or self.sizes == other.sizes:
            return False
        edited = [
            [(each["kind"], each["namespace"], each["name"]) for each in one.advice.change["objects"]]
            for one in (self, other)
        ]
        return edited[0] == edited[1] and all(
            name in self.sizes and self.sizes[name][1] <= then
            for name, (_, then) in other.sizes.items()
        )

    def is_like(self, other: "_Ranked") -> bool:
        """Whether another advice is the same change, or to wait as long, for another reason or none."""
        if self.until is None or other.until is None:
            return bool(self.advice.change == other.advice.change)
        return self.actions == other.actions and abs(self.until - other.until) <= TOLERANCE

    @property
    def rank(self) -> tuple[int, float, int]:
        return self.cost, self.lost, self.at


class _SomeStart(NamedTuple):
    """Changes with which some pods of the workload start, if not all."""

    is_advised: bool
    """Whether more pods run then than before."""
    started: int
    before: tuple[Repair, ...]
    made: tuple[Repair, ...]


class Advisor:
    """Collects verified advice for one object."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        subject: Subject,
        goal: Goal | None = None,
        counts_evictions: bool | None = None,
        created: Sequence[Raw] = (),
        alike: Sequence[Subject] = (),
    ) -> None:
        """The pods in `created` do not exist before the change: the subject, and the others that its
        workload would have. Those that are `alike` are of no workload with it, and depend on the same
        changes."""
        self.snapshot = snapshot
        self._counts_evictions = counts_evictions
        self.goal: Goal = goal or subject
        """What must be scheduled."""
        self.subject = subject
        """What is changed: the same, or another member of its gang."""
        self.before: tuple[Repair, ...] = ()
        """Changes without which nothing else can help."""
        self.insufficient: list[Repair] = []
        """Single changes of the subject that do not help by themselves."""
        self._found: dict[str, _Ranked] = {}
        self._partial: dict[str, tuple[int, _Ranked]] = {}
        """Changes with which some pods of the workload start, the most pods first."""
        self._for_old: set[str] = set()
        """Those of them with which only pods of another template start."""
        self.partial_resizes: list[Repair] = []
        """Smaller requests with which some pods of the workload start."""
        self._some_start: list[_SomeStart] = []
        self._siblings = siblings(snapshot, self.goal) if isinstance(self.goal, Subject) else []
        self._parts = parts_of(snapshot, self.goal) if isinstance(self.goal, Subject) else None
        self._siblings += alike
        self._are_new = bool(created)
        self._created = tuple(created_pods(snapshot, created[1:]))
        if created:
            named = [each for each in self._created if each.info is POD and each.operation == CREATE]
            self._siblings = [Subject(POD, each.name, each.namespace) for each in named]
            self._parts = parts_of_new(snapshot, created[0])
        self.helpful: list[Repair] = []
        """The changes that help, those made together as one."""
        self.takers: dict[str, None] = {}
        """Facts about pods that are tried before it, and take the capacity that a change frees."""
        self.lost_holds: dict[str, None] = {}
        """Facts about pods that take what is held for it, if another pod takes its place."""
        self.never_starts = False
        """Whether enough capacity is expected to be free, but it does not start by the forecast."""
        self.too_late: list[float] = []
        """Times until which a reservation would have to wait, and shortly after which it expires, or
        before."""
        self.waits_for_all = False
        """Whether waiting is for all pods of the workload, while the forecast is of one."""
        self._tried: dict[str, str] = {}
        """By the text of changes, that with which they are advised: their order may differ."""
        self._given: set[Actions] = set()
        """The kinds of change that are advised already."""

    @property
    def advice(self) -> list[Advice]:
        """The best few, cheapest first; after them, other kinds of change with which some pods of the
        workload start. Ending pods is left out where another change helps as many pods, combinations
        of changes where one change helps, smaller requests where larger ones help, and changes that
        another advice makes too."""
        ranked = _in_order(_least_harmful(list(self._found.values())))
        ranked = [each for each in ranked if not any(map(each.asks_less_than, ranked))]
        is_single = any(len(each.actions) == 1 for each in ranked)
        ranked = [each for each in ranked if len(each.actions) == 1 or not is_single]
        ranked += self._best_partial(ranked)[:_MOST_PARTIAL]
        found: list[_Ranked] = []
        for each in ranked:
            if not any(map(each.is_like, found)):
                found.append(each)
        return [each.advice for each in found[:MOST_ADVICE]]

    def _best_partial(self, for_all: list[_Ranked]) -> list[_Ranked]:
        """Of each kind of change with which some pods of the workload start, that with which the most
        do, unless it is part of a combination with which more do. Combinations are left out if one
        change helps as many, and ending pods if anything else does."""
        partial = sorted(self._partial.values(), key=lambda each: (each[0], *each[1].rank))
        most = min((count for count, each in partial if not each.ends_pods), default=0)
        best = list(for_all)
        for count, each in partial:
            is_known = any(each.is_part_of(other) for other in best)
            is_longer = len(each.actions) > 1 and any(len(other.actions) == 1 for other in best)
            if (
                not is_known
                and not is_longer
                and (not each.ends_pods or (not for_all and count < most))
            ):
                best.append(each)
        return best[len(for_all) :]

    @property
    def most_start(self) -> tuple[int, tuple[Repair, ...]]:
        """Changes now with which the most pods of the workload start, if not all, and how many; of
        those that are advised, if any are."""
        found = [
            each
            for each in self._some_start
            if each.before == self.before
            and not any(one.cost == EVICT or one.change.until is not None for one in each.made)
        ]
        if not found:
            return 0, ()
        best = max(found, key=lambda each: (each.is_advised, each.started))
        return best.started, best.made

    @property
    def is_harmless(self) -> bool:
        """Whether something helps, at least some pods of the workload, without pods of others that
        have to end for it."""
        partial = (each for text, (_, each) in self._partial.items() if text not in self._for_old)
        return not all(each.ends_pods for each in (*self._found.values(), *partial))

    @property
    def leaves_it_pending(self) -> bool:
        """Whether nothing is advised, or only what helps pods of another template of the workload."""
        return not self._found and self._for_old.issuperset(self._partial)

    @property
    def helps_all(self) -> bool:
        """Whether something helps all pods of the workload, without pods of others that have to end."""
        return not all(each.ends_pods for each in self._found.values())

    @property
    def actions(self) -> set[Actions]:
        """The kinds of change that help."""
        found = [*self._found.values(), *(each for _, each in self._partial.values())]
        return {each.actions for each in found}

    @property
    def actions_given(self) -> set[Actions]:
        """The kinds of change of which one is enough, and is advised."""
        return self._given

    @contextmanager
    def about(self, subject: Subject, *before: Repair) -> Iterator[None]:
        """Changes are made to another member of the gang, after some that are needed in any case."""
        outer = self.subject, self.before, self.insufficient
        self.subject, self.before, self.insufficient = subject, before, []
        try:
            yield
        finally:
            self.subject, self.before, self.insufficient = outer

    def propose(self, *repairs: Repair, evicts: bool = False) -> bool:
        """Advises the changes together if they help; returns whether they do. If it `evicts`, other
        pods of the workload may preempt or reclaim, even if this one fits."""
        is_single = len(repairs) == 1
        repairs = (*self.before, *repairs)
        is_wait = len(repairs) == 1 and repairs[0].change.actions == WAITING
        if is_wait and not self.waits_for_all:
            found = forecast_of(self.snapshot, self.goal)
            if found is not None and not agrees(found, repairs[0], self.snapshot.now):
                until = repairs[0].change.until or self.snapshot.now
                if found.time is None and self._is_too_late(until):
                    return False
                self.never_starts |= found.time is None and self._fits_after(repairs[0].change)
                return self.propose_forecast(found)
        steps = _ends_after_edits(repairs)
        text, change = self._described(repairs, steps)
        if text in self._tried:
            return self._tried[text] in self._found
        self._tried[text] = text
        start, fitting = self._tried_with(change, evicts)
        nodes, expected = start.nodes, fitting
        made, deleted = self._with_deletions(change)
        if nodes and self._parts is not None:
            evicts |= start.evicts
            made, more, fitting = with_rollout(self.snapshot, self._parts, made, evicts)
            before = self._before(made)
            is_old = not fitting.started and fitting.total and fitting.running > before.running
            is_done = not fitting.total and fitting.updated > before.updated
            is_done &= END_OLD_PODS not in self.actions  # with these, the new pods start
            if (
                not (fitting.started or is_old or is_done)
                or fitting.lost
                or (is_old and self._is_idle_beside_others(repairs, fitting))
                or not self._is_more(fitting, made, evicts)
            ):
                nodes = []
                if fitting.started and not fitting.is_all:
                    self._note_some_start(fitting, repairs, is_advised=False)
            if more and END_OLD_PODS in self.actions:
                nodes = []  # that is enough without the change
            deleted += more
            expected = fitting
            fitting = fitting if fitting.total > 1 or is_old or is_done else None
        elif (old := self._started_old(repairs, made)) is not None:
            nodes, fitting, expected = old.nodes, old, old
        if nodes and self._depends_on_order(made):
            order = self._order_that_holds(steps, expected, evicts)
            if not order:
                nodes = []
            elif order != steps:
                tried = text
                text, change = self._described(repairs, order)
                made, deleted = self._made(change, evicts)
                self._tried[tried] = text
        if not nodes:
            if is_single:
                self.insufficient.append(repairs[-1])
            return False
        cost = sum(10**each.cost for each in repairs)
        result = "" if change.until is not None and not start.evicts else f"; then {start.text}"
        if fitting is not None:
            nodes, result = fitting.nodes or nodes, self._result(fitting, made)
        if END_PODS in change.actions and isinstance(self.goal, Subject) and not start.evicts:
            result += replacements_text(self.snapshot, change, self.goal, nodes[0])
        exactly = fitting is not None and not fitting.total  # as the old pods are
        told = text.replace("request at most ", "request ") if exactly else text
        advice = Advice(f"{told}{deleted}{result}", made.data(), nodes)
        sizes = repairs[-1].sizes if len(repairs) == 1 else {}
        at = len(self._found) + len(self._partial)
        victims = fitting.victims if fitting is not None else start.victims
        harm = self._harm(change, victims)
        ranked = _Ranked(cost, _lost(repairs), at, advice, sizes, change.until, harm)
        if fitting is not None and not fitting.is_all:
            gained = fitting.running - self._before(change).running
            self._partial[text] = (-max(fitting.started, gained), ranked)
            self._note_some_start(fitting, repairs, is_advised=bool(start.nodes))
            if not start.nodes:
                self._for_old.add(text)
                self.insufficient += repairs[-1:] if is_single else ()
            if is_single and repairs[-1].sizes:
                self.partial_resizes.append(repairs[-1])
            return False
        parts = repairs if len(repairs) > 1 else ()
        helpful = Repair(text, change, max(each.cost for each in repairs), parts=parts)
        if is_single:
            last = repairs[-1]
            helpful = helpful._replace(sizes=last.sizes, limits=last.limits)
        self.helpful.append(helpful)
        self._found[text] = ranked
        return True

    def _started_old(self, repairs: tuple[Repair, ...], change: ClusterChange) -> Fitting | None:
        """How many pods of the workload run with a change with which the pod does not start, if more
        of those that are pending are of another template and do; None if not."""
        parts = self._parts
        if parts is None or not parts.is_mixed or change.until is not None:
            return None
        edits = edits_template(parts, change) or edits_strategy(parts, change)
        if edits or END_PODS in change.actions:
            return None
        found = dry_run(self.snapshot, parts, change)
        is_old = found.total and not found.started and not found.lost
        if not is_old or found.running <= self._before(change).running:
            return None
        return None if self._is_idle_beside_others(repairs, found) else found

    def _is_idle_beside_others(self, repairs: tuple[Repair, ...], fitting: Fitting) -> bool:
        """Whether as many pods of the workload run without one of the changes."""
        for at, left_out in enumerate(repairs if len(repairs) > 1 and self._parts is not None else ()):
            assert self._parts is not None
            rest = (*repairs[:at], *repairs[at + 1 :])
            if not _changed(left_out).isdisjoint(chain.from_iterable(map(_changed, repairs[at + 1 :]))):
                continue  # those were made on top of it
            made, _ = self._with_deletions(sum((each.change for each in rest), ClusterChange()))
            if dry_run(self.snapshot, self._parts, made).running >= fitting.running:
                return True
        return False

    def _described(
        self, repairs: tuple[Repair, ...], steps: tuple[Repair, ...]
    ) -> tuple[str, ClusterChange]:
        """The text and the change of the repairs, in the order of the steps."""
        several = sum(any(map(edits_pod, each.change.objects)) for each in repairs) > 1
        texts = [f"{self._whose(each, several)}{each.text}" for each in steps]
        change = sum((each.change for each in steps), ClusterChange())
        change = replace(change, actions=actions_of(*repairs))
        return _with_places(steps, texts), change  # the same change of other members is another one

    def _made(self, change: ClusterChange, evicts: bool) -> tuple[ClusterChange, str]:
        """The change with what it needs besides, and what that adds to its text."""
        made, text = self._with_deletions(change)
        if self._parts is None:
            return made, text
        made, more, _ = with_rollout(self.snapshot, self._parts, made, evicts)
        return made, f"{text}{more}"

    # One change after the other

    def _depends_on_order(self, change: ClusterChange) -> bool:
        """Whether what comes of the change may depend on the order of its steps, or on what others do
        with the capacity of pods that end. Pods of the old template compete with those of the new
        one."""
        if self._are_new or self.snapshot.is_hypothetical:
            return False
        parts = [each for each in change.parts if not each.follows]
        if len(parts) < 2 and END_PODS not in change.actions:
            return False
        is_edited = self._parts is not None and edits_template(self._parts, change)
        return is_edited or self._others_compete or any(map(scales_workload, parts))

    @cached_property
    def _others_compete(self) -> bool:
        return others_compete(self.snapshot, self.goal)

    def _order_that_holds(
        self, steps: tuple[Repair, ...], fitting: Fitting | None, evicts: bool
    ) -> tuple[Repair, ...]:
        """The first order in which the changes help when a user makes them one after the other. Empty
        if they help in no order; unchanged if the copy of the cluster cannot show it."""
        if any(each.change.until is not None and not each.change.objects for each in steps):
            return steps
        orders = list(_orders(steps))
        made = (self._user_steps(each, evicts) for each in orders)
        at = first_order_that_holds(self.snapshot, self.goal, made, self._expectation(fitting))
        return orders[at] if at >= 0 else ()

    def _user_steps(self, steps: tuple[Repair, ...], evicts: bool) -> list[UserStep]:
        change = sum((each.change for each in steps), ClusterChange())
        made, _ = self._made(change, evicts)
        waits = [
            (part, each.change.until)
            for each in steps
            if each.change.until is not None
            for part in each.change.objects
        ]
        return [
            UserStep(part, next((until for known, until in waits if known == part), None))
            for part in made.parts
            if not part.follows or (part.info is POD and part.operation == DELETE)
        ]

    def _expectation(self, fitting: Fitting | None) -> ExpectedOutcome:
        if fitting is None:
            return ExpectedOutcome()
        if self._parts is None:
            return ExpectedOutcome(tuple(self._siblings), fitting.running)
        metadata, info = self._parts.workload["metadata"], self._parts.info
        top = Key(info.group, info.kind, metadata.get("namespace") or "", metadata["name"])
        return ExpectedOutcome((), fitting.running, fitting.updated, top)

    def _note_some_start(self, fitting: Fitting, repairs: tuple[Repair, ...], is_advised: bool) -> None:
        made = repairs[len(self.before) :]
        self._some_start.append(_SomeStart(is_advised, fitting.started, self.before, made))

    def _harm(self, change: ClusterChange, victims: Iterable[PodRecord]) -> tuple[int, int]:
        """The highest priority of the pods that end, and how many these are."""
        known = self.snapshot.cluster.pod
        deleted = [each for each in change.objects if each.info is POD and each.operation == DELETE]
        ended = [known(each.namespace, each.name) for each in deleted]
        pods = [*victims, *(each for each in ended if each is not None and each.row >= 0)]
        return max((each.cls.priority for each in pods), default=0), len(pods)

    def _result(self, fitting: Fitting, change: ClusterChange) -> str:
        """How many pods of the workload start; of a rollout of which only old ones do, how many run."""
        if fitting.started and fitting.victims:
            return self._evicting_text(fitting)
        if fitting.started:
            return fitting_text(fitting)
        if not fitting.total:
            return "; then its old pods are current again, and its rollout is complete"
        runs = f"{fitting.running} of its pods {plural(fitting.running, 'runs', 'run')}"
        before = self._before(change).running
        return f"; then {runs} instead of {before}, but its rollout does not complete"

    def _evicting_text(self, fitting: Fitting) -> str:
        """`; then both pods start and preempt default/a, default/b on n1, n2`"""
        count, total, cluster = fitting.started, fitting.total, self.snapshot.cluster
        verb = "evict" if cluster.jobs.queues else "preempt"  # some are reclaimed
        starts = plural(count, f"starts and {verb}s", f"start and {verb}")
        who = f"{count} of {total} pods {starts}"
        if fitting.is_all:
            who = f"{'both' if total == 2 else f'all {total}'} pods start and {verb}"
        known = [cluster.pod(each.namespace, each.name) for each in fitting.victims]
        rows = {each.row for each in known if each is not None and each.row >= 0}
        nodes = sorted(map(cluster.nodes.name, rows))
        return f"; then {who} {pods_text(fitting.victims)} on {few(nodes, _NODES)}"

    def propose_forecast(self, found: ForecastStart) -> bool:
        """Advises to wait for as long as the forecast says, which has tried it."""
        if found.time is None or self._is_too_late(found.time):
            return False
        wait = forecast_wait(self.snapshot, found, found.time)
        nodes, result = [found.node] if found.node else [], ""
        fitting = dry_run(self.snapshot, self._parts, wait.change) if self._parts is not None else None
        if fitting is not None and fitting.started and fitting.total > 1:
            nodes, result = fitting.nodes, fitting_text(fitting)
        advice = Advice(f"{wait.text}{result}", wait.change.data(), nodes)
        at = len(self._found) + len(self._partial)
        ranked = _Ranked(10**wait.cost, 0.0, at, advice, until=found.time)
        if fitting is not None and result and not fitting.is_all:
            self._partial[wait.text] = (-fitting.started, ranked)
            return False
        self._found[wait.text] = ranked
        self.helpful.append(wait)
        return True

    def _fits_after(self, change: ClusterChange) -> bool:
        """Whether it has room after the change, if no others take that."""
        with applied(self.snapshot, change.objects), at_time(self.snapshot, change.until):
            return bool(starts_on(self.snapshot, self.goal))

    def is_enough(self, each: Repair, evicts: bool = False) -> bool:
        """Whether the change helps all pods of the workload; it is not advised by this. Those that
        preempt or reclaim count if it `evicts`."""
        change = sum((r.change for r in (*self.before, each)), ClusterChange())
        start, fitting = self._tried_with(change, evicts)
        if not start.nodes or (fitting is not None and not fitting.is_all):
            return False
        if start.evicts and not evicts and self._is_of_workload:
            return False
        if self._parts is None:
            return True
        made, _ = self._with_deletions(change)
        if END_OLD_PODS in self.actions:
            found = dry_run(self.snapshot, self._parts, made, evicts)
            return found.is_all and found.started > 0
        if dry_run(self.snapshot, self._parts, all_unavailable(self._parts, made), evicts).is_all:
            return True
        if not self.others_wait:
            return False
        return with_rollout(self.snapshot, self._parts, made, evicts)[2].is_all

    @property
    def _is_of_workload(self) -> bool:
        return self._parts is not None or self.has_siblings

    @property
    def may_evict(self) -> bool:
        """Whether it counts that pods of the workload preempt or reclaim. To be asked before changes
        are made."""
        return self._is_of_workload and self.counts_evictions

    @cached_property
    def others_wait(self) -> bool:
        """Whether other pods may take what the pods of the workload free."""
        return self._parts is not None and others_wait(self.snapshot, self._parts)

    def replicas_started(self, each: Repair) -> int:
        """How many pods of the workload start with the change; it is not advised by this."""
        change = sum((r.change for r in (*self.before, each)), ClusterChange())
        start, fitting = self._tried_with(change)
        if start.nodes and self._parts is not None and not start.evicts:
            fitting = dry_run(self.snapshot, self._parts, change)
        return fitting.started if fitting is not None else len(start.nodes[:1])

    def _is_more(self, fitting: Fitting, change: ClusterChange, evicts: bool) -> bool:
        """Whether more pods of the workload run with the change, or more of the present template; of a
        changed one, whether more run once all are replaced."""
        before = self._before(change)
        if not fitting.is_more_than(before):
            return False
        if fitting.is_all or self._parts is None or not edits_template(self._parts, change):
            return True
        replaced = all_replaced(self._parts, change)
        if replaced is not change:
            fitting = dry_run(self.snapshot, self._parts, replaced, evicts)
        return fitting.running > before.running

    def _before(self, change: ClusterChange) -> Fitting:
        """How many pods of the workload have a node without the change: waiting is compared with now,
        other changes with what is once pods that terminate have ended."""
        return self._unchanged if change.until is not None else self._unchanged_later

    @cached_property
    def _unchanged_later(self) -> Fitting:
        if self._parts is None or not self._parts.terminating:
            return self._unchanged
        return unchanged_run(self.snapshot, self._parts)

    @cached_property
    def _unchanged(self) -> Fitting:
        """How many pods of the workload have a node if nothing is changed. To be asked before changes
        are made."""
        if self._are_new and self._parts is not None:
            return Fitting(0, self._parts.replicas, [], 0, self._parts.running)
        if self._parts is not None:
            return dry_run(self.snapshot, self._parts, ClusterChange())
        records = [each.record(self.snapshot) for each in self._siblings]
        running = sum(each is not None and each.row >= 0 for each in records)
        return Fitting(0, len(records), [], running, running)

    def _with_deletions(self, change: ClusterChange) -> tuple[ClusterChange, str]:
        if self._are_new:
            return change, ""
        raws = [each.raw(self.snapshot) for each in self._siblings]
        pending = [raw for raw in raws if not raw["spec"].get("nodeName")]
        return with_deletions(self.snapshot, change, pending)

    def _tried_with(self, change: ClusterChange, evicts: bool = False) -> tuple[Start, Fitting | None]:
        """How it starts with the change, and how many pods of its workload do; None if no other pods
        depend on the change. Others preempt only if it does, or `evicts` says so."""
        snapshot, goal, counts_evictions = self.snapshot, self.goal, self.counts_evictions
        if any(edits_migration(snapshot, each) for each in change.objects):
            return NO_START, None
        if self._parts is not None and edits_strategy(self._parts, change):
            found = dry_run(snapshot, self._parts, change)
            nodes = found.nodes if found.is_all else []
            return Start(nodes, f"it fits {few(nodes, _NODES)}"), None
        unchanged = self._unchanged
        with ExitStack() as stack:
            before = stack.enter_context(replaced(snapshot, (*change.objects, *self._created)))
            stack.enter_context(at_time(snapshot, change.until))
            is_pod = not isinstance(goal, Subject) or goal.info is POD
            if is_pod and change.until is None:
                stack.enter_context(all_planned(snapshot, again=True))
            if change.until is not None and self._is_too_late(change.until):
                return NO_START, None
            start = (start_of if counts_evictions else fitting_start)(snapshot, goal)
            if not start.nodes and before:
                self.lost_holds[self._lost_hold_text(before)] = None
            elif start.text and not start.nodes:
                self.takers[start.text] = None
            if self._parts is not None and not start.nodes and workload_text(change):
                return self._start_without_others(self._parts), None
            if not self.has_siblings or not isinstance(goal, Subject):
                return start, None
            evicts |= start.evicts
            if evicts and is_played(snapshot):
                return start, None
            if self._parts is not None or (not start.nodes and not workload_text(change)):
                return start, None
            fitting = replicas_that_start(snapshot, goal, self._siblings, change, evicts)
        if fitting is None or fitting.total == 1:
            return start, None
        if not fitting.is_more_than(unchanged):
            return NO_START, None
        # Those on nodes make room when a smaller one takes their place.
        if start.nodes or fitting.is_all:
            return start._replace(nodes=start.nodes or fitting.nodes), fitting
        return start, None

    def _lost_hold_text(self, takers: list[Subject]) -> str:
        """Who has what was held for the pod that is replaced."""
        pods = [pod for each in takers if (pod := each.record(self.snapshot)) is not None]
        nodes = sorted({self.snapshot.cluster.nodes.name(pod.row) for pod in pods if pod.row >= 0})
        names = taker_names(self.snapshot, pods)
        take = f"{few(names, _NODES)} {plural(len(names), 'takes', 'take')} {few(nodes, _NODES)}"
        return f"the starvation hold of a pod ends if another one takes its place: {take} first"

    def _start_without_others(self, parts: WorkloadParts) -> Start:
        """How it would start if no other pods of its workload were there, which a smaller one, or one
        with another template, takes the place of."""
        others = [each for each in parts.now if each["metadata"]["name"] != self.goal.name]
        gone = [delete(POD, raw["metadata"]["name"], self.goal.namespace) for raw in others]
        with applied(self.snapshot, gone):
            return fitting_start(self.snapshot, self.goal)

    @property
    def counts_evictions(self) -> bool:
        """Whether a change helps if its object then preempts or reclaims: not if it does so anyway.
        To be asked before changes are made."""
        if self._counts_evictions is None:
            self._counts_evictions = not evicting_start(self.snapshot, self.goal).nodes
        return self._counts_evictions

    def starts_now(self) -> bool:
        """Whether it would start, with the changes that are made at the moment."""
        start = start_of if self.counts_evictions else fitting_start
        return bool(start(self.snapshot, self.goal).nodes)

    def evicts_now(self) -> bool:
        """Whether it would start by preempting or reclaiming, with the changes that are made at the
        moment."""
        return bool(evicting_start(self.snapshot, self.goal).nodes)

    def _is_too_late(self, time: float) -> bool:
        """Whether it would expire before it is of any use from that time on, by the accuracy of such
        times."""
        is_late = self.expires <= time + TOLERANCE
        if is_late:
            self.too_late.append(time)
        return is_late

    @property
    def expires(self) -> float:
        """When it expires if it is a reservation, or the first one of a gang with such; else
        infinite."""
        cluster, goal = self.snapshot.cluster, self.goal
        if isinstance(goal, Subject):
            pod = goal.record(self.snapshot)
            job = cluster.jobs.of(pod) if pod is not None else None
            pods = [pod] if pod is not None else []
        else:
            job, pods = cluster.jobs.known.get(goal.job), []
        pods = job.waiting() if job is not None else pods
        reservations = [each.reservation for each in pods if each.reservation is not None]
        known = [each.expires for each in reservations if each.expires is not None]
        return min(known, default=math.inf)

    def is_taken(self) -> bool:
        """Whether pods that are tried before it take the capacity with which it would start now."""
        text = takers_text(self.snapshot, self.goal)
        if text:
            self.takers[text] = None
        return bool(text)

    @property
    def replicas(self) -> int:
        """How many pods the workload of the pod should have; 0 if that is not known."""
        return self._parts.replicas if self._parts is not None else 0

    @property
    def has_siblings(self) -> bool:
        """Whether other pods of the same workload depend on the changes."""
        if self._parts is not None:
            return self._parts.replicas > 1
        return bool(self._siblings) or (
            isinstance(self.goal, Subject) and bool(uncreated_replicas(self.snapshot, self.goal, 0))
        )

    def propose_once(self, kind: Actions, *repairs: Repair, evicts: bool = False) -> bool:
        """Proposes one change of a kind: others would differ in the node only."""
        if kind in self._given:
            return True
        helps = self.propose(*repairs, evicts=evicts)
        if helps:
            self._given.add(kind)
        return helps

    def improve(self, better: Repair, evicts: bool = False) -> None:
        """Advises a change in place of the last one of its kind that was found to help, if it helps as
        well."""
        kind = (*actions_of(*self.before), *actions_of(better))
        text = [text for text, each in self._found.items() if each.actions == kind][-1]
        last = self._found.pop(text)
        helpful = next(each for each in self.helpful if each.text == text)
        self.helpful.remove(helpful)
        if not self.propose(better, evicts=evicts):
            self._found[text] = last
            self.helpful.append(helpful)

    def _whose(self, each: Repair, several: bool) -> str:
        """`default/q: ` for a change of other members than the pod; of several changes of pods, all
        pods of each that is made to more than one."""
        names = [(c.name, c.namespace) for c in each.change.objects if edits_pod(c)]
        pods = sorted(set(names))
        if len(pods) > 1 and several:
            shown = [f"{namespace}/{name}" for name, namespace in pods]
            return "" if shown[0] in each.text else f"{few(shown, _NODES)}: "
        if len(pods) != 1 or (self.goal.name, self.goal.namespace) in pods:
            return ""
        name, namespace = pods[0]
        return "" if f"{namespace}/{name}" in each.text else f"{namespace}/{name}: "


def fitting_text(fitting: Fitting) -> str:
    """`; then 1 of 2 pods fits: n1`"""
    count, total, nodes, *_ = fitting
    if fitting.is_all:
        return f"; then {'both' if total == 2 else f'all {total}'} pods fit: {few(nodes, _NODES)}"
    return f"; then {count} of {total} pods {plural(count, 'fits', 'fit')}: {few(nodes, _NODES)}"


def _in_order(found: Iterable[_Ranked]) -> list[_Ranked]:
    """The cheapest first; of one cost, the kind that was found first, and of that the least loss."""
    first: dict[Actions, int] = {}
    for each in sorted(found, key=lambda each: each.at):
        first.setdefault(each.actions, each.at)
    return sorted(found, key=lambda each: (each.cost, first[each.actions], *each.rank))


def _least_harmful(found: list[_Ranked]) -> list[_Ranked]:
    """What ends no pods of others; otherwise what ends the fewest and least important ones, by the
    scheduler rather than by hand."""
    if gentle := [each for each in found if not each.ends_pods]:
        return gentle
    least = min((each.harm for each in found), default=(0, 0))
    found = [each for each in found if each.harm == least]
    return [each for each in found if END_PODS not in each.actions] or found


def _lost(repairs: tuple[Repair, ...]) -> float:
    sizes = [size for each in repairs for size in each.sizes.values()]
    return sum(1 - then / before for before, then in sizes if before)


def _ends_after_edits(repairs: tuple[Repair, ...]) -> tuple[Repair, ...]:
    """Pods end once the changed pods exist that should have what they free: others wait for it."""
    edits = [at for at, each in enumerate(repairs) if any(map(edits_pod, each.change.objects))]
    last = edits[-1] + 1 if edits else 0
    first, ends = list[Repair](), list[Repair]()
    for each in repairs[:last]:
        (ends if END_PODS in each.change.actions else first).append(each)
    return (*first, *ends, *repairs[last:])


def _orders(steps: tuple[Repair, ...]) -> Iterator[tuple[Repair, ...]]:
    """Orders in which the changes can be made, first as they are. Of one object, the second change was
    made on top of the first one: these stay together."""
    yield steps
    groups: list[tuple[set[tuple[str, str, str]], tuple[Repair, ...]]] = []
    for each in steps:
        names = _changed(each)
        found: tuple[Repair, ...] = (each,)
        for group in [group for group in groups if not names.isdisjoint(group[0])]:
            groups.remove(group)
            names, found = names | group[0], (*group[1], *found)
        groups.append((names, found))
    for order in islice(permutations(made for _, made in groups), _MOST_ORDERS):
        flat = tuple(chain.from_iterable(order))
        if flat != steps:
            yield flat


def _changed(repair: Repair) -> set[tuple[str, str, str]]:
    return {(part.info.kind, part.namespace, part.name) for part in repair.change.objects}


def actions_of(*repairs: Repair) -> Actions:
    return tuple(action for each in repairs for action in each.change.actions)


def _with_places(repairs: tuple[Repair, ...], texts: list[str]) -> str:
    """The texts with the template that is edited, named after the last change of it; or with the pods
    that are edited."""
    change, text = sum((each.change for each in repairs), ClusterChange()), " and ".join(texts)
    if "template of" in text:
        return text
    place = workload_text(change)
    edits = [at for at, each in enumerate(repairs) if workload_text(each.change)]
    if not edits:
        place = _members_text(change, text)
        edits = [at for at, each in enumerate(repairs) if any(map(edits_pod, each.change.objects))]
    return " and ".join(f"{each}{place if at in edits[-1:] else ''}" for at, each in enumerate(texts))


def _members_text(change: ClusterChange, text: str) -> str:
    """`, in each of 3 pods (w-0, w-1, w-2)`; empty if one pod is edited, or the text names them."""
    edited = dict.fromkeys(each.name for each in change.objects if edits_pod(each))
    if len(edited) < 2 or any(f"/{name}" in text for name in edited):
        return ""
    return f", in each of {len(edited)} pods ({few(list(edited))})"


def edits_pod(change: ObjectChange) -> bool:
    is_edit = change.info is POD and change.operation == PATCH and "status" not in change.body
    return is_edit and not marks_pod(change)

"""Asks what would happen: applies changes to a cluster at rest, and collects what differs afterwards.

The objects come to rest before the changes, so what happens anyway (pending pods that fit, controllers
that are not done) is not counted as an effect of the changes.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from msgspec import structs

from holdfast.api.documents import Document
from holdfast.api.errors import InvalidObject
from holdfast.api.names import (
    DEFAULT_SCHEDULER,
    HOLD_LABEL,
    HOLDFAST_SCHEDULER,
    PREEMPTOR_UID,
    RESERVATION_API,
)
from holdfast.api.plurals import number_of
from holdfast.explanation.verdicts import place
from holdfast.local.component import ENDED, RESERVATION
from holdfast.local.executor import reservation_of
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store.objects import NODE, POD, Key, Raw, StoreChange, pod_key
from holdfast.local.timeline import BOUND, EVICTED, PREEMPTED, TimelineEntry
from holdfast.local.workloads.lister import controller_of, labels_of, owner_ref
from holdfast.scheduler.actions.reclaim import reclaimer_in
from holdfast.scheduler.reservations.calendar import FEASIBLE
from holdfast.sim.scenario import read_scenario
from holdfast.sim.scenario_actions import Create, Scenario
from holdfast.sim.what_if.answer import (
    DISPLACED,
    NEW,
    PENDING,
    ChangedNode,
    Displaced,
    LostReservation,
    Placed,
    StillPending,
    WhatIfAnswer,
    pending_groups,
)
from holdfast.sim.what_if.capacity import cluster_capacity, comparable
from holdfast.sim.what_if.changes import (
    AppliedChanges,
    BeforePods,
    ChangeError,
    WhatIfChanges,
    apply_changes,
    note_of_limits,
)
from holdfast.sim.what_if.drain import BlockedEviction, drain, is_daemon
from holdfast.sim.what_if.hypothetical_cluster import HypotheticalCluster
from holdfast.sim.what_if.node_plan import (
    AttemptResult,
    Counts,
    NodePlanner,
    PendingCount,
    PendingReason,
)
from holdfast.sim.what_if.node_shapes import ShapeError, ShapeReader
from holdfast.snapshot.cluster_objects import ClusterObjects, is_own, is_stored
from holdfast.snapshot.dump_workloads import makes_pods
from holdfast.snapshot.manifests import InvalidInput
from holdfast.snapshot.reader import setup_of
from holdfast.snapshot.snapshot_header import is_header
from holdfast.snapshot.stripping import Stripper

_HOLDS = frozenset((HOLD_LABEL, PREEMPTOR_UID))
_HOLDING = ("Available", "Waiting")
"""The phases of reservations that have capacity on a node, or will get what is released there."""
_CONSTRAINTS = frozenset(("affinity", "topologySpreadConstraints", "resourceClaims"))
"""Fields of a pod's spec by which pods depend on one another, or on particular devices."""
_EVICTED = 5
"""Pods evicted before the change that are named."""
_UNSTATED = "not scheduled yet"
_TICK = 1e-3
"""How many seconds after the cluster came to rest it is changed: what is applied is queued behind what
is pending already, also where timestamps of the same second do not tell."""
_KEPT_METADATA = ("name", "namespace", "labels", "ownerReferences")


class WhatIfQuestion:
    """A cluster at rest, to be asked once."""

    def __init__(
        self,
        setup: SchedulerFactory,
        now: float,
        objects: Iterable[Raw],
        written: Scenario | None = None,
        *,
        stripped: bool = False,
        seed: int = 0,
    ) -> None:
        """`now` is the time of the objects, which a server has stored. `written` are others, which no
        server has completed and checked yet. `stripped` objects lack what scheduling does not read.
        Raises InvalidInput."""
        self.time = now
        self.stripped = stripped
        self.setup = setup
        self.cluster = HypotheticalCluster(setup, now, objects, stripped=stripped, seed=seed)
        self.notes: list[str] = []
        if written is not None:
            self.notes += written.notes
            self._create(written)
        waiting = {str(_key(raw)) for raw in _pending(self.cluster).values()}
        entries = self.cluster.rest()
        bound = sum(each.event == BOUND and each.object in waiting for each in entries)
        if bound:
            pods = number_of(bound, "pod that is", "pods that are")
            self.notes.append(f"{pods} pending in the cluster would be placed anyway")
        self.notes += _evicted_anyway(entries)
        self.pending = _pending(self.cluster)
        self._texts: list[str] = []
        self.applied: AppliedChanges | None = None
        """What was done to the cluster, once it was asked."""
        self.before = cluster_capacity(self.cluster.scheduler.cluster, len(self.pending))

    @classmethod
    def about(cls, setup: SchedulerFactory, given: ClusterObjects) -> "WhatIfQuestion":
        """Of a snapshot or a cluster, of files of objects that someone wrote, or of both. Raises
        InvalidInput."""
        stored: list[Document] = []
        others: list[Document] = []
        for document in given.documents:
            if not is_own(document.data):
                (stored if is_stored(document.data) else others).append(document)
        stripped, stripper = given.header is not None, Stripper()
        taken = {each.file for each in given.documents if is_header(each.data)}
        objects = [
            # A dump beside a snapshot is made like it.
            stripper.strip(each.data) if stripped and each.file not in taken else each.data
            for each in stored
        ]
        if others:
            written = read_scenario(others, setup.object_kinds())
            question = cls(setup, given.now, objects, written, stripped=stripped)
        else:
            question = cls(setup, given.now, objects, stripped=stripped)
        question.notes += note_of_limits(str(each.data.get("kind")) for each in given.documents)
        return question

    def _create(self, scenario: Scenario) -> None:
        for planned in scenario.actions:
            if isinstance(planned.action, Create):
                try:
                    self.cluster.take(planned.action)
                except InvalidObject as error:
                    raise InvalidInput([f"{planned.origin}: {error}"]) from None

    def configure(self, setup: SchedulerFactory, name: str) -> None:
        """Another configuration from now on: what it places or displaces is part of the answer."""
        now, objects = self.cluster.clock.epoch(), [*self.cluster.objects.all()]
        self.cluster = HypotheticalCluster(setup, now, objects, stripped=self.stripped, seed=1)
        self.setup = setup
        self._texts.append(f"configuration {name}")

    def ask(self, changes: WhatIfChanges, before_pods: BeforePods | None = None) -> WhatIfAnswer:
        """`before_pods` is called when everything else of the manifests has come to rest. Raises
        ChangeError, InvalidInput, NotSettled."""
        cluster = self.cluster
        cluster.clock.advance(cluster.clock.t + _TICK)
        log = _Log(cluster)
        blocked: list[BlockedEviction] = []

        def ready(scheduled: Sequence[tuple[Key, Raw]]) -> None:
            if before_pods is not None:
                log.rest()
                before_pods(scheduled)

        with cluster.watching(log.changed):
            applied = self.applied = apply_changes(cluster, changes, ready)
            log.rest()
            if applied.drained:
                blocked = drain(cluster, applied.drained, log.rest)
        pending = _pending(cluster)
        after = cluster_capacity(cluster.scheduler.cluster, len(pending))
        before, after = comparable(self.before, after)
        answer = WhatIfAnswer(
            time=self.time,
            changes=[*self._texts, *applied.texts],
            before=before,
            after=after,
            blocked=blocked,
            notes=[*self.notes, *applied.notes],
        )
        _Outcome(self, log, applied, pending).fill(answer)
        self._note_other_schedulers(answer)
        return answer

    def ask_with_plan(self, changes: WhatIfChanges, shapes: Sequence[str]) -> WhatIfAnswer:
        """The answer with the smallest number of nodes of these shapes that makes everything fit.
        Raises ChangeError, InvalidInput, NotSettled."""
        cluster = self.cluster
        objects, now = [*cluster.objects.all()], cluster.clock.epoch()
        reader = ShapeReader(cluster.objects.get, cluster.objects.scan)
        try:
            templates = [reader.template(shape) for shape in shapes]
        except ShapeError as error:
            raise ChangeError(f"--plan: {error}") from None

        def attempt(counts: Counts) -> AttemptResult:
            question = WhatIfQuestion(self.setup, now, objects, stripped=self.stripped, seed=1)
            answer = question.ask(_with_nodes(changes, shapes, counts))
            waiting = [each for each in answer.pending if each.waits_for == "node"]
            reservations = sum(each.is_reservation for each in waiting)
            return AttemptResult(
                PendingCount(len(waiting) - reservations, reservations),
                Counter(
                    PendingReason(reason, each.is_reservation)
                    for each in waiting
                    for reason in each.reasons
                ),
                question.requested_by_pending(),
                {name: each.free for name, each in answer.after.resources.items()},
                len(answer.blocked) + awaited_replicas(question.cluster),
                question.is_uniform(answer),
                len(answer.placed),
            )

        def reasons(counts: Counts) -> Counter[PendingReason]:
            question = WhatIfQuestion(self.setup, now, objects, stripped=self.stripped, seed=1)
            answer = question.ask(_with_nodes(changes, shapes, counts))
            return question.rejections_of_new_nodes(answer)

        sizes = [template.sizes for template in templates]
        plan = NodePlanner(shapes, sizes, attempt, reasons).plan()
        answer = self.ask(_with_nodes(changes, shapes, tuple(plan.nodes.values())))
        answer.plan = plan
        return answer

    def requested_by_pending(self) -> dict[str, int]:
        """What all pending pods request, by resource."""
        state = self.cluster.scheduler.cluster
        sums: Counter[int] = Counter()
        for pod in state.pods.values():
            if pod.row < 0 and not pod.gates and self.setup.serves(pod.scheduler):
                sums.update(pod.cls.amounts)
        return {name: sums[slot] for slot, name in state.nodes.slots.resources() if sums[slot]}

    def is_uniform(self, answer: WhatIfAnswer) -> bool:
        """Whether all pods that are placed or wait for a node are equal, and without constraints on one
        another; those of DaemonSets are not counted."""
        if answer.displaced or answer.blocked:
            return False
        cluster = self.cluster
        classes = set()
        names = [each.object for each in answer.placed] + [each.object for each in answer.pending]
        for name in names:
            kind, _, rest = name.partition("/")
            raw = cluster.objects.get(Key("", "Pod", *rest.split("/"))) if kind == "Pod" else None
            if raw is None or not _CONSTRAINTS.isdisjoint(raw["spec"]):
                return False
            if is_daemon(raw):
                continue
            record = cluster.scheduler.cluster.pods.get(raw["metadata"]["uid"])
            if record is None or record.job is not None:
                return False
            classes.add(id(record.cls))
        return len(classes) == 1

    def rejections_of_new_nodes(self, answer: WhatIfAnswer) -> Counter[PendingReason]:
        """How many pending pods and reservations each reason keeps from the nodes that were added."""
        assert self.applied is not None
        found: Counter[PendingReason] = Counter()
        state = self.cluster.scheduler.cluster
        waiting = [each for each in answer.pending if each.waits_for == "node"]
        for pods in pending_groups(waiting).values():
            _, *name = pods[0].object.split("/")
            is_reservation = pods[0].is_reservation
            if is_reservation:
                reservation = state.reservations.get(*name)
                record = reservation.pod if reservation is not None else None
            else:
                record = state.pod(*name)
            if record is None:
                continue
            rejections = place(self.cluster.scheduler, record).rejections
            texts = {text for name in self.applied.added for text in rejections[name].texts}
            found.update({PendingReason(text, is_reservation): len(pods) for text in texts})
        return found

    def _note_other_schedulers(self, answer: WhatIfAnswer) -> None:
        """Pods that no profile of the configuration schedules."""
        others: dict[str, int] = {}
        for each in answer.pending:
            if each.waits_for == "scheduler":
                others[each.scheduler] = others.get(each.scheduler, 0) + 1
        for name, count in sorted(others.items()):
            pods = number_of(count, "pending pod is", "pending pods are")
            answer.notes.append(
                f"{pods} of the scheduler {name}, which no profile is for: see --config"
            )


def as_scheduled(setup: SchedulerFactory, objects: Iterable[Raw]) -> SchedulerFactory:
    """Without starvation holds on a cluster where nothing is of Holdfast: the scheduler there makes
    none, and pods that have been pending for days would be given whole nodes."""
    ours = any(
        raw["apiVersion"] == RESERVATION_API
        or (raw["kind"] == "Pod" and raw["spec"].get("schedulerName") == HOLDFAST_SCHEDULER)
        for raw in objects
    )
    if ours:
        return setup
    actions = tuple(each for each in setup.configuration.actions if each.name != "reserve")
    return replace(setup, configuration=structs.replace(setup.configuration, actions=actions))


def as_running(setup: SchedulerFactory, objects: ClusterObjects) -> SchedulerFactory:
    """With the configuration of the cluster's scheduler; if that is unknown, as it schedules by this
    one."""
    running = setup_of(objects.configuration)
    return as_scheduled(setup, objects.objects) if running.why_unknown else running.setup


def _pending(cluster: HypotheticalCluster) -> dict[str, Raw]:
    """By uid."""
    return {
        raw["metadata"]["uid"]: raw
        for raw in cluster.objects.scan("", "Pod")
        if not raw["spec"].get("nodeName")
        and raw["status"].get("phase") not in ENDED
        and not raw["metadata"].get("deletionTimestamp")
    }


def awaited_replicas(cluster: HypotheticalCluster) -> int:
    """How many replicas are not made yet, because others have to be ready before."""
    found = 0
    for kind in ("Deployment", "StatefulSet"):
        for raw in cluster.objects.scan("apps", kind):
            wanted = (raw.get("spec") or {}).get("replicas") or 0
            found += max(0, wanted - (raw.get("status") or {}).get("updatedReplicas", wanted))
    return found


def _evicted_anyway(entries: Iterable[TimelineEntry]) -> list[str]:
    """The pods that leave their nodes before anything is changed, and so are not displaced by it."""
    gone = [each for each in entries if each.event in (PREEMPTED, EVICTED)]
    found = [
        f"{each.object} on {each.node} is {each.event.lower()} anyway, {each.message}".rstrip(", ")
        for each in gone
    ]
    more = len(found) - _EVICTED
    return [
        *found[:_EVICTED],
        *(
            [f"and {number_of(more, 'more pod is', 'more pods are')} evicted anyway"]
            if more > 0
            else []
        ),
    ]


def _with_nodes(changes: WhatIfChanges, shapes: Sequence[str], counts: Sequence[int]) -> WhatIfChanges:
    added = [f"+{count}x{shape}" for shape, count in zip(shapes, counts, strict=True) if count]
    return replace(changes, nodes=[*changes.nodes, *added])


class _Log:
    """What happens to pods and reservations from the changes on."""

    def __init__(self, cluster: HypotheticalCluster) -> None:
        self._cluster = cluster
        self.first: dict[str, tuple[Key, Raw | None]] = {}
        """Objects that were changed, by uid: as they were at first, None if they were not there."""
        self.last: dict[str, Raw | None] = {}
        """As they are, None if they are gone."""
        self.entries: list[TimelineEntry] = []
        self._begin = len(cluster.timeline.entries)
        self._gone: deque[tuple[Key, Raw]] = deque()
        self.copies: dict[str, str] = {}
        """Pods that were made in place of others, by the uid of the other."""

    def changed(self, change: StoreChange) -> None:
        key, before, after = change.key, change.before, change.after
        if key[:2] not in (POD, RESERVATION):
            return
        raw = after if after is not None else before
        assert raw is not None
        uid = raw["metadata"]["uid"]
        self.first.setdefault(uid, (key, before))
        self.last[uid] = after
        if after is None and before is not None and key[:2] == POD and before["spec"].get("nodeName"):
            self._gone.append((key, before))

    def rest(self) -> None:
        """Lets everything come to rest. Pods of controllers that are not simulated are made again."""
        cluster = self._cluster
        while True:
            cluster.rest()
            self.entries = cluster.timeline.entries[self._begin :]
            lost = {each.object for each in self.entries if each.event in (PREEMPTED, EVICTED)}
            made = False
            while self._gone:
                key, pod = self._gone.popleft()
                on_node = Key(*NODE, "", pod["spec"]["nodeName"]) in cluster.objects
                if (str(key) in lost or not on_node) and self._has_other_controller(pod):
                    made = self._make_again(key, pod) or made
            if not made:
                return

    def _has_other_controller(self, pod: Raw) -> bool:
        """Whether the pod has a controller that is not simulated here."""
        owner = controller_of(pod)
        if owner is None or is_daemon(pod) or pod["status"].get("phase") in ENDED:
            return False
        ref = owner_ref(owner, pod["metadata"]["namespace"])
        found = self._cluster.objects.get(Key(*ref))
        return found is None or not makes_pods(ref.group, found)

    def _make_again(self, key: Key, pod: Raw) -> bool:
        if key in self._cluster.objects:
            return False
        metadata = {name: pod["metadata"][name] for name in _KEPT_METADATA if name in pod["metadata"]}
        spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
        self._cluster.take(Create({**pod, "metadata": metadata, "spec": spec, "status": {}}))
        made = self._cluster.objects.get(key)
        assert made is not None
        self.copies[pod["metadata"]["uid"]] = made["metadata"]["uid"]
        return True


class _Outcome:
    """Compares what was with what is."""

    def __init__(
        self, question: WhatIfQuestion, log: _Log, applied: AppliedChanges, pending: dict[str, Raw]
    ) -> None:
        self._cluster = question.cluster
        self._serves = question.setup.serves
        self._was_pending = question.pending
        self._pending = pending
        self._log = log
        self._applied = applied
        self._drained = set(applied.drained)
        self._removed = set(applied.removed)
        self._events = {each.object: each for each in log.entries if each.event in (PREEMPTED, EVICTED)}

    def fill(self, answer: WhatIfAnswer) -> None:
        displaced = self._displaced()
        successors = self._successors(displaced)
        replaced = {uid for uid in successors.values() if uid}
        answer.displaced = [each for _, each in sorted(displaced.items(), key=_by_object)]
        answer.lost_reservations = self._lost_reservations()
        answer.placed = self._placed(replaced)
        answer.pending = self._still_pending(replaced)
        for uid, each in displaced.items():
            made = self._log.last.get(successors.get(uid, ""))
            if made is not None:
                each.replaced_by = str(_key(made))
                each.to = made["spec"].get("nodeName") or ""
        answer.nodes = [*self._nodes()]

    def _displaced(self) -> dict[str, Displaced]:
        found: dict[str, Displaced] = {}
        for uid, (key, before) in self._log.first.items():
            if key[:2] != POD or before is None or self._log.last[uid] is not None:
                continue
            node = before["spec"].get("nodeName") or ""
            if not node or is_daemon(before) or before["status"].get("phase") in ENDED:
                continue
            reason, by = self._reason(str(key), node)
            found[uid] = Displaced(str(key), self._cluster.workload_of(before), node, reason, by)
        return found

    def _lost_reservations(self) -> list[LostReservation]:
        found = []
        for uid, (key, before) in self._log.first.items():
            if key[:2] != RESERVATION or before is None or _is_hold(key, before):
                continue
            phase = (before.get("status") or {}).get("phase")
            after = self._log.last[uid]
            has_failed = after is None or (after.get("status") or {}).get("phase") == "Failed"
            if phase in _HOLDING and has_failed:
                node = _node_of(key, before)
                reason, by = self._reason(str(key), node)
                found.append(LostReservation(str(key), node, reason, by))
        return sorted(found, key=lambda each: each.object)

    def _reason(self, name: str, node: str) -> tuple[str, str]:
        entry = self._events.get(name)
        if entry is not None and entry.event == PREEMPTED:
            return "Preempted", entry.message.removeprefix("by ")
        if node in self._removed:
            return "NodeRemoved", ""
        if entry is not None and (by := reclaimer_in(entry.message)):
            return "Reclaimed", by
        if entry is not None:
            return ("Drained", "") if node in self._drained else ("Evicted", "")
        return "Deleted", ""

    def _successors(self, displaced: dict[str, Displaced]) -> dict[str, str]:
        """By the uid of a displaced pod, that of the new pod of the same controller in its place."""
        made: dict[str, list[str]] = {}
        for uid, (key, before) in self._log.first.items():
            after = self._log.last[uid]
            if key[:2] == POD and before is None and after is not None:
                owner = controller_of(after)
                if owner is not None:
                    made.setdefault(owner.get("uid", ""), []).append(uid)
        found: dict[str, str] = {}
        for uid in displaced:
            if displaced[uid].reason == "Deleted":
                continue
            _, before = self._log.first[uid]
            assert before is not None
            owner = controller_of(before)
            candidates = made.get(owner.get("uid", ""), []) if owner is not None else []
            copied = self._log.copies.get(uid)
            if copied in candidates:
                candidates.remove(copied)
                found[uid] = copied
            elif candidates:
                # Of a StatefulSet it has the same name.
                same = [each for each in candidates if self._name(each) == displaced[uid].object]
                found[uid] = (same or candidates)[0]
                candidates.remove(found[uid])
        return found

    def _name(self, uid: str) -> str:
        return str(self._log.first[uid][0])

    def _placed(self, replaced: set[str]) -> list[Placed]:
        found = []
        for uid, (key, before) in self._log.first.items():
            after = self._log.last[uid]
            if after is None or _node_of(key, before) or not (node := _node_of(key, after)):
                continue
            workload = self._cluster.workload_of(after) if key[:2] == POD else ""
            was = DISPLACED if uid in replaced else NEW if before is None else PENDING
            used = reservation_of(after) if key[:2] == POD else ""
            if not _is_hold(key, after):
                found.append(Placed(str(key), workload, node, was, used))
        return sorted(found, key=lambda each: each.object)

    def _still_pending(self, replaced: set[str]) -> list[StillPending]:
        found = []
        for uid, raw in self._pending.items():
            was = PENDING if uid in self._was_pending else DISPLACED if uid in replaced else NEW
            message, waits_for = _message(raw, "PodScheduled"), "node"
            name = raw["spec"].get("schedulerName") or DEFAULT_SCHEDULER
            if not self._serves(name):
                message, waits_for = f"no profile is for the scheduler {name}", "scheduler"
            elif raw["spec"].get("schedulingGates"):
                waits_for = "gate"
            found.append(
                StillPending(
                    str(_key(raw)), self._cluster.workload_of(raw), was, message, waits_for, name
                )
            )
        for raw in self._cluster.objects.scan(*RESERVATION):
            key = Key(*RESERVATION, "", raw["metadata"]["name"])
            phase = (raw.get("status") or {}).get("phase") or "Pending"
            # A reservation with a start has its node long before.
            if phase == "Pending" and not _node_of(key, raw) and not _is_hold(key, raw):
                first = self._log.first.get(raw["metadata"]["uid"])
                was = NEW if first is not None and first[1] is None else PENDING
                message = _message(raw, "Scheduled")
                if message == _UNSTATED:
                    message = _message(raw, FEASIBLE)
                found.append(StillPending(str(key), "", was, message))
        return sorted(found, key=lambda each: each.object)

    def _nodes(self) -> Iterable[ChangedNode]:
        wanted = {*self._applied.added, *self._drained}
        counts = dict.fromkeys(wanted, 0)
        for raw in self._cluster.objects.scan("", "Pod") if wanted else ():
            node = raw["spec"].get("nodeName")
            if node in counts and not is_daemon(raw) and raw["status"].get("phase") not in ENDED:
                counts[node] += 1
        for name in self._applied.added:
            yield ChangedNode(name, "Added", counts[name])
        for name in self._applied.drained:
            yield ChangedNode(name, "Drained", counts[name])
        for name in self._applied.removed:
            yield ChangedNode(name, "Removed", 0)


def _by_object(item: tuple[str, Displaced]) -> str:
    return item[1].object


def _key(pod: Raw) -> Key:
    return pod_key(pod["metadata"]["namespace"], pod["metadata"]["name"])


def _node_of(key: Key, raw: Raw | None) -> str:
    part = "spec" if key[:2] == POD else "status"
    return ((raw or {}).get(part) or {}).get("nodeName") or ""


def _is_hold(key: Key, raw: Raw) -> bool:
    """Whether the scheduler itself made the reservation, for a preemptor or a starving job."""
    return key[:2] == RESERVATION and not _HOLDS.isdisjoint(labels_of(raw))


def _message(raw: Raw, type_: str) -> str:
    for condition in (raw.get("status") or {}).get("conditions") or ():
        if condition.get("type") == type_ and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or _UNSTATED)
    return _UNSTATED

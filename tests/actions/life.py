"""The life of a cluster: an API server that remembers what it said, next to the scheduler it feeds.

Every method is something that can happen. After each, `check` compares what the scheduler holds to
be true with what was said; after a round, also with what the reference scheduler finds.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import ClassVar

from builders import PodBuilder, make_node, make_pod
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import Object, ObjectReference
from holdfast.api.pod import Pod
from holdfast.core.decisions import Bind, BindVolume, Nominate, Preempt, SelectNode
from holdfast.core.events import BindConfirmed, BindRefused, Deleted, Malformed, Updated
from holdfast.core.pods import Phase, PodRecord
from holdfast.core.validate import validate_state
from holdfast.framework.interface import FINE, Outcome, Plugin
from reference import choices, storage_choices
from reference.choices import NODE_NAMES, TOPOLOGY, Chooser
from reference.driving import Driver
from reference.resource_scores import Strategy
from reference.scheduler import judge
from reference.setup import Setup
from reference.volume_binding import choose as volumes_for
from reference.world import World
from strategies import ZONES

SETUPS = (
    Setup("default-scheduler", extra=("Witness",), preempts=True),
    Setup(
        "packing",
        Strategy("MostAllocated"),
        weights={"NodeResourcesFit": 5},
        extra=("Witness",),
        preempts=True,
    ),
)
_OURS = {setup.name: setup for setup in SETUPS}
_FORBIDDEN = "not now"
_NAMES = ("a", "b", "c", "d", "e", "f")


TWEAKS: tuple[str, ...] = ("cordon", "zone", "shrink", "grow", "taints", "label")


def leaving() -> Pod:
    """A pod that is going to make room for another."""
    return make_pod("x").condition("DisruptionTarget", "True", "PreemptionByScheduler").obj()


class Witness(Plugin):
    """Sees every claim and every one given back, in order; makes pods labelled `patient` wait."""

    name = "Witness"
    log: ClassVar[list[tuple[str, str, int | str]]] = []
    allowed: ClassVar[set[str]] = set()
    refused: ClassVar[set[str]] = set()

    def reserve(self, pod: PodRecord, row: int) -> Outcome:
        self.log.append(("reserve", pod.uid, row))
        return FINE

    def unreserve(self, pod: PodRecord, row: int) -> None:
        self.log.append(("unreserve", pod.uid, row))

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        if pod.uid in self.refused:
            return Outcome(_FORBIDDEN)
        if "patient" in pod.cls.labels and pod.uid not in self.allowed:
            return Outcome(wait=5.0)
        return FINE


class Life:
    def __init__(self, nodes: int = len(NODE_NAMES)) -> None:
        self.driver = Driver(SETUPS, Witness)
        Witness.log, Witness.allowed, Witness.refused = [], set(), set()
        self.names = NODE_NAMES[:nodes]
        """What nodes may be called: with few names, much happens to the same node."""
        self.tweaks = TWEAKS
        """What may change about a node: likewise."""
        self.world = World()
        """Nodes, and pods that hold room: assigned ones, and those about to be."""
        self.pods: dict[str, Pod] = {}
        """What the API server has, by uid."""
        self.in_flight: dict[str, str] = {}
        """Nodes decided for pods, not answered yet."""
        self.waiting: dict[str, str] = {}
        """Nodes of pods that wait for permission."""
        self.reserved: dict[str, str] = {}
        """Nodes on which the witness saw a claim that was neither given back nor confirmed."""
        self.answered: list[str] = []
        """Uids whose bind was answered or overtaken, for late answers."""
        self._to_write: list[BindVolume | SelectNode] = []
        """What was decided about storage and is not on the objects yet."""
        self._uids = 0
        self._given_up: dict[str, str] = {}
        """The nodes that were being cleared for pods, until they were claimed."""
        self._follow_nominations()
        cluster = self.driver.scheduler.cluster
        cluster.topology.counter("all", lambda cls: True).domains(
            cluster.nodes.labels.column("topology.kubernetes.io/zone")
        )

    def _follow_nominations(self) -> None:
        cluster = self.driver.scheduler.cluster
        nominate = cluster.nominate

        def followed(pod: PodRecord, node: str) -> None:
            nominate(pod, node)
            Witness.log.append(("nominate", pod.uid, node))

        cluster.nominate = followed  # type: ignore[method-assign]

    # Nodes

    def put_node(self, choose: Chooser) -> None:
        """A new node, or one changed in any way, or one of the same name in its place."""
        builder = choices.node_builder(choose, choose(self.names))
        node = builder.uid(choose(("one", "two"))).obj()
        self.driver.update(node)
        self.world.put_node(node)

    def put_plain_node(self, choose: Chooser) -> None:
        """One with room for a few pods, and nothing else to it."""
        node = make_node(choose(self.names)).uid("one").allocatable(cpu="4", memory="8Gi").obj()
        self.driver.update(node)
        self.world.put_node(node)

    def tweak_node(self, choose: Chooser) -> None:
        """One thing about a node changes."""
        if not self.world.nodes:
            return
        node = copy.deepcopy(self.world.nodes[choose(sorted(self.world.nodes))])
        match choose(self.tweaks):
            case "cordon":
                node.spec.unschedulable = not node.spec.unschedulable
            case "zone":
                node.metadata.labels["topology.kubernetes.io/zone"] = choose(ZONES)
            case "shrink":
                node.status.allocatable["cpu"] = choose(("0", "100m"))
            case "grow":
                node.status.allocatable |= {"cpu": "4", "memory": "8Gi", "pods": 110}
            case "taints":
                tainted = make_node("x").taint("dedicated", effect="NoSchedule").obj().spec.taints
                node.spec.taints = tainted if choose((True, False)) else []
            case "label":
                node.metadata.labels["app"] = choose(("a", "b"))
        self.driver.update(node)
        self.world.put_node(node)

    def delete_node(self, choose: Chooser) -> None:
        name = choose(self.names)
        self.driver.feed(Deleted(make_node(name).obj()))
        self.world.delete_node(name)

    def spoil_node(self, choose: Chooser) -> None:
        name = choose(self.names)
        if choose((True, False)):
            self.driver.update(make_node(name).allocatable(cpu="1K").obj())
        else:
            error = InvalidObject(f"Node/{name}", "spec.taints", "expected a list")
            self.driver.feed(Malformed("Node", "", name, "one", error))
        self.world.delete_node(name)

    # Pods

    def add_pod(self, choose: Chooser) -> None:
        """A new pod; if the name is taken, its bearer is gone without a word."""
        pod = self._new_pod(choose, choose(_NAMES))
        self._put(pod.obj())

    def add_simple_pod(self, choose: Chooser) -> None:
        """One that fits anywhere there is room, but for one thing it may ask for."""
        pod = self._new_pod(choose, choose(_NAMES), simple=True)
        kinds = ("nothing", "port", "label", "node", "patience", "spread", "near", "away", "urgent")
        match choose(kinds):
            case "spread":
                when = choose(("DoNotSchedule", "ScheduleAnyway"))
                pod.spread(choose(TOPOLOGY), choose((1, 2)), {"app": choose(("a", "b"))}, when=when)
            case "near":
                weight = choose((None, 10))
                pod.pod_affinity(choose(TOPOLOGY), {"app": choose(("a", "b"))}, weight=weight)
            case "away":
                weight = choose((None, 10))
                pod.pod_anti_affinity(choose(TOPOLOGY), {"app": choose(("a", "b"))}, weight=weight)
            case "urgent":
                pod.priority(choose((100, 1000)))
            case "patience":
                pod.label("patient")
            case "port":
                pod.host_port(80)
            case "label":
                pod.node_selector({"app": choose(("a", "b"))})
            case "node":
                field = {"key": "metadata.name", "operator": "In", "values": [choose(self.names)]}
                pod.node_affinity_term(fields=[field])
        self._put(pod.obj())

    def add_gated_pod(self, choose: Chooser) -> None:
        self._put(self._new_pod(choose, choose(_NAMES)).gate("later").obj())

    def add_assigned_pod(self, choose: Chooser) -> None:
        """By somebody else, to a node that may not even be known."""
        pod = self._new_pod(choose, choose(_NAMES)).on(choose((*self.names, "unknown"))).obj()
        self._put(pod)

    def _new_pod(self, choose: Chooser, name: str, *, simple: bool = False) -> PodBuilder:
        self._uids += 1
        if simple:
            pod = make_pod(name).cpu(choose(("100m", "1", "2"))).memory(choose(("1", "1Gi")))
            pod.label("app", choose(("a", "b"))).priority(choose((0, 0, 10, 100)))
        else:
            pod = choices.pod_builder(choose, name)
        pod.namespace("default").uid(f"{name}-{self._uids}")
        return pod.scheduler(choose((*_OURS, *_OURS, "someone-else")))

    def _put(self, pod: Pod) -> None:
        for uid, other in list(self.pods.items()):
            if other.metadata.name == pod.metadata.name and uid != pod.metadata.uid:
                self._forget(uid)
        self.pods[pod.metadata.uid] = pod
        self.driver.update(copy.deepcopy(pod))
        self._hold(pod)
        if pod.metadata.uid in self.world.nominated:
            self._nominated(pod.metadata.uid, self._nomination(pod.metadata.uid))

    def _nomination(self, uid: str) -> str:
        """The node that is being cleared for a pod."""
        found = self.world.nominated.get(uid)
        return found.status.nominated_node_name if found is not None else ""

    def _nominated(self, uid: str, node: str) -> None:
        """A node is being cleared for a pod, or not any more."""
        self.world.nominated.pop(uid, None)
        if node and uid in self.pods:
            pod = copy.deepcopy(self.pods[uid])
            pod.status.nominated_node_name = node
            self.world.nominated[uid] = pod

    def _hold(self, pod: Pod) -> None:
        """The pod's room, in the reference's books."""
        uid = pod.metadata.uid
        node = pod.spec.node_name or self.reserved.get(uid, "")
        if node:
            held = copy.deepcopy(pod)
            held.spec.node_name = node
            self.world.put_pod(held)
        else:
            self.world.delete_pod(uid)

    def _forget(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.world.release(uid)
        self.waiting.pop(uid, None)
        if self.in_flight.pop(uid, None) is not None:
            self.answered.append(uid)
        self.world.delete_pod(uid)
        self.world.nominated.pop(uid, None)

    def _some(self, choose: Chooser) -> Pod | None:
        return copy.deepcopy(self.pods[choose(sorted(self.pods))]) if self.pods else None

    def change_pod(self, choose: Chooser) -> None:
        pod = self._some(choose)
        if pod is None:
            return
        match choose(("label", "ungate", "terminate", "tolerate", "again")):
            case "label":
                pod.metadata.labels["app"] = choose(("a", "b", "c"))
            case "ungate":
                pod.spec.scheduling_gates = []
            case "terminate":
                pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
            case "tolerate":
                pod.spec.tolerations = make_pod("x").tolerates_everything().obj().spec.tolerations
        self._put(pod)

    def end_pod(self, choose: Chooser) -> None:
        pod = self._some(choose)
        if pod is not None:
            self._forget(pod.metadata.uid)
            pod.status.phase = choose(("Succeeded", "Failed"))
            self.driver.update(pod)

    def delete_pod(self, choose: Chooser) -> None:
        pod = self._some(choose)
        if pod is not None:
            self._forget(pod.metadata.uid)
            self.driver.delete(pod)

    def delete_victims(self, choose: Chooser) -> None:
        """Pods that were to make room are gone."""
        for pod in [p for p in self.pods.values() if p.metadata.deletion_timestamp is not None]:
            if choose((True, True, False)):
                self._forget(pod.metadata.uid)
                self.driver.delete(pod)

    def put_other(self, choose: Chooser) -> None:
        """A namespace, service or controller."""
        self._put_object(choices.other_object(choose))

    # Storage

    def add_pod_with_volumes(self, choose: Chooser) -> None:
        pod = self._new_pod(choose, choose(_NAMES), simple=True)
        storage_choices.use_volumes(choose, pod)
        self._put(pod.obj())

    def put_storage(self, choose: Chooser) -> None:
        """A claim, a volume, a class or what a driver says comes or changes."""
        self._put_object(storage_choices.storage_object(choose))

    def put_much_storage(self, choose: Chooser) -> None:
        for obj in storage_choices.base(choose):
            self._put_object(obj)

    def offer_storage(self, choose: Chooser) -> None:
        """A claim that waits for its pod, and what it takes to serve it."""
        for obj in storage_choices.servable(choose):
            self._put_object(obj)

    def delete_storage(self, choose: Chooser) -> None:
        kinds = [key for key in self.world.objects if key[0] not in ("Namespace", "Service")]
        if kinds:
            obj = self.world.objects[choose(sorted(kinds))]
            self.driver.delete(obj)
            self.world.delete(obj)

    def write_storage(self, choose: Chooser) -> None:
        """What was decided is carried out, if there is still something to carry out."""
        for _ in range(choose((0, 1, len(self._to_write)))):
            if not self._to_write:
                break
            decision = self._to_write.pop(0)
            claim = self.world.find(
                "PersistentVolumeClaim", decision.claim.namespace, decision.claim.name
            )
            if isinstance(decision, SelectNode):
                if claim is not None and not claim.spec.volume_name:
                    claim = copy.deepcopy(claim)
                    claim.metadata.annotations["volume.kubernetes.io/selected-node"] = decision.node
                    self._put_object(claim)
                continue
            volume = self.world.find("PersistentVolume", "", decision.volume.name)
            if volume is not None and (volume.spec.claim_ref is None or not volume.spec.claim_ref.uid):
                volume = copy.deepcopy(volume)
                about = decision.claim
                volume.spec.claim_ref = ObjectReference(
                    namespace=about.namespace, name=about.name, uid=about.uid
                )
                self._put_object(volume)

    def bind_claims(self, choose: Chooser) -> None:
        """The volume controller gives claims the volumes that name them."""
        for volume in self.world.of_kind("PersistentVolume"):
            ref = volume.spec.claim_ref
            name = ("", "") if ref is None else (ref.namespace, ref.name)
            claim = self.world.find("PersistentVolumeClaim", *name)
            if claim is None or claim.spec.volume_name or not choose((True, True, False)):
                continue
            claim = copy.deepcopy(claim)
            claim.spec.volume_name = volume.metadata.name
            claim.metadata.annotations["pv.kubernetes.io/bind-completed"] = "yes"
            claim.status.phase = "Bound"
            self._put_object(claim)

    def _put_object(self, obj: Object) -> None:
        self.driver.update(obj)
        self.world.put(obj)

    # Strange things

    def delete_unknown_pod(self, choose: Chooser) -> None:
        """The deletion of a pod whose name has another bearer now."""
        self.driver.delete(make_pod(choose(_NAMES)).uid("gone").obj())

    def spoil_pod(self, choose: Chooser) -> None:
        """What is placed stays where it is; what is not is out of the game."""
        pod = self._some(choose)
        if pod is None:
            return
        uid, name = pod.metadata.uid, pod.metadata.name
        if choose((True, False)):
            error = InvalidObject(f"Pod/default/{name}", "spec", "expected a map")
            self.driver.feed(Malformed("Pod", "default", name, uid, error))
        else:
            pod.spec.containers[0].resources.requests["cpu"] = choose(("1K", "-1", " 1"))
            self.driver.update(pod)
        if not pod.spec.node_name and uid not in self.reserved:
            self._forget(uid)

    def late_word_of_a_pending_pod(self, choose: Chooser) -> None:
        """An update from before the pod was bound arrives after it."""
        pod = self._some(choose)
        if pod is not None and pod.spec.node_name:
            pod.spec.node_name = ""
            self.driver.feed(Updated(pod))

    # Binds

    def _one_in_flight(self, choose: Chooser) -> Pod | None:
        return self.pods[choose(sorted(self.in_flight))] if self.in_flight else None

    def confirm(self, choose: Chooser) -> None:
        """By the answer, or by the pod being seen on its node, or both."""
        pod = self._one_in_flight(choose)
        if pod is None:
            return
        uid = pod.metadata.uid
        how = choose(("answer", "seen", "both"))
        pod.spec.node_name = self.in_flight.pop(uid)
        del self.reserved[uid]
        if how != "seen":
            self.driver.feed(BindConfirmed(uid))
        if how != "answer":
            self.driver.update(copy.deepcopy(pod))
        self.answered.append(uid)

    def refuse(self, choose: Chooser) -> None:
        pod = self._one_in_flight(choose)
        if pod is None:
            return
        del self.in_flight[pod.metadata.uid]
        self.driver.feed(BindRefused(pod.metadata.uid, "conflict"))
        self._witness()
        self._hold(pod)

    def overtake(self, choose: Chooser) -> None:
        """Somebody else binds a pod that is about to be bound, perhaps elsewhere; our bind, if it
        was sent, is answered later."""
        if not self.reserved:
            return
        uid = choose(sorted(self.reserved))
        pod = self.pods[uid]
        self.waiting.pop(uid, None)
        if self.in_flight.pop(uid, None) is not None:
            self.answered.append(uid)
        pod.spec.node_name = choose((*self.names, "unknown"))
        if pod.spec.node_name == self.reserved[uid]:
            del self.reserved[uid]
        self.driver.update(copy.deepcopy(pod))
        self._witness()
        self._hold(pod)

    def late_answer(self, choose: Chooser) -> None:
        """To a bind that was overtaken, or answered before."""
        done = [uid for uid in self.answered if uid not in self.in_flight]
        done = [uid for uid in done if uid not in self.pods or self.pods[uid].spec.node_name]
        if done:
            uid = choose(sorted(done))
            late = choose((True, False))
            self.driver.feed(BindConfirmed(uid) if late else BindRefused(uid, "late"))

    def allow(self, choose: Chooser) -> None:
        if self.waiting:
            Witness.allowed.add(choose(sorted(self.waiting)))

    def forbid(self, choose: Chooser) -> None:
        """For now: the next time the pod may be lucky."""
        Witness.refused.clear()
        if self.waiting:
            Witness.refused.add(choose(sorted(self.waiting)))

    # Time

    def round(self, choose: Chooser) -> None:
        self.driver.now += choose((0.0, 0.1, 1.0, 3.0, 10.0, 60.0))
        decisions = self.driver.round()
        self._witness()
        for decision in decisions:
            if isinstance(decision, Bind):
                uid = decision.pod.uid
                assert self.reserved[uid] == decision.node and uid not in self.in_flight
                self.in_flight[uid] = decision.node
            elif isinstance(decision, BindVolume | SelectNode):
                self._to_write.append(decision)
            elif isinstance(decision, Preempt):
                self._preempt(decision)
            elif isinstance(decision, Nominate) and decision.pod.uid in self.pods:
                self.pods[decision.pod.uid].status.nominated_node_name = decision.node
        scheduler = self.driver.scheduler
        self.waiting = {
            uid: scheduler.cluster.nodes.name(waiting.row)
            for uid, waiting in scheduler.cycle.waiting.items()
        }
        self._check_nothing_was_missed()

    def _preempt(self, decision: Preempt) -> None:
        """The victim begins to go."""
        victim = copy.deepcopy(self.pods[decision.pod.uid])
        preemptor = self.pods[decision.preemptor.uid]
        assert (victim.spec.priority or 0) < (preemptor.spec.priority or 0)
        assert decision.node in (victim.spec.node_name, self.reserved.get(decision.pod.uid))
        victim.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
        victim.status.conditions = leaving().status.conditions
        self._put(victim)

    def _witness(self) -> None:
        """Follows the claims made and given back since last asked, in order."""
        nodes = self.driver.scheduler.cluster.nodes
        for what, uid, where in Witness.log:
            if isinstance(where, str):
                self._given_up[uid] = self._nomination(uid)
                self._nominated(uid, where)
                continue
            if what == "reserve":
                self._claimed(uid, nodes.name(where))
                continue
            assert self.reserved.pop(uid, None) is not None, "given back without having been claimed"
            self.world.release(uid)
            if uid in self.pods:
                self._hold(self.pods[uid])
        Witness.log.clear()

    def _claimed(self, uid: str, node: str) -> None:
        """At that moment, the pod fitted there and nowhere better."""
        pod = self.pods[uid]
        story = self.driver.story(pod)
        assert uid not in self.reserved and not pod.spec.node_name, story
        judgement = judge(pod, self.world, _OURS[pod.spec.scheduler_name].plugins())
        cleared = self._given_up.pop(uid, "")
        expected = {cleared} if cleared in judgement.totals else judgement.best
        assert node in expected, (node, cleared, judgement, story)
        self._promise(pod, node)
        self.reserved[uid] = node
        self._hold(pod)

    def _promise(self, pod: Pod, node: str) -> None:
        """What the pod's claims get there is theirs from now on."""
        chosen = volumes_for(pod, self.world.nodes[node], self.world)
        assert not isinstance(chosen, str), chosen
        for claim, volume in chosen:
            if volume is None:
                written = claim.metadata.annotations.get("volume.kubernetes.io/selected-node")
                if written != node:
                    self.world.promise_node(claim, node, pod.metadata.uid)
            elif volume.spec.claim_ref is None or volume.spec.claim_ref.uid != claim.metadata.uid:
                self.world.promise_volume(volume, claim, pod.metadata.uid)

    def settle(self, choose: Chooser) -> None:
        """All binds are answered, all that wait are allowed: nobody is in between any more."""
        Witness.refused.clear()
        while self.waiting or self.in_flight:
            if self.in_flight:
                self.confirm(choose)
            else:
                Witness.allowed.update(self.waiting)
                self.round(choose)
        assumed = [p for p in self.driver.scheduler.cluster.pods.values() if p.phase is Phase.ASSUMED]
        assert not assumed

    def count_more(self, choose: Chooser) -> None:
        """A counter is asked for in the middle of everything."""
        value, key = choose(("a", "b")), choose(("app", "kubernetes.io/hostname", "tier"))
        cluster = self.driver.scheduler.cluster
        counter = cluster.topology.counter(value, lambda cls: cls.labels.get("app") == value)
        counter.domains(cluster.nodes.labels.column(key))

    # What must hold

    def check(self) -> None:
        scheduler = self.driver.scheduler
        self._witness()
        problems = validate_state(scheduler.cluster)
        assert not problems, problems
        waiting = 0
        for uid, pod in self.pods.items():
            place, expected = scheduler.queue.place(uid), self._expected(pod)
            assert place in expected, (place, expected, self.driver.story(pod))
            waiting += expected != (None,)
            record = scheduler.cluster.pods[uid]
            assert (record.phase is Phase.ASSUMED) == (uid in self.reserved), self.driver.story(pod)
            assert (record.phase is Phase.ASSIGNED) == bool(pod.spec.node_name)
        assert len(scheduler.queue) == waiting
        assumed = scheduler.cluster.volumes.assumed
        assert assumed.volumes.keys() == self.world.promised.keys()
        selecting = {tuple(key): promise.node for key, promise in assumed.claims.items()}
        assert selecting == self.world.selecting
        assert self.reserved == self.in_flight | self.waiting
        assert scheduler.cluster.pods.keys() == self.pods.keys()
        held = Counter(pod.spec.node_name for pod in self.world.pods.values())
        for name, count in held.items():
            row = scheduler.cluster.nodes.row(name)
            assert row is not None
            assert len(scheduler.cluster.ledger.pods[row]) == count

    def _expected(self, pod: Pod) -> tuple[str | None, ...]:
        """Where in the queue a pod may be."""
        ours = pod.spec.scheduler_name in _OURS
        settled = pod.spec.node_name or pod.metadata.uid in self.reserved
        if not ours or settled or pod.metadata.deletion_timestamp is not None:
            return (None,)
        if pod.spec.scheduling_gates:
            return ("gated",)
        return ("active", "backoff", "unschedulable")

    def _check_nothing_was_missed(self) -> None:
        """After a round a pod still waits only if no node will do, or a bind of it was refused."""
        for uid, pod in self.pods.items():
            place = self.driver.scheduler.queue.place(uid)
            story = self.driver.story(pod)
            assert place != "active", story
            told = self.driver.scheduler.cluster.pods[uid].told
            if place == "unschedulable" and told != _FORBIDDEN:
                judgement = judge(pod, self.world, _OURS[pod.spec.scheduler_name].plugins())
                assert not judgement.totals, (judgement.totals, story)
            elif place == "backoff":
                assert "bind refused" in story, story
                due = self.driver.scheduler.next_timer()
                assert due is not None and due > self.driver.now


EVENTS = tuple(name for name in vars(Life) if not name.startswith("_") and name != "check")
"""Everything that can happen, by name."""

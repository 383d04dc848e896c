"""What was said in the life of a cluster: the API server's objects, and the reference's books."""

from __future__ import annotations

import copy

from harness.choices import NODE_NAMES, Chooser
from harness.driver import Driver
from holdfast.api.meta import Object
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster.decisions import BindVolume, SelectNode
from holdfast.scheduler.cluster.records import PodRecord
from reference.scheduler import judge
from reference.state import ReferenceState
from reference.volume_binding import choose as volumes_for
from scheduler.state_machine.observer import OURS, SETUPS, Witness

POD_NAMES = ("a", "b", "c", "d", "e", "f")
TWEAKS: tuple[str, ...] = ("cordon", "zone", "shrink", "grow", "taints", "label")


class Books:
    def __init__(self, nodes: int = len(NODE_NAMES)) -> None:
        self.driver = Driver(SETUPS, Witness)
        Witness.log, Witness.allowed, Witness.refused = [], set(), set()
        self.names = NODE_NAMES[:nodes]
        """What nodes may be called: with few names, much happens to the same node."""
        self.tweaks = TWEAKS
        """What may change about a node: likewise."""
        self.world = ReferenceState()
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
        self.to_write: list[BindVolume | SelectNode] = []
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

        vars(cluster)["nominate"] = followed

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

    def _put_object(self, obj: Object) -> None:
        self.driver.update(obj)
        self.world.put(obj)

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
        judgement = judge(pod, self.world, OURS[pod.spec.scheduler_name].plugins())
        cleared = self._given_up.pop(uid, "")
        expected = {cleared} if cleared in judgement.totals else judgement.best
        assert node in expected, (node, cleared, judgement, story)
        self._reservation(pod, node)
        self.reserved[uid] = node
        self._hold(pod)

    def _reservation(self, pod: Pod, node: str) -> None:
        """What the pod's claims get there is theirs from now on."""
        chosen = volumes_for(pod, self.world.nodes[node], self.world)
        assert not isinstance(chosen, str), chosen
        for claim, volume in chosen:
            if volume is None:
                written = claim.metadata.annotations.get("volume.kubernetes.io/selected-node")
                if written != node:
                    self.world.assume_node(claim, node, pod.metadata.uid)
            elif volume.spec.claim_ref is None or volume.spec.claim_ref.uid != claim.metadata.uid:
                self.world.assume_volume(volume, claim, pod.metadata.uid)

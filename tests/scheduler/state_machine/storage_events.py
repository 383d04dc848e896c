"""What can happen to claims and volumes, and pods that use them."""

from __future__ import annotations

import copy

from harness import storage_choices
from harness.choices import Chooser
from holdfast.api.meta import ObjectReference
from holdfast.scheduler.cluster.decisions import SelectNode
from scheduler.state_machine.expected_state import POD_NAMES
from scheduler.state_machine.pod_events import PodLife


class StorageLife(PodLife):
    def add_pod_with_volumes(self, choose: Chooser) -> None:
        pod = self._new_pod(choose, choose(POD_NAMES), simple=True)
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
        for _ in range(choose((0, 1, len(self.to_write)))):
            if not self.to_write:
                break
            decision = self.to_write.pop(0)
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

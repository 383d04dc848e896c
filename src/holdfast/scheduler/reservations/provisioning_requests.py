"""What pods ask of a provisioner, and which reservations came of it.

Kept by whoever sees pods and reservations: the scheduler's cluster, or a provisioner on its own. Only
pods that have a template and no node count.
"""

from __future__ import annotations

from holdfast.api import names
from holdfast.api.errors import InvalidObject
from holdfast.api.pod import Pod
from holdfast.api.reservation import DynamicReservationTemplate, NewReservationRequirement, Reservation
from holdfast.machinery.dynamic_reservations import id_of, read_requirement, read_template
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.reservations.reservation_info import FINISHED


class Ask:
    """What one pod asks for, as last seen."""

    __slots__ = ("error", "heeded", "pod", "requirement", "template", "text")

    def __init__(self, pod: ObjectRef, template: DynamicReservationTemplate) -> None:
        self.pod = pod
        self.template = template
        self.requirement: NewReservationRequirement | None = None
        """Set once the scheduler has found room for it."""
        self.text = ""
        """The requirement as it is written."""
        self.error = ""
        """What a provisioner had to say."""
        self.heeded = ""
        """What of that has had its effect; it may be taken away."""

    @property
    def id(self) -> str:
        return self.requirement.id if self.requirement is not None else ""


class Requirements:
    def __init__(self) -> None:
        self.asks: dict[str, Ask] = {}
        """By the pod's uid."""
        self.by_id: dict[str, dict[str, Ask]] = {}
        """Those that were found room for, by id and the pod's uid."""
        self.made: dict[str, dict[str, bool]] = {}
        """By id, the uids of the reservations there are, and whether they are finished."""
        self.dirty: dict[str, None] = {}
        """The ids of which something changed, for a provisioner."""
        self.edited: dict[str, None] = {}
        """The uids of pods whose requirement was written and is another one now, or none."""
        self.has_provisioner = False
        """Whether there is one that takes them."""
        self.making: dict[str, str] = {}
        """The ids a provisioner is making reservations for, by the reservation's name."""
        self.refusals: dict[str, str] = {}
        """Why it could not, by the same name."""
        self._id_of: dict[str, str] = {}

    def see_pod(self, pod: Pod) -> None:
        """A pod with a template, or one that had one."""
        meta = pod.metadata
        text = meta.annotations.get(names.RESERVATION_TEMPLATE)
        if text is None or pod.spec.node_name or meta.deletion_timestamp is not None:
            self.forget_pod(meta.uid)
            return
        try:
            template = read_template(text)
        except InvalidObject:
            self.forget_pod(meta.uid)
            return
        ask = self.asks.get(meta.uid)
        if ask is None:
            ref = ObjectRef("Pod", meta.namespace, meta.name, meta.uid)
            ask = self.asks[meta.uid] = Ask(ref, template)
        required = meta.annotations.get(names.NEW_RESERVATION_REQUIREMENT, "")
        error = meta.annotations.get(names.RESERVATION_PROVISION_ERROR, "")
        if (template, required, error) == (ask.template, ask.text, ask.error):
            return
        self._leave(ask)
        if ask.text and ask.text != required:
            self.edited[meta.uid] = None
        ask.template, ask.text, ask.error = template, required, error
        if not error:
            ask.heeded = ""
        ask.requirement = read_requirement(required or None)
        if ask.id:
            self.by_id.setdefault(ask.id, {})[meta.uid] = ask
            self.touch(ask.id)

    def forget_pod(self, uid: str) -> None:
        """It has a node, or is gone, or asks no more."""
        self.edited.pop(uid, None)
        ask = self.asks.pop(uid, None)
        if ask is not None:
            self._leave(ask)

    def see_reservation(self, reservation: Reservation) -> None:
        meta = reservation.metadata
        id = id_of(meta)
        if self._id_of.get(meta.uid, "") != id:
            self.forget_reservation(meta.uid)
        if not id:
            return
        self._id_of[meta.uid] = id
        self.made.setdefault(id, {})[meta.uid] = reservation.status.phase in FINISHED
        self.touch(id)

    def forget_reservation(self, uid: str) -> None:
        id = self._id_of.pop(uid, None)
        if id is None:
            return
        made = self.made[id]
        del made[uid]
        if not made:
            del self.made[id]
        self.touch(id)

    def not_created(self, name: str, message: str) -> None:
        """A reservation could not be created."""
        if name in self.making:
            self.refusals[name] = message
            self.touch(self.making[name])

    def touch(self, id: str) -> None:
        """Something changed that a provisioner may have waited for."""
        if self.has_provisioner:
            self.dirty[id] = None

    def _leave(self, ask: Ask) -> None:
        there = self.by_id.get(ask.id)
        if there is not None and there.pop(ask.pod.uid, None) is not None:
            self.touch(ask.id)
            if not there:
                del self.by_id[ask.id]

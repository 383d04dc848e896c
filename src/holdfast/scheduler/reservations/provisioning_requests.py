"""The reservations that pods request of a provisioner, and those created for them.

Kept by the scheduler's cluster, or by a provisioner that runs as a process of its own. Only pods that
have a reservation template and no node are in it.
"""

from __future__ import annotations

from holdfast.api import names
from holdfast.api.errors import InvalidObject
from holdfast.api.pod import Pod
from holdfast.api.reservation import DynamicReservationTemplate, NewReservationRequirement, Reservation
from holdfast.machinery.dynamic_reservations import id_of, read_requirement, read_template
from holdfast.scheduler.cluster.decisions import ObjectRef
from holdfast.scheduler.cluster.records import FINISHED


class ReservationRequest:
    """The request of one pod, as last seen."""

    __slots__ = ("error", "pod", "processed_error", "requirement", "template", "text")

    def __init__(self, pod: ObjectRef, template: DynamicReservationTemplate) -> None:
        self.pod = pod
        self.template = template
        self.requirement: NewReservationRequirement | None = None
        """The requirement in the pod's annotation, which the scheduler writes once a node is found."""
        self.text = ""
        """The requirement as text."""
        self.error = ""
        """The error that a provisioner wrote to the pod's annotation."""
        self.processed_error = ""
        """The error that the scheduler has processed; it can be removed."""

    @property
    def id(self) -> str:
        return self.requirement.id if self.requirement is not None else ""


class Requirements:
    """All requests, and the reservations with their ids."""

    def __init__(self) -> None:
        self.requests: dict[str, ReservationRequest] = {}
        """Requests by the pod's uid."""
        self.by_id: dict[str, dict[str, ReservationRequest]] = {}
        """Requests with a requirement, by its id and the pod's uid."""
        self.made: dict[str, dict[str, bool]] = {}
        """By id, the uids of its reservations, and whether they are finished."""
        self.dirty: dict[str, None] = {}
        """The ids that changed, for the provisioner."""
        self.edited: dict[str, None] = {}
        """The uids of pods whose requirement was changed or removed after it was written."""
        self._has_provisioner = False
        """Whether a provisioner reads `dirty`."""
        self.making: dict[str, str] = {}
        """The ids whose reservation is being created, by the reservation's name."""
        self.refusals: dict[str, str] = {}
        """Why a reservation could not be created, by its name."""
        self._id_of: dict[str, str] = {}

    def see_pod(self, pod: Pod) -> None:
        """Follows a pod that has a template, or had one."""
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
        request = self.requests.get(meta.uid)
        if request is None:
            ref = ObjectRef("Pod", meta.namespace, meta.name, meta.uid)
            request = self.requests[meta.uid] = ReservationRequest(ref, template)
        required = meta.annotations.get(names.NEW_RESERVATION_REQUIREMENT, "")
        error = meta.annotations.get(names.RESERVATION_PROVISION_ERROR, "")
        if (template, required, error) == (request.template, request.text, request.error):
            return
        self._leave(request)
        if request.text and request.text != required:
            self.edited[meta.uid] = None
        request.template, request.text, request.error = template, required, error
        if not error:
            request.processed_error = ""
        request.requirement = read_requirement(required or None)
        if request.id:
            self.by_id.setdefault(request.id, {})[meta.uid] = request
            self.touch(request.id)

    def forget_pod(self, uid: str) -> None:
        """Removes the request of a pod that is scheduled, deleted or has no template any more."""
        self.edited.pop(uid, None)
        request = self.requests.pop(uid, None)
        if request is not None:
            self._leave(request)

    def see_reservation(self, reservation: Reservation) -> None:
        """Follows a reservation with an id."""
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
        """Records why a reservation could not be created."""
        if name in self.making:
            self.refusals[name] = message
            self.touch(self.making[name])

    def take_dirty(self) -> dict[str, None]:
        """The ids in `dirty`, which is empty then."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def take_edited(self) -> dict[str, None]:
        """The pods in `edited`, which is empty then."""
        edited, self.edited = self.edited, {}
        return edited

    def serve(self) -> None:
        """A provisioner reads `dirty` from now on."""
        self._has_provisioner = True
        self.dirty.update(dict.fromkeys(self.by_id))

    def touch(self, id: str) -> None:
        """Has the provisioner look at the id again."""
        if self._has_provisioner:
            self.dirty[id] = None

    def _leave(self, request: ReservationRequest) -> None:
        there = self.by_id.get(request.id)
        if there is not None and there.pop(request.pod.uid, None) is not None:
            self.touch(request.id)
            if not there:
                del self.by_id[request.id]

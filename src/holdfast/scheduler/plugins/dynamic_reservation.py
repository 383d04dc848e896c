"""DynamicReservation: has a pod with a reservation template wait in Permit for its reservation.

`holdfast.scheduler.framework.dynamic_provisioning` chooses its node, and
`holdfast.scheduler.reservations.virtual_reservations` keeps what it waits for.
"""

from holdfast.api import names
from holdfast.api.errors import InvalidObject
from holdfast.machinery.dynamic_reservations import read_template
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.framework.binding_cycle import NOT_ACTIVE
from holdfast.scheduler.framework.config.plugin_sets import DYNAMIC_RESERVATION
from holdfast.scheduler.framework.interface import FINE, ClusterPlugin, Filter, Outcome, Rejected
from holdfast.scheduler.reservations.virtual_reservations import Virtual

NODE_GONE = "the node of its reservation is gone"
NOT_AN_OWNER = "the pod no longer matches the owners of its reservation"
LEAVING = "the pod is being deleted"

_PATIENCE = 600.0
"""How long a pod waits for its reservation's status to be written, in seconds."""


class DynamicReservation(ClusterPlugin):
    name = DYNAMIC_RESERVATION
    wakes_on = Change.ANY_NODE | Change.ANY_POD

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        text = cls.annotations.get(names.RESERVATION_TEMPLATE)
        if text is None or cls.owner_spec_id >= 0:
            return None
        try:
            read_template(text)
        except InvalidObject as error:
            return Rejected(f"{error.field}: {error.message}", error=True)
        return None

    def unreserve(self, pod: PodRecord, row: int) -> None:
        """Ends the pod's wait, which begins in `permit`: a pod that was only assumed, as gang members
        are before their job is ready, does not wait yet."""
        if pod.uid in self.cluster.virtuals.waits:
            self.cluster.virtuals.end_wait(pod)

    def permit(self, pod: PodRecord, row: int) -> Outcome:
        virtuals = self.cluster.virtuals
        if pod.reservation_uid and virtuals.by_id:
            virtuals.begin_wait(pod)
        if pod.uid not in virtuals.waits:
            return FINE
        if pod.deletion_pending:
            return Outcome(LEAVING)
        virtual = virtuals.waits[pod.uid]
        live = virtuals.is_live(virtual)
        if (live and virtual.reservation.node_gone) or not self.cluster.nodes.alive[row]:
            return Outcome(NODE_GONE, retry=True)
        if live and not virtuals.may_use(pod, virtual.reservation, virtual.requester.uid):
            return Outcome(NOT_AN_OWNER, retry=True)
        if live and virtuals.keep_asking(virtual) and not virtuals.taken_over(virtual):
            return self._waits(pod, virtual)
        reservation = self.cluster.reservations.known.get(pod.reservation_uid)
        if not pod.reservation_uid and self._binds_anyway(pod):
            virtuals.end_wait(pod)
            return FINE
        if reservation is None or reservation.pod is None or reservation.pod.row != row:
            return Outcome(NOT_ACTIVE, retry=True)
        if reservation.pod.phase is Phase.ASSUMED:
            return Outcome(wait=_PATIENCE)
        virtuals.end_wait(pod)
        return FINE

    def _waits(self, pod: PodRecord, virtual: Virtual) -> Outcome:
        virtuals = self.cluster.virtuals
        why = virtuals.failure(pod)
        if not why:
            return Outcome(wait=virtuals.patience(pod))
        if not self._binds_anyway(pod):
            return Outcome(why, retry=True)
        virtuals.drop(virtual)
        virtuals.end_wait(pod)
        return FINE

    def _binds_anyway(self, pod: PodRecord) -> bool:
        """Whether a pod whose reservation was not created is bound without one: if the configuration
        allows it, and the pod's reservation affinity does not require a reservation."""
        settings = self.cluster.virtuals.settings
        if settings is None or not settings.bind_anyway:
            return False
        return not self.cluster.reservations.affinity(pod.cls).required

"""The controller of PodMigrationJobs.

It takes each job as far as possible in every run; what a job waits for arrives as an event. All that
must survive a restart is in the job's object: its progress in the status, its pod and reservation in
the spec, and who used the reservation before in an annotation.
"""

from holdfast.api import names
from holdfast.api.meta import ObjectReference
from holdfast.api.reservation import MigrationPhase, PodMigrationJob
from holdfast.scheduler.cluster.decisions import Decision, SetMigrationStatus, SpecifyMigration
from holdfast.scheduler.cluster.events import CreateRefused, EvictRefused, MigrationWriteRefused
from holdfast.scheduler.cluster.records import ReservationInfo
from holdfast.scheduler.controllers.migration.migration_job import ENDED, Attempt, Move
from holdfast.scheduler.controllers.migration.migration_reservation import maker_of, name_of
from holdfast.scheduler.controllers.migration.migration_steps import MigrationSteps
from holdfast.scheduler.reservations.reservation_status import bound_owners
from holdfast.scheduler.state.cluster import Cluster


class MigrationController:
    """Reconciles PodMigrationJobs."""

    def __init__(self, cluster: Cluster) -> None:
        self._jobs = cluster.migrations
        self._reservations = cluster.reservations
        self._moves: dict[str, Move] = {}
        """The jobs that are not done, by uid."""
        self._decisions: list[Decision] = []
        self._steps = MigrationSteps(cluster, self._moves, self._decisions)
        self._unwanted: dict[str, tuple[str, Attempt]] = {}
        """The reservations to delete and why, by uid, until they are gone."""
        self._ran_at = 0.0
        self._started = False

    def run(self, now: float) -> list[Decision]:
        jobs, self._ran_at = self._jobs, now
        if not self._started:
            self._started = True
            self._drop_left_behind()
        if jobs.changed:
            for job in jobs.take_changed().values():
                self._follow(job, now)
        if jobs.refused:
            self._take_refusals(now)
        for move in list(self._moves.values()):
            self._reconcile(move, now)
        if self._unwanted:
            self._delete_unwanted(now)
        decisions = self._decisions[:]
        self._decisions.clear()
        return decisions

    def next_timer(self) -> float | None:
        times = [move.next_timer(self._ran_at) for move in self._moves.values()]
        times += [attempt.due for _, attempt in self._unwanted.values()]
        return min((time for time in times if time is not None), default=None)

    def _follow(self, job: PodMigrationJob, now: float) -> None:
        uid, phase = job.metadata.uid, job.status.phase
        move = self._moves.get(uid)
        if uid not in self._jobs.known:
            if move is not None:
                move.deleted = True
            else:
                self._drop_reservation(job, phase)
        elif move is not None:
            move.job = job
            if job.status == move.last_status or phase in ENDED:
                move.last_status = None
            if phase in ENDED:
                move.status = job.status  # another client ended it, and that is final
        elif phase not in ENDED:
            self._moves[uid] = Move(job, now)
        else:
            self._drop_reservation(job, phase)

    def _take_refusals(self, now: float) -> None:
        for event in self._jobs.take_refused():
            for move in self._moves.values():
                match event:
                    case MigrationWriteRefused(decision=write) if write.job == move.ref:
                        move.last_status, move.specified = None, ()
                        move.writing.refused(now)
                    case EvictRefused(decision=evict) if evict.pod.uid == move.pod:
                        if move.eviction.under_way:
                            self._steps.not_evicted(move, event.message, now)
                    case CreateRefused(decision=create) if move.creation.under_way:
                        if create.reservation.metadata.name == name_of(move.job):
                            self._steps.not_created(move, event.message, now)

    def _reconcile(self, move: Move, now: float) -> None:
        job, before = move.job, len(self._decisions)
        if not (move.deleted or move.ended):
            if job.metadata.deletion_timestamp is not None:
                self._steps.abort(move)
            elif job.spec.paused:
                return
            else:
                self._steps.proceed(move, now)
        # The status is written before the writes it announces, and before the events.
        done = self._decisions[before:]
        del self._decisions[before:]
        if not move.deleted:
            self._write(move, now)
        self._decisions += done
        if move.deleted or move.ended:
            self._clean_up(move)

    def _write(self, move: Move, now: float) -> None:
        if not move.writing.may_begin(now):
            return
        self._specify(move)
        if move.status == move.job.status:
            move.last_status = None
            move.writing.done()
        elif move.status != move.last_status:
            move.last_status = move.status
            self._decisions.append(SetMigrationStatus(move.ref, move.status))

    def _specify(self, move: Move) -> None:
        """Writes references to the pod and the reservation to the job's spec, and the earlier owners of
        the reservation to its annotations, if it does not have them."""
        pod = created = None
        reference, seen = move.job.spec.pod_ref, move.pod_ref
        if seen is not None and (reference is None or reference.uid != seen.uid):
            pod = ObjectReference(kind="Pod", namespace=seen.namespace, name=seen.name, uid=seen.uid)
        reservation = self._reservations.known.get(move.reservation_uid)
        if reservation is not None and move.reservation_ref is None:
            created = ObjectReference(
                api_version=reservation.object.api_version,
                kind=reservation.object.kind,
                name=reservation.name,
                uid=reservation.uid,
            )
        earlier = ""
        if move.earlier_owners != move.recorded_owners:
            earlier = ",".join(sorted(move.earlier_owners))
        wanted = (pod.uid if pod else "", created.uid if created else "", earlier)
        if not any(wanted):
            move.specified = ()
        elif wanted != move.specified:
            move.specified = wanted
            annotations = {names.EARLIER_OWNERS: earlier} if earlier else {}
            self._decisions.append(SpecifyMigration(move.ref, pod, created, annotations))

    # Cleanup

    def _clean_up(self, move: Move) -> None:
        """Deletes the reservation of an ended job if it is not used, and forgets the job once its final
        status is written."""
        if not move.reservation_dropped and self._drop_reservation(move.job, move.status.phase):
            move.reservation_dropped = True
            move.creation.under_way = False
        written = move.deleted or move.job.status.phase == move.status.phase
        if written and not move.creation.under_way:
            del self._moves[move.ref.uid]

    def _drop_reservation(self, job: PodMigrationJob, phase: str) -> bool:
        """Deletes the reservation that the job created, if it is not used. Returns whether it did."""
        reservation = self._reservations.get(name_of(job))
        if reservation is None or maker_of(reservation.object) != job.metadata.uid:
            return False
        used = reservation.finished or bound_owners(self._reservations, reservation)
        if phase == MigrationPhase.SUCCEEDED and used:
            return False
        self._delete(reservation, f"PodMigrationJob/{job.metadata.name} does not need it")
        return True

    def _drop_left_behind(self) -> None:
        """Deletes reservations whose job was deleted while the controller did not run."""
        for reservation in self._reservations.known.values():
            maker = maker_of(reservation.object)
            if maker and maker not in self._jobs.known:
                self._delete(reservation, "the PodMigrationJob it was created for is gone")

    def _delete(self, reservation: ReservationInfo, why: str) -> None:
        self._unwanted.setdefault(reservation.uid, (why, Attempt()))

    def _delete_unwanted(self, now: float) -> None:
        for uid, (why, attempt) in list(self._unwanted.items()):
            reservation = self._reservations.known.get(uid)
            if reservation is None:
                del self._unwanted[uid]
                continue
            if attempt.under_way and not reservation.deleting:
                attempt.refused(now)
            if attempt.may_begin(now):
                attempt.begin()
                self._decisions += self._reservations.delete(reservation, why)

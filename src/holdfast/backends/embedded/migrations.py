"""Carries out what was decided of jobs that move pods, and of the pods they move."""

import msgspec

from holdfast.api.merge_patch import merge_patch
from holdfast.api.migration import MigrationPhase
from holdfast.api.names import RESERVATION_API
from holdfast.backends.embedded.disruption import Refusal, disruption, marked
from holdfast.backends.embedded.telling import EVICTED
from holdfast.backends.embedded.world import World
from holdfast.backends.wire import specification
from holdfast.core.decisions import Evict, ObjectRef, SetMigrationStatus, SpecifyMigration
from holdfast.core.events import WriteRefused
from holdfast.store.objects import Key, Raw, pod_key

_UNSETTLED = ("", MigrationPhase.PENDING)


class MigrationHands:
    def __init__(self, world: World) -> None:
        self._world = world
        self._objects = world.objects

    def set_status(self, decision: SetMigrationStatus) -> None:
        key = migration_key(decision.job.name)
        raw = self._this(decision.job)
        if raw is None:
            return
        status = decision.status
        before = (raw.get("status") or {}).get("phase", "")
        if status.phase != before and status.phase not in _UNSETTLED:
            message = status.message if status.phase != MigrationPhase.RUNNING else ""
            self._world.tell(key, status.phase, node=status.node_name, message=message)
        self._objects.update(key, {**raw, "status": msgspec.to_builtins(status)})

    def specify(self, decision: SpecifyMigration) -> None:
        raw = self._this(decision.job)
        if raw is None:
            return
        changed = merge_patch(raw, {"spec": specification(decision)})
        self._objects.update(migration_key(decision.job.name), changed)

    def evict(self, decision: Evict) -> None:
        world, ref = self._world, decision.pod
        key, options = pod_key(ref.namespace, ref.name), decision.options
        pod = self._objects.get(key)
        if pod is None or pod["metadata"]["uid"] != ref.uid:
            return
        now = world.clock.stamp()
        budgets = (
            budget
            for budget in self._objects.scan("policy", "PodDisruptionBudget")
            if budget["metadata"]["namespace"] == ref.namespace
        )
        taken = disruption(pod, map(_observed, budgets), now)
        if isinstance(taken, Refusal):
            world.feed(WriteRefused(decision, taken.message))
            return
        if options.get("dryRun"):
            return
        if taken is not None:
            name = taken["metadata"]["name"]
            budget = Key("policy", "PodDisruptionBudget", ref.namespace, name)
            self._objects.update(budget, taken)
        self._objects.update(key, marked(pod, now))
        node = pod["spec"].get("nodeName") or ""
        world.tell(key, EVICTED, node=node, message=decision.message)
        world.kubelets.delete(key, grace=options.get("gracePeriodSeconds"))

    def _this(self, wanted: ObjectRef) -> Raw | None:
        """The job, unless another has its name by now."""
        raw = self._objects.get(migration_key(wanted.name))
        return raw if raw is not None and raw["metadata"]["uid"] == wanted.uid else None


def migration_key(name: str) -> Key:
    return Key(RESERVATION_API.partition("/")[0], "PodMigrationJob", "", name)


def _observed(budget: Raw) -> Raw:
    """A status that was given, rather than worked out here, holds for the budget as it is."""
    status = budget.get("status") or {}
    if "observedGeneration" in status:
        return budget
    seen = {**status, "observedGeneration": budget["metadata"].get("generation", 0)}
    return {**budget, "status": seen}

"""The taint eviction controller: deletes pods that do not tolerate a node's NoExecute taints.

`tolerationSeconds` counts from when the pod was bound or the taint was added, whichever is later.
"""

from holdfast.api.affinity import Taint, Toleration
from holdfast.api.decode import convert
from holdfast.api.errors import InvalidObject
from holdfast.api.names import NO_EXECUTE
from holdfast.api.selectors import tolerates
from holdfast.local.clock import ComponentTimers, LocalClock, Timer
from holdfast.local.component import ObjectWriter, Steps, with_condition
from holdfast.local.kubelet import Kubelets
from holdfast.local.store.objects import NODE, POD, Key, Raw, StoreChange
from holdfast.local.stored_events import StoredEvents
from holdfast.scheduler.cluster.decisions import Emit, ObjectRef

COMPONENT = "taint-eviction-controller"
MESSAGE = "Taint manager: deleting due to NoExecute taint"


class TaintEviction:
    def __init__(
        self,
        objects: ObjectWriter,
        clock: LocalClock,
        timers: ComponentTimers,
        kubelets: Kubelets,
        recorder: StoredEvents,
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._kubelets = kubelets
        self._recorder = recorder
        self._tainted: dict[str, list[Taint]] = {}
        """By node, its NoExecute taints, if there are any."""
        self._stale_nodes: dict[str, None] = {}
        self._stale_pods: dict[Key, None] = {}
        self._planned: dict[Key, Timer] = {}
        """The timers of pods with `tolerationSeconds`."""

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == POD:
            if after is None:
                self._planned.pop(key, None)
            elif self._tainted and after["spec"].get("nodeName") in self._tainted:
                self._stale_pods[key] = None
        elif key[:2] == NODE and _taints_of(before) != _taints_of(after):
            self._stale_nodes[key.name] = None
            taints = _no_execute(after)
            if taints:
                self._tainted[key.name] = taints
            else:
                self._tainted.pop(key.name, None)

    def settle(self) -> Steps:
        while self._stale_nodes:
            node = next(iter(self._stale_nodes))
            del self._stale_nodes[node]
            for key in self._kubelets.pods_on(node):
                self._stale_pods[key] = None
            yield None
        stale, self._stale_pods = self._stale_pods, {}
        for key in stale:
            self._judge(key)
            yield None

    def _judge(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        seconds = _tolerated_for(pod, self._tainted.get(pod["spec"].get("nodeName") or "", []))
        planned = self._planned.get(key)
        if planned is not None:
            if seconds is not None and seconds > 0:
                return  # a further taint does not make its time longer or shorter
            self._timers.cancel(planned)
            del self._planned[key]
        if seconds is None:
            return
        if seconds <= 0:
            self._evict(key)
            return
        due = self._clock.t + seconds
        self._planned[key] = self._timers.when_due(key, due, lambda: self._evict(key))

    def _evict(self, key: Key) -> None:
        self._planned.pop(key, None)
        pod = self._objects.get(key)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        about = ObjectRef("Pod", key.namespace, key.name, pod["metadata"]["uid"])
        text = f"Marking for deletion Pod {key.namespace}/{key.name}"
        self._recorder.emit(Emit(about, "Normal", "TaintManagerEviction", text), COMPONENT)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": MESSAGE,
        }
        before = pod["status"].get("conditions") or []
        conditions = with_condition(before, condition, self._clock.stamp())
        self._objects.update(key, {**pod, "status": {**pod["status"], "conditions": conditions}})
        self._kubelets.delete(key)


def _taints_of(node: Raw | None) -> list[Raw]:
    return ((node or {}).get("spec") or {}).get("taints") or []


def _no_execute(node: Raw | None) -> list[Taint]:
    found = []
    for raw in _taints_of(node):
        if raw.get("effect") == NO_EXECUTE:
            try:
                found.append(convert(raw, Taint))
            except InvalidObject:
                continue  # an invalid taint evicts no pod
    return found


def _tolerated_for(pod: Raw, taints: list[Taint]) -> float | None:
    """How many seconds the pod may stay; None if forever."""
    if not taints:
        return None
    try:
        tolerations = convert(pod["spec"].get("tolerations") or [], list[Toleration])
    except InvalidObject:
        tolerations = []
    shortest: float | None = None
    for taint in taints:
        # Of several that match, the first counts.
        match = next((each for each in tolerations if tolerates(each, taint)), None)
        if match is None:
            return 0.0
        seconds = match.toleration_seconds
        if seconds is not None and (shortest is None or seconds < shortest):
            shortest = float(seconds)
    return shortest

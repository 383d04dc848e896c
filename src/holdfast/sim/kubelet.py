"""Simulated kubelets: pods on a node start at once, run as long as they say, and stop when told to.

                 has a node that exists        runs-for has passed
    Pending ───────────────────────► Running ───────────────────────► Succeeded
                                        │      activeDeadlineSeconds
                                        ├───────────────────────────► Failed (DeadlineExceeded)
                                        │ deleted
                                        ▼ at once, or after stops-in
                                       gone

A pod that ended stays as an object until it is deleted. A pod on a node that is not there waits for it.
"""

from collections.abc import Callable

from holdfast.api import names
from holdfast.sim.accounts import ENDED
from holdfast.sim.admission import DEFAULT_GRACE
from holdfast.sim.agenda import Entry
from holdfast.sim.clock import VirtualClock
from holdfast.sim.merging import with_condition
from holdfast.sim.reading import duration
from holdfast.sim.store import Key, Raw, Store, key_of, node_key
from holdfast.sim.timeline import DELETED, FAILED, RUNNING, SUCCEEDED, Timeline

WhenDue = Callable[[Key, float, Callable[[], None]], Entry]
"""Plans something for a pod, which does not happen if the pod is gone by then."""

DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class Kubelets:
    def __init__(
        self, store: Store, clock: VirtualClock, timeline: Timeline, when_due: WhenDue
    ) -> None:
        self._store = store
        self._clock = clock
        self._timeline = timeline
        self._when_due = when_due
        self._arrived: dict[str, dict[Key, None]] = {}
        self._started: dict[str, float] = {}
        self._end_at: dict[str, tuple[tuple[float, str], Entry]] = {}
        self._stopping: set[str] = set()

    def pod_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        """Takes note; what follows happens in `settle`, or when its time has come."""
        if after is None:
            assert before is not None
            uid = before["metadata"]["uid"]
            self._started.pop(uid, None)
            self._end_at.pop(uid, None)
            self._stopping.discard(uid)
            return
        node = after["spec"].get("nodeName")
        phase = after["status"].get("phase")
        if phase in ENDED:
            if before is not None and before["status"].get("phase") not in ENDED:
                self._ended(key, after)
            return
        if not node:
            return
        if phase == "Running":
            uid = after["metadata"]["uid"]
            if uid not in self._started:
                self._started[uid] = self._clock.t
                self._timeline.add(self._clock.t, str(key), RUNNING, node=node)
            self._plan_end(key, after)
        else:
            self._arrived.setdefault(node, {})[key] = None

    def settle(self) -> None:
        """Starts pods that are on a node by now."""
        for node in [node for node in self._arrived if node_key(node) in self._store]:
            for key in self._arrived.pop(node):
                pod = self._store.get(key)
                if pod is not None and pod["spec"].get("nodeName") == node and _can_start(pod):
                    self._store.update(self.running(pod))

    def running(self, pod: Raw) -> Raw:
        """The pod as its kubelet reports it once it runs."""
        now = self._clock.stamp()
        status = {**pod["status"], "phase": "Running", "startTime": now}
        conditions = status.get("conditions") or []
        for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready"):
            conditions = with_condition(conditions, {"type": type_, "status": "True"}, now)
        status["conditions"] = conditions
        return {**pod, "status": status}

    def delete(self, key: Key, *, at_once: bool = False) -> None:
        """The pod is to go: now if nothing runs, else when it has stopped."""
        pod = self._store.get(key)
        if pod is None:
            return
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        runs = pod["status"].get("phase") == "Running" and uid in self._started
        grace = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE)
        stops_in = _duration(pod, names.SIM_STOPS_IN)
        wait = min(stops_in or 0.0, float(grace)) if runs and not at_once else 0.0
        if wait <= 0.0:
            self._remove(key)
        elif uid not in self._stopping:
            self._stopping.add(uid)
            stopping = {
                **metadata,
                "deletionTimestamp": self._clock.stamp(after=grace),
                "deletionGracePeriodSeconds": grace,
            }
            self._store.update({**pod, "metadata": stopping})
            self._when_due(key, self._clock.t + wait, lambda: self._remove(key))

    def _plan_end(self, key: Key, pod: Raw) -> None:
        uid = pod["metadata"]["uid"]
        start = self._started[uid]
        ends = []
        runs_for = _duration(pod, names.SIM_RUNS_FOR)
        if runs_for is not None:
            ends.append((start + runs_for, SUCCEEDED))
        deadline = pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            ends.append((start + deadline, FAILED))
        # Of the two at one moment, the pod was done in time.
        end = min(ends, key=lambda each: each[0], default=None)
        planned = self._end_at.get(uid)
        if planned is not None and planned[0] == end:
            return
        self._call_off_end(uid)
        if end is not None:
            t, phase = end
            self._end_at[uid] = end, self._when_due(key, t, lambda: self._end(key, phase))

    def _call_off_end(self, uid: str) -> None:
        planned = self._end_at.pop(uid, None)
        if planned is not None:
            planned[1].what = None

    def _ended(self, key: Key, pod: Raw) -> None:
        """The pod came to its end, by itself or because someone wrote so."""
        self._call_off_end(pod["metadata"]["uid"])
        status, node = pod["status"], pod["spec"].get("nodeName") or ""
        message = status.get("message") or ""
        self._timeline.add(self._clock.t, str(key), status["phase"], node=node, message=message)
        if pod["metadata"].get("deletionTimestamp"):
            self._when_due(key, self._clock.t, lambda: self._remove(key))

    def _end(self, key: Key, phase: str) -> None:
        pod = self._store.get(key)
        if pod is None or pod["status"].get("phase") in ENDED:
            return
        now = self._clock.stamp()
        status = {**pod["status"], "phase": phase}
        if phase == FAILED:
            status.update(reason=DEADLINE_REASON, message=DEADLINE_MESSAGE)
        conditions = status.get("conditions") or []
        for type_ in ("Ready", "ContainersReady"):
            reason = "PodCompleted" if phase == SUCCEEDED else "PodFailed"
            condition = {"type": type_, "status": "False", "reason": reason}
            conditions = with_condition(conditions, condition, now)
        status["conditions"] = conditions
        ended = self._store.update({**pod, "status": status})
        if ended["metadata"].get("deletionTimestamp"):
            self._remove(key)

    def _remove(self, key: Key) -> None:
        pod = self._store.get(key)
        if pod is not None:
            node = pod["spec"].get("nodeName") or ""
            self._store.delete(key)
            self._timeline.add(self._clock.t, str(key), DELETED, node=node)

    def pods_on(self, node: str) -> list[Key]:
        return [
            key_of(pod) for pod in self._store.of_kind("Pod") if pod["spec"].get("nodeName") == node
        ]


def _can_start(pod: Raw) -> bool:
    return pod["status"].get("phase") not in ("Running", *ENDED)


def _duration(pod: Raw, annotation: str) -> float | None:
    text = (pod["metadata"].get("annotations") or {}).get(annotation)
    return duration(text) if text is not None else None

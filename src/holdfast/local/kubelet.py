"""Simulated kubelets: start pods on their nodes, end them, and report their status."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Protocol

from holdfast.api import names
from holdfast.api.errors import DurationError, TimeError
from holdfast.api.raw_objects import with_condition
from holdfast.api.times import parse_duration, parse_time
from holdfast.local.claim_references import (
    claim_key,
    group_key,
    has_claims,
    is_owned_by,
    is_reserved_for,
    used_claims,
)
from holdfast.local.clock import ComponentTimers, LocalClock, Timer
from holdfast.local.component import ENDED, ObjectWriter, Steps
from holdfast.local.store.objects import Key, Raw, node_key
from holdfast.local.timeline import DELETED, FAILED, RUNNING, SUCCEEDED, TimelineRecorder
from holdfast.machinery.strategies.pods import DEFAULT_GRACE

_RUNS = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
_STOPS = ("Ready", "ContainersReady")
_ADDRESS = re.compile(r"10\.(\d+)\.(\d+)\.(\d+)")


class Reports(Protocol):
    def running(self, pod: Raw, now: str) -> Raw:
        """The status of a pod that has just started."""

    def adopt(self, pod: Raw) -> None:
        """The pod was there before."""

    def ended(self, pod: Raw, phase: str, now: str) -> Raw:
        """The status of a pod that has just come to its end."""


class BareReports:
    """Phase and conditions, all that scheduling reads."""

    def adopt(self, pod: Raw) -> None:
        pass

    def running(self, pod: Raw, now: str) -> Raw:
        status = {**pod["status"], "phase": "Running", "startTime": now}
        conditions = [*(status.get("conditions") or [])]
        known = {condition.get("type") for condition in conditions}
        for type_ in _RUNS:
            if type_ in known:
                conditions = with_condition(conditions, {"type": type_, "status": "True"}, now)
            else:
                conditions.append({"type": type_, "status": "True", "lastTransitionTime": now})
        status["conditions"] = conditions
        return status

    def ended(self, pod: Raw, phase: str, now: str) -> Raw:
        status = {**pod["status"], "phase": phase}
        conditions = status.get("conditions") or []
        reason = "PodCompleted" if phase == SUCCEEDED else "PodFailed"
        for type_ in _STOPS:
            condition = {"type": type_, "status": "False", "reason": reason}
            conditions = with_condition(conditions, condition, now)
        status["conditions"] = conditions
        return status


class FullReports:
    """Containers and addresses too, for readers of a served cluster. `host` gives the address of a
    node.
    """

    def __init__(self, host: Callable[[str], str]) -> None:
        self._bare = BareReports()
        self._host = host
        self._addresses = 0

    def running(self, pod: Raw, now: str) -> Raw:
        spec, status = pod["spec"], self._bare.running(pod, now)
        host = self._host(spec.get("nodeName") or "")
        address = host if spec.get("hostNetwork") else self._next_address()
        status["hostIP"], status["hostIPs"] = host, [{"ip": host}]
        status["podIP"], status["podIPs"] = address, [{"ip": address}]
        running = {"running": {"startedAt": now}}
        status["containerStatuses"] = [_container(each, running) for each in spec["containers"]]
        if spec.get("initContainers"):
            done = {"terminated": _terminated(0, "Completed", now, now)}
            status["initContainerStatuses"] = [
                _container(each, running if each.get("restartPolicy") == "Always" else done)
                for each in spec["initContainers"]
            ]
        return status

    def ended(self, pod: Raw, phase: str, now: str) -> Raw:
        status = self._bare.ended(pod, phase, now)
        well = phase == SUCCEEDED
        for field in ("containerStatuses", "initContainerStatuses"):
            if status.get(field):
                status[field] = [_stopped(each, well, now) for each in status[field]]
        return status

    def adopt(self, pod: Raw) -> None:
        """No other pod is given its address."""
        text = (pod.get("status") or {}).get("podIP") or ""
        match = _ADDRESS.fullmatch(text)
        if match is not None:
            first, second, third = map(int, match.groups())
            self._addresses = max(self._addresses, (first - 128 << 16) + (second << 8) + third)

    def _next_address(self) -> str:
        self._addresses += 1
        number = self._addresses
        return f"10.{128 + (number >> 16) % 128}.{(number >> 8) & 255}.{number & 255}"


def _container(container: Raw, state: Raw) -> Raw:
    runs = "running" in state
    image = container.get("image", "")
    status = {
        "name": container["name"],
        "image": image,
        "imageID": image,
        "state": state,
        "lastState": {},
        "ready": True,
        "started": runs,
        "restartCount": 0,
    }
    if runs:
        resources = container.get("resources") or {}
        status["resources"] = resources
        if resources.get("requests"):
            status["allocatedResources"] = resources["requests"]
    return status


def _stopped(status: Raw, well: bool, now: str) -> Raw:
    running = (status.get("state") or {}).get("running")
    if running is None:
        return status
    code, reason = (0, "Completed") if well else (137, "Error")
    terminated = _terminated(code, reason, running.get("startedAt", now), now)
    return {**status, "state": {"terminated": terminated}, "ready": False, "started": False}


def _terminated(code: int, reason: str, since: str, until: str) -> Raw:
    return {"exitCode": code, "reason": reason, "startedAt": since, "finishedAt": until}


class Lifetimes(Protocol):
    """How long pods run and take to stop, where it is not for their annotations to say."""

    def run_time(self, pod: Raw, ran: float) -> float | None:
        """Seconds from the pod's start to its end; None if it does not end by itself. `ran` is how long
        it had run when the cluster came into being."""

    def stop_time(self, pod: Raw, grace: float, passed: float) -> float:
        """Seconds from now until a pod has stopped that was deleted `passed` seconds ago: it has its
        grace period from then."""


DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class Kubelets:
    """The kubelets of all nodes.

                     has a node that exists     runs-for or jobs_run_for
        Pending ───────────────────────► Running ───────────────────────► Succeeded
                                            │      activeDeadlineSeconds
                                            ├───────────────────────────► Failed (DeadlineExceeded)
                                            │ deleted
                                            ▼ at once, or after stops-in
                                           gone, once it has no finalizers

    A finished pod remains as an object until it is deleted. A pod whose node does not exist waits for
    it, and so does a pod whose claims are not allocated and reserved for it.
    """

    def __init__(
        self,
        objects: ObjectWriter,
        clock: LocalClock,
        timers: ComponentTimers,
        reports: Reports,
        record: TimelineRecorder,
        refused: Callable[[Raw, str], None] = lambda pod, why: None,
    ) -> None:
        """`refused` is told of pods that wait for their claims, with the reason."""
        self._objects = objects
        self._clock = clock
        self._timers = timers
        self._reports = reports
        self._record = record
        self._refused = refused
        self.jobs_run_for: float | None = None
        """Seconds after which pods of Jobs succeed that do not say how long they run."""
        self.lifetimes: Lifetimes | None = None
        """Decides instead of annotations and `jobs_run_for` when pods end."""
        self.runs_from_start_time = False
        """Whether run times count from the `startTime` of pods, which has whole seconds. Readers of the
        status, the scheduler among them, expect the end by it."""
        self._arrived: dict[str, dict[Key, None]] = {}
        self._waiting: dict[Key, str] = {}
        """Pods that wait for their claims, and why."""
        self._waiting_for: dict[Key, dict[Key, None]] = {}
        """The same pods by claim; some may have ended since."""
        self._started: dict[str, float] = {}
        self._ran_before: dict[str, float] = {}
        """Seconds that pods had run when they were first seen, by their start time."""
        self._end_at: dict[str, tuple[tuple[float, str], Timer]] = {}
        self._stopping: dict[str, tuple[float, Timer]] = {}
        """When they will have stopped."""
        self._stopped: set[str] = set()
        """Pods that only their finalizers keep."""

    def adopt(self, key: Key, pod: Raw) -> None:
        """A pod that existed before its kubelet: it has run since its `startTime`."""
        self._reports.adopt(pod)
        started = pod["status"].get("startTime")
        if pod["status"].get("phase") == "Running" and started:
            with suppress(TimeError):  # else it starts now
                self._started[pod["metadata"]["uid"]] = parse_time(started)
        self.pod_changed(key, None, pod)

    def adopt_endless(self, uid: str) -> None:
        """A pod that runs until something ends it, so it does not matter since when."""
        self._started[uid] = self._clock.t

    def pod_changed(self, key: Key, before: Raw | None, after: Raw | None) -> None:
        """Takes note; what follows happens in `settle`, or when its time has come."""
        if after is None:
            assert before is not None
            uid = before["metadata"]["uid"]
            self._waiting.pop(key, None)
            self._started.pop(uid, None)
            self._ran_before.pop(uid, None)
            self._end_at.pop(uid, None)
            self._stopping.pop(uid, None)
            self._stopped.discard(uid)
            return
        node = after["spec"].get("nodeName")
        phase = after["status"].get("phase")
        if phase in ENDED:
            if before is not None and before["status"].get("phase") not in ENDED:
                self._ended(key, after)
        elif node:
            if phase == "Running":
                uid = after["metadata"]["uid"]
                if uid not in self._started:
                    self._started[uid] = self._clock.t
                    if self.runs_from_start_time and before is not None:
                        self._started[uid] -= min(self._has_run(after), 1.0)
                    if before is None:
                        self._ran_before[uid] = self._has_run(after)
                    self._record(key, RUNNING, node=node)
                self._plan_end(key, after)
            else:
                self._arrived.setdefault(node, {})[key] = None
        if "deletionTimestamp" in after["metadata"]:
            self._stop_requested(key, after, is_new=before is None)

    def _has_run(self, pod: Raw) -> float:
        with suppress(TimeError):
            started = pod["status"].get("startTime")
            return max(0.0, self._clock.epoch() - parse_time(started)) if started else 0.0
        return 0.0

    def settle(self) -> Steps:
        """Starts pods that were bound."""
        for node in [node for node in self._arrived if node_key(node) in self._objects]:
            for key in self._arrived.pop(node):
                pod = self._objects.get(key)
                if pod is None or pod["spec"].get("nodeName") != node or not _can_start(pod):
                    continue
                why = self.claim_problem(pod)
                if not why:
                    self._waiting.pop(key, None)
                    self._objects.update(key, self.running(pod))
                else:
                    self._wait_for_claims(key, pod, why)
                yield None

    def _wait_for_claims(self, key: Key, pod: Raw, why: str) -> None:
        for name, _ in used_claims(pod):
            self._waiting_for.setdefault(claim_key(key.namespace, name), {})[key] = None
        if self._waiting.get(key) != why:
            self._waiting[key] = why
            self._refused(pod, why)

    def claim_changed(self, key: Key) -> None:
        """Pods that wait for this claim may start now."""
        for waiting in self._waiting_for.pop(key, ()):
            pod = self._objects.get(waiting)
            if pod is not None and waiting in self._waiting:
                self._arrived.setdefault(pod["spec"]["nodeName"], {})[waiting] = None

    def claim_problem(self, pod: Raw) -> str:
        """Why the pod may not use its claims, as a kubelet says it; empty if it may."""
        if not has_claims(pod):
            return ""
        metadata = pod["metadata"]
        for entry in pod["spec"].get("resourceClaims") or ():
            made = pod["status"].get("resourceClaimStatuses") or ()
            if entry.get("resourceClaimName") is None and all(
                each["name"] != entry["name"] for each in made
            ):
                place = f'"{metadata["namespace"]}/{metadata["name"]}"'
                return f"pod {place}: ResourceClaim not created yet"
        for name, generated in used_claims(pod):
            claim = self._objects.get(claim_key(metadata["namespace"], name))
            if claim is None:
                return f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found'
            if generated and not is_owned_by(claim, pod):
                place = f"{metadata['namespace']}/{name}"
                owner = f"{metadata['namespace']}/{metadata['name']}"
                group = group_key(pod)
                is_not = f"neither Pod nor PodGroup {group.name} is the" if group else "Pod is not"
                return f"ResourceClaim {place} was not created for Pod {owner} ({is_not} owner)"
            if not is_reserved_for(claim, pod):
                who, what = metadata["name"], claim["metadata"]["uid"]
                return (
                    f"pod {who} ({metadata['uid']}) is not allowed to use ResourceClaim {name} ({what})"
                )
        return ""

    def running(self, pod: Raw) -> Raw:
        """The pod as its kubelet reports it once it runs."""
        return {**pod, "status": self._reports.running(pod, self._clock.stamp())}

    def delete(self, key: Key, *, at_once: bool = False, grace: int | None = None) -> None:
        """Deletes the pod: at once if nothing runs, else when it has stopped. Its grace period is
        `grace`, or that of its spec."""
        pod = self._objects.get(key)
        if pod is None:
            return
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        if grace is None:
            grace = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE)
        wait = 0.0 if at_once else self._time_to_stop(pod, float(grace))
        if wait <= 0.0:
            self._remove(key)
        elif uid not in self._stopping:
            due = self._clock.t + wait
            self._stopping[uid] = due, self._timers.when_due(key, due, lambda: self._remove(key))
            stopping = {
                **metadata,
                "deletionTimestamp": self._clock.stamp(after=grace),
                "deletionGracePeriodSeconds": grace,
            }
            self._objects.update(key, {**pod, "metadata": stopping})

    def _stop_requested(self, key: Key, pod: Raw, *, is_new: bool) -> None:
        """Someone else has set the pod's deletionTimestamp; before it was first seen if `is_new`."""
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        if uid in self._stopped:
            if not metadata.get("finalizers"):
                self._timers.when_due(key, self._clock.t, lambda: self._remove(key))
            return
        grace = float(metadata.get("deletionGracePeriodSeconds") or 0)
        passed = self._has_been_stopping(pod, grace) if is_new else 0.0
        due = self._clock.t + self._time_to_stop(pod, grace, passed)
        planned = self._stopping.get(uid)
        if planned is not None:
            if planned[0] <= due:
                return
            self._timers.cancel(planned[1])  # it was given less time than before
        self._stopping[uid] = due, self._timers.when_due(key, due, lambda: self._remove(key))

    def _has_been_stopping(self, pod: Raw, grace: float) -> float:
        """Its deletionTimestamp is the end of its grace period."""
        with suppress(TimeError):
            left = parse_time(pod["metadata"]["deletionTimestamp"]) - self._clock.epoch()
            return min(max(0.0, grace - left), grace)
        return 0.0

    def _time_to_stop(self, pod: Raw, grace: float, passed: float = 0.0) -> float:
        runs = pod["status"].get("phase") == "Running" and pod["metadata"]["uid"] in self._started
        there = node_key(pod["spec"].get("nodeName") or "") in self._objects
        if not (runs and there):
            return 0.0
        if self.lifetimes is not None:
            return self.lifetimes.stop_time(pod, grace, passed)
        return max(0.0, min(_duration(pod, names.SIM_STOPS_IN) or 0.0, grace) - passed)

    def _plan_end(self, key: Key, pod: Raw) -> None:
        uid = pod["metadata"]["uid"]
        ran_before = self._ran_before.get(uid, 0.0)
        start = self._started[uid] - ran_before
        ends = []
        if self.lifetimes is not None:
            runs_for = self.lifetimes.run_time(pod, ran_before)
        else:
            runs_for = _duration(pod, names.SIM_RUNS_FOR)
            if runs_for is None and self.jobs_run_for is not None and _is_of_job(pod):
                runs_for = self.jobs_run_for
        if runs_for is not None:
            ends.append((start + runs_for, SUCCEEDED))
        deadline = pod["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            ends.append((start + deadline, FAILED))
        # Of the two at one moment, the pod was done in time.
        t, phase = min(ends, key=lambda each: each[0], default=(None, ""))
        end = (max(t, self._started[uid]), phase) if t is not None else None
        planned = self._end_at.get(uid)
        if (planned[0] if planned is not None else None) == end:
            return
        self._call_off_end(uid)
        if end is not None:
            due = self._timers.when_due(key, end[0], lambda: self._end(key, phase))
            self._end_at[uid] = end, due

    def endless_job_pods(self) -> int:
        """The number of pods of Jobs that run and have neither a run time nor a deadline."""
        return sum(
            pod["status"].get("phase") == "Running"
            and pod["metadata"]["uid"] not in self._end_at
            and _is_of_job(pod)
            for pod in self._objects.scan("", "Pod")
        )

    def _call_off_end(self, uid: str) -> None:
        planned = self._end_at.pop(uid, None)
        if planned is not None:
            self._timers.cancel(planned[1])

    def _ended(self, key: Key, pod: Raw) -> None:
        """The pod came to its end, by itself or because someone wrote so."""
        self._call_off_end(pod["metadata"]["uid"])
        status, node = pod["status"], pod["spec"].get("nodeName") or ""
        self._record(key, status["phase"], node=node, message=status.get("message") or "")
        if pod["metadata"].get("deletionTimestamp") and pod["metadata"]["uid"] not in self._stopped:
            self._timers.when_due(key, self._clock.t, lambda: self._remove(key))

    def _end(self, key: Key, phase: str) -> None:
        pod = self._objects.get(key)
        if pod is None or pod["status"].get("phase") in ENDED:
            return
        status = self._reports.ended(pod, phase, self._clock.stamp())
        if phase == FAILED:
            status.update(reason=DEADLINE_REASON, message=DEADLINE_MESSAGE)
        ended = self._objects.update(key, {**pod, "status": status})
        if ended["metadata"].get("deletionTimestamp"):
            self._remove(key)

    def _remove(self, key: Key) -> None:
        pod = self._objects.get(key)
        if pod is None:
            return
        if pod["metadata"].get("finalizers"):
            self._leave_to_finalizers(key, pod)
            return
        node = pod["spec"].get("nodeName") or ""
        self._objects.delete(key)
        self._record(key, DELETED, node=node)

    def _leave_to_finalizers(self, key: Key, pod: Raw) -> None:
        metadata, status = pod["metadata"], pod["status"]
        if metadata["uid"] in self._stopped:
            return
        self._stopped.add(metadata["uid"])
        metadata = {
            **metadata,
            "deletionTimestamp": metadata.get("deletionTimestamp") or self._clock.stamp(),
            "deletionGracePeriodSeconds": 0,
        }
        if status.get("phase") not in ENDED:
            status = self._reports.ended(pod, FAILED, self._clock.stamp())
        self._objects.update(key, {**pod, "metadata": metadata, "status": status})

    def pods_on(self, node: str) -> list[Key]:
        return [
            Key("", "Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in self._objects.scan("", "Pod")
            if pod["spec"].get("nodeName") == node
        ]


def _is_of_job(pod: Raw) -> bool:
    return any(
        owner.get("kind") == "Job" and owner.get("apiVersion", "").startswith("batch/")
        for owner in pod["metadata"].get("ownerReferences") or ()
    )


def _can_start(pod: Raw) -> bool:
    return pod["status"].get("phase") not in ("Running", *ENDED)


def _duration(pod: Raw, annotation: str) -> float | None:
    annotations = pod["metadata"].get("annotations")
    text = annotations.get(annotation) if annotations else None
    return _seconds(text) if text is not None else None


@lru_cache(maxsize=10_000)
def _seconds(text: str) -> float | None:
    """Seconds of a duration; invalid durations are ignored, since validation rejects them where it
    runs.
    """
    try:
        return max(0.0, parse_duration(text))
    except DurationError:
        return None

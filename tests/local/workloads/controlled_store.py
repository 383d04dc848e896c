"""A store with the workload controllers, whose actions it carries out. Tests play the kubelets."""

from __future__ import annotations

from typing import Any

from holdfast.api.times import format_time, parse_time
from holdfast.local.store import AlreadyExists, Identity, Key, SeededNames, Store, StoreChange
from holdfast.local.store.objects import with_generation
from holdfast.local.workloads import (
    Action,
    CreateDependent,
    DeleteDependent,
    EmitEvent,
    Update,
    Workloads,
)

Raw = dict[str, Any]
START = parse_time("2026-01-01T00:00:00Z")
_GROUPS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
}
_STEPS = 10_000


class Cluster:
    def __init__(self) -> None:
        self.store = Store()
        self.now = START
        self.identity = Identity(SeededNames(0), lambda: format_time(self.now))
        self.workloads = Workloads(self.store)
        self.store.observe(self._observe)
        self.emitted: list[str] = []
        self.refuse = ""
        """Why no pod can be created."""
        self.slow_to_stop = False
        """Whether pods with a node linger when deleted."""

    def _observe(self, change: StoreChange) -> None:
        self.workloads.changed(change.key, change.before, change.after)

    # What users do

    def create(self, raw: Raw) -> Raw:
        group = raw["apiVersion"].rpartition("/")[0]
        metadata = raw["metadata"]
        namespace = "" if raw["kind"] in ("Node", "Namespace") else metadata.get("namespace", "default")
        name = metadata.get("name") or self.identity.name(metadata["generateName"])
        key = Key(group, raw["kind"], namespace, name)
        if raw["kind"] == "Pod":
            raw = {"status": {"phase": "Pending"}, **raw}
        return self.store.create(key, self.identity.new(key, raw))

    def get(self, kind: str, name: str) -> Raw:
        found = self.store.get(self.key(kind, name))
        assert found is not None, f"no {kind}/{name}"
        return found

    def key(self, kind: str, name: str) -> Key:
        group = _GROUPS.get(kind, "v1").rpartition("/")[0]
        return Key(group, kind, "" if kind in ("Node", "Namespace") else "default", name)

    def patch(self, kind: str, name: str, **spec: Any) -> None:
        before = self.get(kind, name)
        self._update(self.key(kind, name), {**before, "spec": {**before["spec"], **spec}})

    def relabel(self, kind: str, name: str, labels: dict[str, str]) -> None:
        before = self.get(kind, name)
        changed = {**before, "metadata": {**before["metadata"], "labels": labels}}
        self._update(self.key(kind, name), changed)

    def delete(self, kind: str, name: str, propagation: str = "Background") -> None:
        self._delete(self.key(kind, name), propagation)

    def settle(self) -> None:
        """Until every controller is content; one that never is fails the test."""
        for _ in range(_STEPS):
            actions = self.workloads.step(self.now)
            if actions is None:
                return
            for action in actions:
                self._carry_out(action)
        raise AssertionError("the controllers do not come to rest")

    def advance(self, seconds: float) -> None:
        """Lets time pass, with everything that falls due on the way."""
        until = self.now + seconds
        while (due := self.workloads.next_due()) is not None and due <= until:
            self.now = max(self.now, due)
            self.settle()
        self.now = until
        self.settle()

    # What kubelets do

    def pods(self, **labels: str) -> list[Raw]:
        return [
            pod
            for pod in self.store.list("", "Pod")
            if labels.items() <= (pod["metadata"].get("labels") or {}).items()
        ]

    def names(self, **labels: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(**labels)]

    def run(self, *names: str, node: str = "n1") -> None:
        """The pods, all if none is named, are on a node and ready."""
        for pod in self.pods():
            name = pod["metadata"]["name"]
            if (not names or name in names) and pod["status"]["phase"] == "Pending":
                self._status(name, "Running", node, "True")
        self.settle()

    def end(self, name: str, phase: str = "Succeeded", code: int = 0, target: str = "") -> None:
        """`code` is the exit code of its container, `target` the type of a further condition."""
        self._status(name, phase, "n1", "False", code, target)
        self.settle()

    def _status(
        self, name: str, phase: str, node: str, ready: str, code: int = 0, target: str = ""
    ) -> None:
        key = Key("", "Pod", "default", name)
        pod = self.store.get(key)
        assert pod is not None
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": format_time(self.now)}
        status = {**pod["status"], "phase": phase, "conditions": [condition]}
        if target:
            status["conditions"].append({**condition, "type": target, "status": "True"})
        if code:
            terminated = {"exitCode": code, "finishedAt": format_time(self.now)}
            status["containerStatuses"] = [{"name": "c", "state": {"terminated": terminated}}]
        spec = {**pod["spec"], "nodeName": pod["spec"].get("nodeName") or node}
        self.store.update(key, {**pod, "spec": spec, "status": status})

    def stop(self, name: str) -> None:
        """The pod has stopped; it goes."""
        key = Key("", "Pod", "default", name)
        pod = self.store.get(key)
        assert pod is not None
        if pod["metadata"].get("finalizers"):
            self._status(name, "Failed", "n1", "False")
        else:
            self.store.delete(key)
        self.settle()

    # What the embedded cluster does

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, CreateDependent):
            why = self.refuse if action.raw["kind"] == "Pod" else ""
            try:
                made = self.create(action.raw) if not why else {}
            except AlreadyExists as error:
                why = str(error)
            if why:
                follow_up = self.workloads.refused(action, why, self.now)
            else:
                follow_up = self.workloads.created(action, made)
            if follow_up is not None:
                self._carry_out(follow_up)
        elif isinstance(action, Update):
            self._update(Key(*action.ref), action.after)
        elif isinstance(action, DeleteDependent):
            found = self.store.get(Key(*action.ref))
            if found is not None and found["metadata"]["uid"] == action.uid:
                self._delete(Key(*action.ref), action.propagation)
        elif isinstance(action, EmitEvent):
            about = f"{action.about['kind']}/{action.about['metadata']['name']}"
            self.emitted.append(f"{about} {action.reason} {action.message}")

    def _update(self, key: Key, raw: Raw) -> None:
        before = self.store.get(key)
        assert before is not None
        if raw["metadata"].get("deletionTimestamp") and not raw["metadata"].get("finalizers"):
            self.store.delete(key)
        else:
            self.store.update(key, with_generation(before, raw))

    def _delete(self, key: Key, propagation: str) -> None:
        raw = self.store.get(key)
        assert raw is not None
        finalizer = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation)
        finalizers = [*(raw["metadata"].get("finalizers") or ()), *([finalizer] if finalizer else ())]
        lingers = self.slow_to_stop and key.kind == "Pod" and raw["spec"].get("nodeName")
        if not finalizers and not lingers:
            self.store.delete(key)
            return
        metadata = {
            **raw["metadata"],
            "finalizers": finalizers,
            "deletionTimestamp": format_time(self.now),
        }
        self.store.update(key, {**raw, "metadata": metadata})


def workload(kind: str, name: str = "web", replicas: int | None = None, **spec: Any) -> Raw:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "a"}]}}
    whole = {"selector": {"matchLabels": labels}, "template": template, **spec}
    if replicas is not None:
        whole["replicas"] = replicas
    return {"apiVersion": _GROUPS[kind], "kind": kind, "metadata": {"name": name}, "spec": whole}


def image(raw: Raw, name: str) -> Raw:
    """The template with another image."""
    template = raw["spec"]["template"]
    containers = [{**template["spec"]["containers"][0], "image": name}]
    return {**template, "spec": {**template["spec"], "containers": containers}}


def condition(raw: Raw, type: str) -> Raw:
    return next(each for each in raw["status"]["conditions"] if each["type"] == type)

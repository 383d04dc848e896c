"""Random clusters as `holdfast up` runs them, at rest, for tests of dumps."""

from __future__ import annotations

import json
import random
from typing import Any

from harness.embedded_cluster import HandClock, SteppedCluster
from holdfast.api.names import RESERVATION_API
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Key, Store

Raw = dict[str, Any]

TAINT = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
_REST = range(10)
"""Periods of 41 s after which a cluster is at rest: pods that end have ended."""


class RandomCluster:
    """Filled by a seed: nodes, workloads of every kind, bare pods, reservations, volumes."""

    def __init__(self, seed: int) -> None:
        self.choices = random.Random(seed)
        self.world = SteppedCluster(Store(), HandClock("2026-03-01T00:00:00Z"), SchedulerFactory.of())
        self._number = 0
        for _ in range(self.choices.randint(2, 6)):
            self._node()
        for _ in range(self.choices.randint(2, 7)):
            self.choices.choice(self._makers())()
            self._pass(self.choices.choice((0, 1, 5)))
        self._pass(20)
        for _ in range(self.choices.randint(0, 3)):
            self._change()
            self._pass(self.choices.choice((1, 5)))
        for _ in _REST:
            self._pass(41)

    def dump(self) -> list[Raw]:
        """Every object, in any order, as `kubectl get -o json` has it."""
        found: list[Raw] = json.loads(json.dumps([*self.world.cluster.world.objects.all()]))
        self.choices.shuffle(found)
        return found

    def _pass(self, seconds: int) -> None:
        self.world.clock.t += seconds
        self.world.settle()

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"

    def _submit(self, raw: Raw) -> None:
        self.world.cluster.world.objects.submit(raw)
        self.world.settle()

    def _node(self) -> None:
        choices = self.choices
        amounts = {"cpu": str(choices.choice((4, 8))), "memory": "16Gi", "pods": "20"}
        name = self._name("node")
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": choices.choice("ab")}
        spec: Raw = {}
        if choices.random() < 0.3:
            spec["taints"] = [TAINT]
        if choices.random() < 0.1:
            spec["unschedulable"] = True
        self.world.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "spec": spec,
                "status": {"allocatable": amounts, "capacity": amounts},
            }
        )

    # Workloads

    def _template(self, app: str, **spec: Any) -> Raw:
        choices = self.choices
        container: Raw = {"name": "c", "image": "i", "env": [{"name": "A", "value": app}]}
        cpu = choices.choice(("", "100m", "1", "2", "9"))
        if cpu:
            container["resources"] = {"requests": {"cpu": cpu, "memory": "1Gi"}}
        if choices.random() < 0.3:
            spec["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]
        if choices.random() < 0.2:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": choices.choice(("DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": {"matchLabels": {"app": app}},
                }
            ]
        return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}

    def _workload(self, kind: str, **more: Any) -> None:
        name = self._name(kind.lower())
        spec = {"selector": {"matchLabels": {"app": name}}, "template": self._template(name), **more}
        self._submit({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})

    def _deployment(self) -> None:
        self._workload("Deployment", replicas=self.choices.randint(0, 4))

    def _replica_set(self) -> None:
        self._workload("ReplicaSet", replicas=self.choices.randint(1, 3))

    def _daemon_set(self) -> None:
        self._workload("DaemonSet")

    def _stateful_set(self) -> None:
        policy = self.choices.choice(("OrderedReady", "Parallel"))
        more = {"podManagementPolicy": policy, "serviceName": "db"}
        self._workload("StatefulSet", replicas=self.choices.randint(1, 3), **more)

    def _job_spec(self, name: str) -> Raw:
        choices = self.choices
        spec: Raw = {
            "parallelism": choices.randint(1, 3),
            "completions": choices.randint(1, 4),
            "template": self._template(name, restartPolicy="Never"),
        }
        if choices.random() < 0.5:
            spec["completionMode"] = "Indexed"
        if choices.random() < 0.5:
            metadata = spec["template"]["metadata"]
            metadata["annotations"] = {"sim.holdfast.io/runs-for": f"{choices.randint(5, 40)}s"}
            if choices.random() < 0.3:
                del spec["completions"]
                spec.pop("completionMode", None)
        return spec

    def _job(self) -> None:
        name = self._name("job")
        self._submit(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name},
                "spec": self._job_spec(name),
            }
        )

    def _cron_job(self) -> None:
        name = self._name("cron")
        spec = {
            "schedule": "*/1 * * * *",
            "suspend": True,
            "jobTemplate": {"spec": self._job_spec(name)},
        }
        raw = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}
        self._submit({**raw, "spec": {**spec, "suspend": False}})
        self._pass(61)
        key = Key("batch", "CronJob", "default", name)
        self.world.update(key, spec={**self.world.get(key)["spec"], "suspend": True})

    def _pod(self, **metadata: Any) -> None:
        name = self._name("pod")
        template = self._template(name)
        named = {"name": name, "namespace": "default", **template["metadata"], **metadata}
        self._submit({**template, "apiVersion": "v1", "kind": "Pod", "metadata": named})

    def _pod_of_another_owner(self) -> None:
        owner = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "name": "w",
            "uid": "w-1",
            "controller": True,
        }
        self._pod(ownerReferences=[owner])

    def _reservation(self) -> None:
        choices = self.choices
        apps = [raw["metadata"]["labels"]["app"] for raw in self._pods()]
        app = choices.choice([*apps, "nobody"])
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        spec: Raw = {
            "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
            "template": {"spec": {"containers": [container]}},
            "allocateOnce": choices.random() < 0.5,
            "ttl": choices.choice(("0s", "24h", "30s")),
        }
        if choices.random() < 0.2:
            spec["preAllocation"] = True
        name = self._name("reservation")
        metadata = {"name": name}
        self._submit(
            {"apiVersion": RESERVATION_API, "kind": "Reservation", "metadata": metadata, "spec": spec}
        )

    def _makers(self) -> list[Any]:
        return [
            self._deployment,
            self._replica_set,
            self._daemon_set,
            self._stateful_set,
            self._job,
            self._cron_job,
            self._pod,
            self._pod_of_another_owner,
            self._reservation,
        ]

    # Changes

    def _pods(self) -> list[Raw]:
        return [*self.world.store.scan("", "Pod")]

    def _change(self) -> None:
        choices = self.choices
        owners = [
            (Key("apps", kind, "default", raw["metadata"]["name"]), raw)
            for kind in ("Deployment", "StatefulSet", "DaemonSet")
            for raw in self.world.store.scan("apps", kind)
        ]
        pods = self._pods()
        if owners and choices.random() < 0.7:
            key, raw = choices.choice(owners)
            spec = json.loads(json.dumps(raw["spec"]))
            if key.kind == "DaemonSet" or choices.random() < 0.5:
                value = str(choices.random())
                spec["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": value}]
            else:
                spec["replicas"] = choices.randint(0, 4)
            generation = raw["metadata"].get("generation", 1) + 1
            self.world.update(key, spec=spec, metadata={"generation": generation})
        elif pods:
            raw = choices.choice(pods)
            name = raw["metadata"]["name"]
            self.world.cluster.world.kubelets.delete(Key("", "Pod", "default", name))
            self.world.settle()

"""What a client does to the cluster at random, keeping the number of objects within bounds."""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

Json = dict[str, Any]

NODES = 8
_FEWEST_PODS, _MOST_PODS = 60, 160
_MOST_RESERVATIONS = 30
_MOST_GROUPS = 8
_CPU = 8
_SCHEDULER = "holdfast-scheduler"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
_PODS = "/api/v1/namespaces/default/pods"
_NODES = "/api/v1/nodes"


class RequestRefused(Exception):
    """The server's answer was not a success."""


class Requests(Protocol):
    def __call__(self, method: str, path: str, body: Json | None = None) -> Json:
        """The answer; raises RequestRefused."""


class Operations:
    def __init__(self, request: Requests, seed: int) -> None:
        self._request = request
        self._random = random.Random(seed)
        self._made = 0
        self._pods: list[str] = []
        self._reservations: list[str] = []
        self._groups: list[str] = []
        self.counts: dict[str, int] = {}
        """How often each operation was done."""
        self._choices: list[tuple[int, Callable[[], None]]] = [
            (30, self.create_pod),
            (26, self.delete_pod),
            (6, self.create_reservation),
            (5, self.delete_reservation),
            (4, self.resize_reservation),
            (3, self.create_gang),
            (3, self.delete_gang),
            (4, self.relabel_pod),
            (2, self.cordon),
            (2, self.replace_node),
        ]

    def prepare(self) -> None:
        for number in range(NODES):
            self._create_node(f"load-{number}")

    def step(self) -> None:
        """Does one thing. What another has taken away meanwhile is no failure."""
        weights = [weight for weight, _ in self._choices]
        (choice,) = self._random.choices([each for _, each in self._choices], weights)
        with suppress(RequestRefused):
            choice()
            self.counts[choice.__name__] = self.counts.get(choice.__name__, 0) + 1

    def finish_deletions(self) -> None:
        """What a kubelet does for pods that are being deleted, where there is none."""
        for pod in self._request("GET", _PODS).get("items", []):
            if pod["metadata"].get("deletionTimestamp"):
                with suppress(RequestRefused):
                    self._delete(f"{_PODS}/{pod['metadata']['name']}")

    def collect_events(self) -> None:
        """They are kept for an hour, and would make everything grow that long."""
        with suppress(RequestRefused):
            self._request("DELETE", "/api/v1/namespaces/default/events")

    def create_pod(self) -> None:
        if len(self._pods) >= _MOST_PODS:
            self.delete_pod()
            return
        draw = self._random
        labels = {"app": draw.choice("abcdef")}
        annotations = {}
        if draw.random() < 0.1:
            template = {"owners": [{"labelSelector": {"matchLabels": {"app": labels["app"]}}}]}
            annotations["scheduling.koordinator.sh/reservation-template"] = json.dumps(template)
        name = self._name("pod")
        self._request("POST", _PODS, self._pod(name, labels, annotations))
        self._pods.append(name)

    def delete_pod(self) -> None:
        if len(self._pods) > _FEWEST_PODS:
            name = self._pods.pop(self._random.randrange(len(self._pods)))
            self._delete(f"{_PODS}/{name}")

    def create_gang(self) -> None:
        if len(self._groups) >= _MOST_GROUPS:
            self.delete_gang()
            return
        name, size = self._name("gang"), self._random.randint(2, 6)
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": size},
        }
        self._request("POST", _GROUPS, group)
        self._groups.append(name)
        for number in range(size):
            annotations = {"scheduling.k8s.io/group-name": name}
            member = self._pod(f"{name}-{number}", {"gang": name}, annotations)
            self._request("POST", _PODS, member)

    def delete_gang(self) -> None:
        if not self._groups:
            return
        name = self._groups.pop(self._random.randrange(len(self._groups)))
        self._delete(f"{_PODS}?labelSelector=gang={name}")
        self._delete(f"{_GROUPS}/{name}")

    def create_reservation(self) -> None:
        if len(self._reservations) >= _MOST_RESERVATIONS:
            self.delete_reservation()
            return
        draw, name = self._random, self._name("reservation")
        spec: Json = {
            "template": {"spec": {"containers": [self._container()], "schedulerName": _SCHEDULER}},
            "owners": [{"labelSelector": {"matchLabels": {"app": draw.choice("abcdef")}}}],
            "ttl": f"{draw.randint(10, 300)}s",
            "allocateOnce": draw.random() < 0.4,
            "preAllocation": draw.random() < 0.3,
        }
        if draw.random() < 0.3:
            spec["allocatePolicy"] = draw.choice(("Aligned", "Restricted"))
        labels = {"koordinator.sh/priority": str(draw.randint(1, 5))}
        if draw.random() < 0.4:
            labels["scheduling.koordinator.sh/can-preempt"] = "true"
        reservation = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }
        self._request("POST", RESERVATIONS, reservation)
        self._reservations.append(name)

    def delete_reservation(self) -> None:
        if self._reservations:
            name = self._reservations.pop(self._random.randrange(len(self._reservations)))
            self._delete(f"{RESERVATIONS}/{name}")

    def resize_reservation(self) -> None:
        if self._reservations:
            name = self._random.choice(self._reservations)
            template = {"spec": {"containers": [self._container()], "schedulerName": _SCHEDULER}}
            self._request("PATCH", f"{RESERVATIONS}/{name}", {"spec": {"template": template}})

    def relabel_pod(self) -> None:
        if self._pods:
            label = {"app": self._random.choice("abcdef")}
            name = self._random.choice(self._pods)
            self._request("PATCH", f"{_PODS}/{name}", {"metadata": {"labels": label}})

    def cordon(self) -> None:
        name, closed = f"load-{self._random.randrange(NODES)}", self._random.random() < 0.3
        self._request("PATCH", f"{_NODES}/{name}", {"spec": {"unschedulable": closed}})

    def replace_node(self) -> None:
        """The node goes with its pods, and comes back empty."""
        name = f"load-{self._random.randrange(NODES)}"
        self._delete(f"{_NODES}/{name}")
        self._delete(f"{_PODS}?fieldSelector=spec.nodeName={name}")
        self._create_node(name)

    def _create_node(self, name: str) -> None:
        allocatable = {"cpu": str(_CPU), "memory": "32Gi", "pods": "30"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        node: Json = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        node["metadata"]["labels"] = {"kubernetes.io/hostname": name}
        self._request("POST", _NODES, node)
        status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}
        self._request("PATCH", f"{_NODES}/{name}/status", {"status": status})

    def _pod(self, name: str, labels: dict[str, str], annotations: dict[str, str]) -> Json:
        draw = self._random
        spec: Json = {"schedulerName": _SCHEDULER, "containers": [self._container()]}
        spec["terminationGracePeriodSeconds"] = draw.choice((0, 1, 5))
        if draw.random() < 0.2:
            spec["priorityClassName"] = "load-high"
        if draw.random() < 0.1:
            spec["containers"][0]["ports"] = [{"hostPort": draw.choice((80, 81)), "containerPort": 80}]
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _container(self) -> Json:
        amounts = {"cpu": self._random.choice(("250m", "500m", "1", "2", "4")), "memory": "1Gi"}
        return {"name": "c", "image": "i", "resources": {"requests": amounts}}

    def _name(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"

    def _delete(self, path: str) -> None:
        self._request("DELETE", path, {"gracePeriodSeconds": 0})

"""The manifests that the demo applies. They are what `kubectl apply` takes."""

from __future__ import annotations

import json
from typing import Any

from holdfast.api.names import (
    CAN_PREEMPT,
    GROUP_NAME_ANNOTATION,
    HOLDFAST_SCHEDULER,
    RESERVATION_API,
    RESERVATION_PRIORITY,
    RESERVATION_TEMPLATE,
    VOLCANO_API,
)
from holdfast.cli.demo.site import Site

Raw = dict[str, Any]

_GRACE = 1
"""Seconds that a pod may take to stop: nothing runs in it that needs more."""


class Manifests:
    def __init__(self, site: Site, namespace: str, image: str, priority_class: str = "") -> None:
        self._site = site
        self._namespace = namespace
        self._image = image
        self._priority_class = priority_class

    def pod(
        self,
        name: str,
        eighths: int,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        limit: int = 0,
        node: str = "",
    ) -> Raw:
        metadata: Raw = {"name": name, "namespace": self._namespace}
        if labels:
            metadata["labels"] = labels
        if annotations:
            metadata["annotations"] = annotations
        spec = self._pod_spec(eighths, limit)
        if node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def deployment(self, name: str, replicas: int, eighths: int) -> Raw:
        labels = {"app": name}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": self._pod_spec(eighths)},
            },
        }

    def gang(self, name: str, members: int, eighths: int) -> list[Raw]:
        group = {
            "apiVersion": VOLCANO_API,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": {"minMember": members},
        }
        joins = {GROUP_NAME_ANNOTATION: name}
        return [
            group,
            *(self.pod(f"{name}-{i}", eighths, annotations=joins) for i in range(members)),
        ]

    def pod_with_template(self, name: str, eighths: int, app: str, size: int) -> Raw:
        template = {
            "owners": [self._owner(app)],
            "recommendedSize": {"cpu": self._site.cpu(size)},
        }
        return self.pod(name, eighths, {"app": app}, {RESERVATION_TEMPLATE: json.dumps(template)})

    def reservation(self, name: str, eighths: int, app: str, priority: int, preempts: bool) -> Raw:
        labels = {RESERVATION_PRIORITY: str(priority)}
        if preempts:
            labels[CAN_PREEMPT] = "true"
        return {
            "apiVersion": RESERVATION_API,
            "kind": "Reservation",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "template": {"spec": self._pod_spec(eighths, of_pod=False)},
                "owners": [self._owner(app)],
                "ttl": "1h",
            },
        }

    def _owner(self, app: str) -> Raw:
        return {
            "object": {"namespace": self._namespace},
            "labelSelector": {"matchLabels": {"app": app}},
        }

    def _pod_spec(self, eighths: int, limit: int = 0, of_pod: bool = True) -> Raw:
        resources: Raw = {"requests": {"cpu": self._site.cpu(eighths)}}
        if limit:
            resources["limits"] = {"cpu": self._site.cpu(limit)}
        spec: Raw = {
            "schedulerName": HOLDFAST_SCHEDULER,
            "containers": [{"name": "main", "image": self._image, "resources": resources}],
        }
        if of_pod:
            spec["terminationGracePeriodSeconds"] = _GRACE
        if of_pod and self._priority_class:
            spec["priorityClassName"] = self._priority_class
        if self._site.selector:
            spec["nodeSelector"] = dict(self._site.selector)
        return spec

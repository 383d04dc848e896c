"""Objects as a reflector would hand them over: decoded, one by one, from JSON of their own.

A pod is written out again whenever the API server would have changed it: once it has a node, and
when it was told why it has none.
"""

import itertools
import zlib
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

import msgspec

from holdfast.api.decode import decode, decode_pod_json
from holdfast.api.meta import Object
from holdfast.api.pod import Pod
from holdfast.core.decisions import SetPodScheduled

Raw = Mapping[str, Any]

CREATED = "2026-01-01T00:00:00Z"

_NAME, _UID, _NODE, _CONDITIONS, _VERSION = "@name@", "@uid@", "@node@", "@conditions@", "@version@"


class PodMaker:
    """Pods of one or several shapes, numbered from 0. `order` gives each pod's shape, else in turn."""

    def __init__(
        self,
        prefix: str,
        shapes: Sequence[Raw],
        namespace: str = "default",
        order: Sequence[int] | None = None,
    ) -> None:
        self._prefix = prefix
        self._texts = [_pod_text(shape, namespace) for shape in shapes]
        self._order = order

    def pending(self, number: int) -> Pod:
        return self._written(number, "", "[]", "1")

    def bound(self, number: int, node: str) -> Pod:
        conditions = (
            '[{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T00:00:01Z"}]'
        )
        return self._written(number, node, conditions, "2")

    def told(self, number: int, why: SetPodScheduled) -> Pod:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": why.reason,
            "message": why.message,
        }
        return self._written(number, "", msgspec.json.encode([condition]).decode(), "2")

    def _written(self, number: int, node: str, conditions: str, version: str) -> Pod:
        texts = self._texts
        text = texts[self._order[number] if self._order else number % len(texts)]
        name = f"{self._prefix}-{number:05d}"
        text = (
            text.replace(_NAME, name)
            .replace(_UID, _uid(self._prefix, number))
            .replace(_NODE, node)
            .replace(f'"{_CONDITIONS}"', conditions)
            .replace(_VERSION, version)
        )
        return decode_pod_json(text.encode())


def shapes(template: Raw, vary: Mapping[str, Sequence[str]]) -> list[Raw]:
    """The template with its `$words` filled in, once for every combination of values."""
    if not vary:
        return [template]
    text = Template(msgspec.json.encode(template).decode())
    combinations = itertools.product(*vary.values())
    return [
        msgspec.json.decode(text.substitute(dict(zip(vary, values, strict=True))))
        for values in combinations
    ]


def make_object(
    template: Raw, prefix: str, number: int, labels: Mapping[str, str] | None = None
) -> Object:
    """An object that is not a pod; a name in the template is kept."""
    metadata = dict(template.get("metadata", {}))
    name = metadata.setdefault("name", f"{prefix}-{number:05d}")
    metadata["uid"] = _uid(name, number)
    metadata["creationTimestamp"] = CREATED
    metadata["resourceVersion"] = "1"
    if template["kind"] == "Node":
        metadata["labels"] = {
            "kubernetes.io/hostname": name,
            **metadata.get("labels", {}),
            **(labels or {}),
        }
    elif template["kind"] != "Namespace":
        metadata["namespace"] = "default"
    return decode({**template, "metadata": metadata})


def _pod_text(shape: Raw, namespace: str) -> str:
    metadata = {
        "name": _NAME,
        "namespace": namespace,
        "uid": _UID,
        "resourceVersion": _VERSION,
        "creationTimestamp": CREATED,
        **shape.get("metadata", {}),
    }
    spec = {
        "priority": 0,
        **shape["spec"],
        "nodeName": _NODE,
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
    }
    status = {"phase": "Pending", "conditions": _CONDITIONS}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}
    return msgspec.json.encode(pod).decode()


def _uid(prefix: str, number: int) -> str:
    return f"{zlib.crc32(prefix.encode()):08x}-0000-4000-8000-{number:012x}"

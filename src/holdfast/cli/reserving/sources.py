"""What workloads say of the pods they make: the template, who those pods are, and how many.

Pods of a Deployment belong to ReplicaSets that come and go, so they are known by their labels. Pods of
the other workloads name theirs as their controller.
"""

from collections.abc import Callable
from copy import deepcopy
from difflib import get_close_matches
from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.meta import Struct
from holdfast.api.names import DEFAULT_SCHEDULER
from holdfast.api.pod import Container, PodSpec
from holdfast.cli.failing import Failure
from holdfast.cli.reserving.wishes import Raw


class Source(NamedTuple):
    name: str
    template: Raw
    owners: list[Raw]
    replicas: int


class _Workload(NamedTuple):
    info: KindInfo
    replicas: Callable[[Raw], int | None]
    by_labels: bool = False


def _replicas(spec: Raw) -> int | None:
    return spec.get("replicas")


def _parallelism(spec: Raw) -> int | None:
    counts = [spec[key] for key in ("parallelism", "completions") if spec.get(key) is not None]
    return min(counts) if counts else None


_DEPLOYMENT = _Workload(KINDS["apps/v1", "Deployment"], _replicas, by_labels=True)
_WORKLOADS = (
    _DEPLOYMENT,
    _Workload(KINDS["batch/v1", "Job"], _parallelism),
    _Workload(KINDS["apps/v1", "StatefulSet"], _replicas),
    _Workload(KINDS["apps/v1", "ReplicaSet"], _replicas),
)


def find_workload(text: str) -> tuple[KindInfo, str]:
    """Of `deployment/web`: the kind and the name. Raises Failure."""
    kind, slash, name = text.partition("/")
    known = {
        alias: each.info
        for each in _WORKLOADS
        for alias in (each.info.singular, each.info.plural, each.info.resource, *each.info.short_names)
    }
    info = known.get(kind.lower())
    if info is None:
        close = get_close_matches(kind.lower(), known, n=1)
        titles = ", ".join(each.info.singular for each in _WORKLOADS)
        hint = f"did you mean {known[close[0]].singular}?" if close else f"there are {titles}"
        raise Failure(1, [f"SOURCE: cannot reserve for {kind!r}; {hint}"])
    if not slash or not name:
        raise Failure(1, [f"SOURCE: expected {info.singular}/NAME, got {text!r}"])
    return info, name


def source_of(raw: Raw, namespace: str) -> Source:
    """Raises Failure."""
    api_version, kind = raw.get("apiVersion"), raw.get("kind")
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    name = str(metadata.get("name") or "")
    for workload in _WORKLOADS:
        if (workload.info.api_version, workload.info.kind) == (api_version, kind):
            break
    else:
        titles = ", ".join(each.info.kind for each in _WORKLOADS)
        raise Failure(1, [f"{kind}/{name}: cannot be reserved for; there are {titles}"])
    if not spec.get("template"):
        raise Failure(1, [f"{kind}/{name}: spec.template: is required: the pod to reserve for"])
    namespace = str(metadata.get("namespace") or namespace)
    if workload.by_labels:
        if not spec.get("selector"):
            raise Failure(1, [f"{kind}/{name}: spec.selector: is required: its pods are known by it"])
        owner: Raw = {"object": {"namespace": namespace}, "labelSelector": deepcopy(spec["selector"])}
    else:
        controller = {"apiVersion": api_version, "kind": kind, "name": name, "namespace": namespace}
        owner = {"controller": {**controller, "controller": True}}
    replicas = workload.replicas(spec)
    return Source(
        name, _template(spec["template"], namespace), [owner], 1 if replicas is None else replicas
    )


def _template(given: Raw, namespace: str) -> Raw:
    """What scheduling reads of it. The rest (environments, commands, mounts) is nobody's business who
    may see reservations."""
    metadata = {
        key: value
        for key, value in (given.get("metadata") or {}).items()
        if key in ("labels", "annotations") and value
    }
    spec = _known(given.get("spec") or {}, PodSpec)
    for part in ("containers", "initContainers"):
        if part in spec:
            spec[part] = [_known(container, Container) for container in spec[part]]
    if spec.get("schedulerName") == DEFAULT_SCHEDULER:
        del spec["schedulerName"]  # what a server writes where nothing was said
    return {"metadata": {**metadata, "namespace": namespace}, "spec": spec}


def _known(raw: Raw, type: type[Struct]) -> Raw:
    return {
        key: deepcopy(raw[key]) for key in type.__struct_encode_fields__ if raw.get(key) is not None
    }

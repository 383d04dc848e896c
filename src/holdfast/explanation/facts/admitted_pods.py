"""What admission adds to the pods of a workload, which its template does not have: the overhead, node
selector and tolerations of a RuntimeClass, the priority of a PriorityClass, containers that a webhook
injects, and requests that a LimitRange sets by default."""

from contextlib import suppress
from typing import NamedTuple

from holdfast.api.errors import InvalidObject, MalformedText
from holdfast.api.kinds import KINDS
from holdfast.explanation.facts.pod_owners import workload_of
from holdfast.kube.object_client import Raw
from holdfast.machinery.strategies.admission import SYSTEM_CLASSES, merge_runtime_class
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

PRIORITY_CLASS = KINDS["scheduling.k8s.io/v1", "PriorityClass"]
RUNTIME_CLASS = KINDS["node.k8s.io/v1", "RuntimeClass"]
LOWER = "PreemptLowerPriority"
"""The preemption policy of pods, unless their PriorityClass has another one."""
_CONTAINERS = ("initContainers", "containers")


class Additions(NamedTuple):
    overhead: Raw
    selector: Raw
    tolerations: list[Raw]
    injected: dict[str, list[Raw]]
    """By field of the spec, the containers that it does not have."""
    resources: dict[str, Raw]
    """By container of the template, the requests and limits of it in the pod."""

    @property
    def names(self) -> frozenset[str]:
        """The injected containers, which no template can change."""
        return frozenset(each["name"] for listed in self.injected.values() for each in listed)

    def to(self, spec: Raw) -> Raw:
        """The spec of a pod that is made from a template with this one."""
        found = dict(spec)
        if overhead := spec.get("overhead") or self.overhead:
            found["overhead"] = overhead
        if self.selector:
            found["nodeSelector"] = {**self.selector, **(spec.get("nodeSelector") or {})}
        if self.tolerations:
            own = spec.get("tolerations") or ()
            found["tolerations"] = [*own, *(each for each in self.tolerations if each not in own)]
        for field in _CONTAINERS:
            listed = [{**each, "resources": self._resources(each)} for each in spec.get(field) or ()]
            names = {each["name"] for each in listed}
            listed += [each for each in self.injected.get(field, ()) if each["name"] not in names]
            if listed:
                found[field] = listed
        return found

    def _resources(self, container: Raw) -> Raw:
        """With what is set by default for resources of which it gives neither request nor limit."""
        own, added = container.get("resources") or {}, self.resources.get(container["name"]) or {}
        given = {*(own.get("requests") or ()), *(own.get("limits") or ())}
        found: Raw = dict(own)
        for field in ("requests", "limits"):
            more = {key: each for key, each in (added.get(field) or {}).items() if key not in given}
            if more:
                found[field] = {**(own.get(field) or {}), **more}
        return found


NONE = Additions({}, {}, [], {}, {})


def admitted(snapshot: ClusterSnapshot, spec: Raw) -> Raw:
    """The spec of a new pod once its PriorityClass and its RuntimeClass have added to it. What they
    contradict is left as it is."""
    found = dict(spec)
    name = str(spec.get("priorityClassName") or "")
    classes = {each["metadata"]["name"]: each for each in snapshot.all(PRIORITY_CLASS)}
    by_default = [each for each in classes.values() if each.get("globalDefault") and not name]
    chosen = classes.get(name) or min(by_default, key=lambda each: int(each["value"]), default=None)
    if chosen is not None:
        found["priorityClassName"] = chosen["metadata"]["name"]
        found.setdefault("priority", int(chosen.get("value") or 0))
        found.setdefault("preemptionPolicy", chosen.get("preemptionPolicy") or LOWER)
    elif name in SYSTEM_CLASSES:
        found.setdefault("priority", SYSTEM_CLASSES[name][0])
    runtime = snapshot.find(RUNTIME_CLASS, str(spec.get("runtimeClassName") or ""))
    if runtime is not None:
        with suppress(InvalidObject, MalformedText):
            merge_runtime_class(found, runtime)
    return found


def additions(snapshot: ClusterSnapshot, pod: Raw) -> Additions:
    """What the pod has beside its workload's template; nothing if that is not known."""
    workload = workload_of(snapshot, pod)
    if workload is None or not workload.pod_spec:
        return NONE
    template, spec = workload.pod_spec, pod["spec"]
    injected: dict[str, list[Raw]] = {}
    for field in _CONTAINERS:
        known = {each["name"] for each in template.get(field) or ()}
        more = [each for each in spec.get(field) or () if each["name"] not in known]
        if more:
            injected[field] = more
    resources = {
        each["name"]: each.get("resources") or {}
        for field in _CONTAINERS
        for each in spec.get(field) or ()
    }
    own = template.get("nodeSelector") or {}
    selector = {key: each for key, each in (spec.get("nodeSelector") or {}).items() if key not in own}
    tolerated = template.get("tolerations") or ()
    tolerations = [each for each in spec.get("tolerations") or () if each not in tolerated]
    overhead = {} if template.get("overhead") else spec.get("overhead") or {}
    return Additions(overhead, selector, tolerations, injected, resources)

"""What a dump of a cluster lacks for the workload controllers to recognise its pods: the ReplicaSet
between a Deployment and its pods, and the revision of the pods of a StatefulSet or DaemonSet."""

from collections.abc import Iterator

from holdfast.local.component import ENDED, ObjectWriter
from holdfast.local.store.objects import Key, Raw, pod_key
from holdfast.local.workloads.lister import controller_of, labels_of, reference_to, selects
from holdfast.local.workloads.revisions import (
    DESIRED,
    HASH_LABEL,
    REVISION_LABEL,
    new_revision,
    plain,
    short_hash,
)

_DEPLOYMENT = ("apps", "Deployment")
_REPLICA_SET = ("apps", "ReplicaSet")
_REVISION = ("apps", "ControllerRevision")
REVISED = (("apps", "StatefulSet"), ("apps", "DaemonSet"))


class DumpCompletion:
    """Notes workloads that are created, and completes them when asked to."""

    def __init__(self, objects: ObjectWriter) -> None:
        self._objects = objects
        self._new: list[Key] = []

    def note(self, key: Key) -> None:
        """An object was created."""
        if key[:2] == _DEPLOYMENT or key[:2] in REVISED:
            self._new.append(key)

    def complete(self) -> None:
        new, self._new = self._new, []
        deployments: dict[Key, list[tuple[str, list[Raw]]]] = {}
        if any(key[:2] == _DEPLOYMENT for key in new):
            for (namespace, name), pods in self._without_replica_set().items():
                owner = self._deployment_of(namespace, name, pods)
                if owner is not None and owner in new:
                    deployments.setdefault(owner, []).append((name, pods))
        for key, groups in deployments.items():
            self._add_replica_sets(key, groups)
        for key in new:
            if key[:2] in REVISED:
                self._add_revision(key)

    def _without_replica_set(self) -> dict[tuple[str, str], list[Raw]]:
        """Pods that are or were of a ReplicaSet which is not here, by its namespace and name. Of pods
        without a controller, the name is the hash in their labels alone."""
        found: dict[tuple[str, str], list[Raw]] = {}
        here: set[tuple[str, str]] = set()
        for pod in self._objects.scan("", "Pod"):
            if (pod.get("status") or {}).get("phase") in ENDED:
                continue
            owner, namespace = controller_of(pod), pod["metadata"]["namespace"]
            if owner is None:
                name = labels_of(pod).get(HASH_LABEL, "")
                if not name or self._selected(namespace, pod):
                    continue
                found.setdefault((namespace, f"-{name}"), []).append(pod)
            elif owner["kind"] == "ReplicaSet":
                named = (namespace, owner["name"])
                if named in here:
                    continue
                if named not in found and Key(*_REPLICA_SET, *named) in self._objects:
                    here.add(named)
                else:
                    found.setdefault(named, []).append(pod)
        return found

    def _selected(self, namespace: str, pod: Raw) -> bool:
        """Whether a ReplicaSet that is here adopts the pod."""
        return any(
            each["metadata"]["namespace"] == namespace
            and selects((each.get("spec") or {}).get("selector"), labels_of(pod))
            for each in self._objects.scan(*_REPLICA_SET)
        )

    def _deployment_of(self, namespace: str, name: str, pods: list[Raw]) -> Key | None:
        """The one whose name the ReplicaSet's begins with, else the first that selects its pods."""
        labels = labels_of(pods[0])
        prefix = name.removesuffix(f"-{labels.get(HASH_LABEL, '')}")
        found: Key | None = None
        for raw in self._objects.scan(*_DEPLOYMENT):
            metadata = raw["metadata"]
            if metadata["namespace"] != namespace or not selects(raw["spec"].get("selector"), labels):
                continue
            key = Key(*_DEPLOYMENT, namespace, metadata["name"])
            if metadata["name"] == prefix:
                return key
            found = found or key
        return found

    def _add_replica_sets(self, key: Key, groups: list[tuple[str, list[Raw]]]) -> None:
        deployment = self._objects.get(key)
        assert deployment is not None
        template = plain(deployment["spec"]["template"])
        present = any(
            plain(each["spec"].get("template") or {}) == template
            for each in self._controlled(deployment)
        )
        current = None if present else max(groups, key=lambda each: (_newest(each[1]), each[0]))[0]
        for name, pods in groups:
            self._add_replica_set(deployment, name, pods, is_current=name == current)

    def _controlled(self, deployment: Raw) -> Iterator[Raw]:
        uid = deployment["metadata"]["uid"]
        for raw in self._objects.scan(*_REPLICA_SET):
            owner = controller_of(raw)
            if owner is not None and owner.get("uid") == uid and "spec" in raw:
                yield raw

    def _add_replica_set(
        self, deployment: Raw, name: str, pods: list[Raw], *, is_current: bool
    ) -> None:
        """With the Deployment's template if its pods are of the current revision, else with theirs."""
        metadata, spec = deployment["metadata"], deployment["spec"]
        given, owner = pods[0], controller_of(pods[0])
        digest = labels_of(given).get(HASH_LABEL)
        marks = {HASH_LABEL: digest} if digest else {}
        template = plain(spec["template"])
        if not is_current:
            template = {"metadata": {"labels": labels_of(given)}, "spec": _as_template(given["spec"])}
        labels = {**(template["metadata"].get("labels") or {}), **marks}
        matching = {**(spec["selector"].get("matchLabels") or {}), **marks}
        raw: Raw = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{metadata['name']}{name}" if owner is None else name,
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": {DESIRED: str(spec.get("replicas", 1))},
                "ownerReferences": [reference_to(deployment)],
            },
            "spec": {
                "replicas": len(pods),
                "selector": {**spec["selector"], "matchLabels": matching},
                "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
            },
        }
        if owner is not None and owner.get("uid"):
            raw["metadata"]["uid"] = owner["uid"]
        replica_set = self._objects.create(raw)
        for pod in pods:
            self._own(pod, replica_set)

    def _own(self, pod: Raw, owner: Raw) -> None:
        """The pod's reference to its controller is to this one."""
        others = [
            each for each in pod["metadata"].get("ownerReferences") or () if not each.get("controller")
        ]
        before = controller_of(pod)
        if before is None or before.get("uid") != owner["metadata"]["uid"]:
            metadata = {**pod["metadata"], "ownerReferences": [*others, reference_to(owner)]}
            self._objects.update(_key(pod), {**pod, "metadata": metadata})

    def _add_revision(self, key: Key) -> None:
        """Existing pods are of the current revision if their label is the latest one, or absent."""
        owner = self._objects.get(key)
        if owner is None:
            return
        uid, template = owner["metadata"]["uid"], owner["spec"]["template"]
        pods = [
            pod
            for pod in self._objects.scan("", "Pod")
            if (by := controller_of(pod)) is not None and by.get("uid") == uid
        ]
        if not pods:
            return
        prefix = f"{key.name}-" if key.kind == "StatefulSet" else ""
        named = (owner.get("status") or {}).get("updateRevision") or ""
        if not named:
            labelled = [pod for pod in pods if REVISION_LABEL in labels_of(pod)]
            newest = max(labelled, key=lambda pod: (_newest([pod]), _key(pod)), default=None)
            named = labels_of(newest)[REVISION_LABEL] if newest is not None else ""
        digest = named.removeprefix(prefix) or short_hash(template)
        revision = new_revision(owner, f"{key.name}-{digest}", digest, template, 1)
        at = Key(*_REVISION, key.namespace, f"{key.name}-{digest}")
        if at not in self._objects:
            self._objects.store.create(at, self._objects.identity.new(at, revision))
        for pod in pods:
            if REVISION_LABEL not in labels_of(pod):
                labels = {**labels_of(pod), REVISION_LABEL: prefix + digest}
                metadata = {**pod["metadata"], "labels": labels}
                self._objects.update(_key(pod), {**pod, "metadata": metadata})


def _key(pod: Raw) -> Key:
    return pod_key(pod["metadata"]["namespace"], pod["metadata"]["name"])


def _newest(pods: list[Raw]) -> str:
    return max(str(pod["metadata"]["creationTimestamp"]) for pod in pods)


def _as_template(spec: Raw) -> Raw:
    return {name: value for name, value in spec.items() if name not in ("nodeName", "priority")}

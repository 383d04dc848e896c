"""What every namespace has from the start: the ServiceAccount `default`, and the ConfigMap with the
certificate of the server's authority. Both are created again if they are deleted.
"""

from __future__ import annotations

from holdfast.local.component import ObjectWriter, Steps
from holdfast.local.store.objects import Key, Raw, StoreChange

NAMESPACE = ("", "Namespace")
ACCOUNT, AUTHORITY = ("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints "
    "such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
)


class NamespaceDefaults:
    def __init__(self, objects: ObjectWriter, authority: str) -> None:
        """`authority` is the certificate, as PEM."""
        self._objects = objects
        self._data = {"ca.crt": authority}
        self._stale = dict.fromkeys(raw["metadata"]["name"] for raw in objects.scan(*NAMESPACE))

    def changed(self, change: StoreChange) -> None:
        _, key, before, after = change
        if key[:2] == NAMESPACE:
            if before is None:
                self._stale[key.name] = None
        elif (
            key.group == ""
            and (key.kind, key.name) in (ACCOUNT, AUTHORITY)
            and (after is None or (key.kind == AUTHORITY[0] and after.get("data") != self._data))
        ):
            self._stale[key.namespace] = None

    def settle(self) -> Steps:
        stale, self._stale = self._stale, {}
        for name in stale:
            namespace = self._objects.get(Key(*NAMESPACE, "", name))
            if namespace is None or namespace["metadata"].get("deletionTimestamp"):
                continue
            self._ensure(name)
            yield None

    def _ensure(self, namespace: str) -> None:
        account = Key("", ACCOUNT[0], namespace, ACCOUNT[1])
        if account not in self._objects:
            self._create(account, {})
        authority = Key("", AUTHORITY[0], namespace, AUTHORITY[1])
        before = self._objects.get(authority)
        if before is None:
            annotations = {"kubernetes.io/description": _DESCRIPTION}
            self._create(authority, {"data": self._data}, annotations=annotations)
        elif before.get("data") != self._data:
            self._objects.update(authority, {**before, "data": self._data})

    def _create(self, key: Key, parts: Raw, **metadata: Raw) -> None:
        named = {"name": key.name, "namespace": key.namespace, **metadata}
        raw = {"apiVersion": "v1", "kind": key.kind, "metadata": named, **parts}
        self._objects.store.create(key, self._objects.identity.new(key, raw))

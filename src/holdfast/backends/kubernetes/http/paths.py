"""Where things are on an API server."""

from holdfast.api.kinds import KINDS, KindInfo


def path_of(info: KindInfo, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """A collection, an object of it, or a subresource of that."""
    root = f"/apis/{info.api_version}" if info.group else f"/api/{info.api_version}"
    parts = [root]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(info.plural)
    if name:
        parts.append(name)
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


POD = KINDS["v1", "Pod"]
NODE = KINDS["v1", "Node"]
CLAIM = KINDS["v1", "PersistentVolumeClaim"]
VOLUME = KINDS["v1", "PersistentVolume"]
LEASE = KINDS["coordination.k8s.io/v1", "Lease"]

"""pods/binding: a pod is given its node, once."""

from holdfast.server.api.bodies import Body
from holdfast.server.api.cluster import Call
from holdfast.server.api.status import ApiError, Resource, bad_request, conflict, not_found, other_uid
from holdfast.server.api.verbs.bodies import check_namespace, read
from holdfast.server.schema import ResourceType
from holdfast.store import Key, Raw

_BINDING = Resource("", "pods/binding")
_PODS = Resource("", "pods")


def bind(call: Call, body: Body, binding_type: ResourceType) -> Raw:
    """Raises ApiError 409 when the pod has a node already."""
    raw = check_namespace(call, read(call, body, binding_type))
    metadata = raw["metadata"]
    name = call.name or metadata.get("name") or ""
    if name != metadata.get("name"):
        raise bad_request("name in URL does not match name in Binding object")
    target = raw.get("target") or {}
    _check_target(target)
    pod = _bound(call, name, metadata, target["name"])
    if not call.options.dry_run:
        call.cluster.store.update(Key("", "Pod", call.namespace, name), pod)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _check_target(target: Raw) -> None:
    kind = target.get("kind") or ""
    found = []
    if kind not in ("", "Node"):
        found.append(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        found.append("target.name: Required value")
    if found:
        raise ApiError(500, "", found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _bound(call: Call, name: str, metadata: Raw, node: str) -> Raw:
    pod = call.cluster.store.get(Key("", "Pod", call.namespace, name))
    if pod is None:
        raise not_found(_PODS, name)
    uid = metadata.get("uid")
    if uid and uid != pod["metadata"]["uid"]:
        raise other_uid(_PODS, name, uid, pod["metadata"]["uid"])
    version = metadata.get("resourceVersion")
    if version and version != pod["metadata"]["resourceVersion"]:
        found = pod["metadata"]["resourceVersion"]
        why = (
            f"Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in "
            "object "
            f"meta: {found}"
        )
        raise conflict(_PODS, name, why)
    spec = pod.get("spec") or {}
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict(_BINDING, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise conflict(_BINDING, name, why)
    if spec.get("schedulingGates"):
        raise conflict(_BINDING, name, f"pod {name} has non-empty .spec.schedulingGates")
    changed = dict(pod["metadata"])
    for part in ("labels", "annotations"):
        if metadata.get(part):
            changed[part] = {**(changed.get(part) or {}), **metadata[part]}
    return {
        **pod,
        "metadata": changed,
        "spec": {**spec, "nodeName": node},
        "status": _scheduled(pod.get("status") or {}, call.cluster.stamp()),
    }


def _scheduled(status: Raw, now: str) -> Raw:
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    others = [each for each in status.get("conditions") or [] if each.get("type") != "PodScheduled"]
    bound = {**status, "conditions": [*others, condition]}
    bound.pop("nominatedNodeName", None)  # no node is being cleared for it any more
    return bound

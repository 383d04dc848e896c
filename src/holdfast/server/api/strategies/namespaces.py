"""Namespaces and nodes."""

from holdfast.api import names
from holdfast.server.api import fields
from holdfast.server.api.cluster import Call
from holdfast.server.api.strategies.strategy import Strategy, keep_spec, keep_status
from holdfast.server.schema import Problem
from holdfast.store import Raw

FINALIZER = "kubernetes"


def _labelled(raw: Raw) -> Raw:
    """With the label by which selectors know a namespace's name."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    name = metadata.get("name") or ""
    if labels.get(names.NAMESPACE_NAME_LABEL) == name:
        return raw
    return {**raw, "metadata": {**metadata, "labels": {**labels, names.NAMESPACE_NAME_LABEL: name}}}


def _new(call: Call, raw: Raw) -> Raw:
    spec = dict(raw.get("spec") or {})
    if FINALIZER not in (spec.get("finalizers") or []):
        spec["finalizers"] = [*(spec.get("finalizers") or []), FINALIZER]
    return {**_labelled(raw), "spec": spec, "status": {"phase": "Active"}}


def _changed(call: Call, before: Raw, after: Raw) -> Raw:
    after = keep_status(call, before, _labelled(after))
    # Only the finalize subresource takes a namespace's own finalizers away.
    return after if call.subresource == "finalize" else keep_spec(call, before, after)


NAMESPACE = Strategy(returns_deleted=True, new=_new, changed=_changed)


def _check_node(call: Call, before: Raw, after: Raw) -> list[Problem]:
    was, now = (before.get("spec") or {}).get("podCIDR"), (after.get("spec") or {}).get("podCIDR")
    if was and was != now:
        return [
            fields.forbidden(
                "spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'
            )
        ]
    return []


NODE = Strategy(changed=keep_status, check_changed=_check_node)

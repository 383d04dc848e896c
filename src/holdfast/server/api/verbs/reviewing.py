"""Who am I, and what may I do: whoever has the token may do everything, and that is all there is to
it."""

from holdfast.server.api.bodies import Body
from holdfast.server.api.cluster import Call
from holdfast.server.api.verbs.bodies import read
from holdfast.store import Raw

USER = "holdfast-admin"
GROUPS = ["system:masters", "system:authenticated"]
_WHY = "whoever has the token may do everything: there is no finer authorization here"


def review(call: Call, body: Body) -> Raw:
    """The review with its answer."""
    raw = read(call, body)
    raw = {**raw, "metadata": dict(raw["metadata"])}
    spec = raw.get("spec") or {}
    match call.type.kind:
        case "SelfSubjectReview":
            raw["metadata"]["creationTimestamp"] = call.cluster.stamp()
            return {**raw, "status": {"userInfo": {"username": USER, "groups": GROUPS}}}
        case "SelfSubjectRulesReview":
            return {**raw, "spec": spec, "status": _RULES}
        case "TokenReview":
            why = "tokens cannot be reviewed here"
            return {**raw, "spec": spec, "status": {"user": {}, "error": why}}
        case "SelfSubjectAccessReview":
            return {**raw, "spec": spec, "status": {"allowed": True, "reason": _WHY}}
        case _:
            groups = spec.get("groups") or []
            allowed = spec.get("user") == USER or GROUPS[0] in groups
            status = {"allowed": True, "reason": _WHY} if allowed else {"allowed": False}
            return {**raw, "spec": spec, "status": status}


_RULES: Raw = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}

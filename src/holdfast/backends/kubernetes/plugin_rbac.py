"""What the scheduler's account must be allowed for the plugins that read further kinds of objects."""

from collections.abc import Iterable
from typing import Any

from holdfast.api.raw_objects import ObjectKind

NAME = "holdfast-plugins"
VERBS = ("get", "list", "watch")
_API = "rbac.authorization.k8s.io"


def rules(kinds: Iterable[ObjectKind]) -> list[dict[str, Any]]:
    """One for each API group, of a ClusterRole."""
    plurals: dict[str, list[str]] = {}
    for kind in kinds:
        of_group = plurals.setdefault(kind.group, [])
        if kind.plural not in of_group:
            of_group.append(kind.plural)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(VERBS)}
        for group, resources in plurals.items()
    ]


def plugin_rbac(kinds: Iterable[ObjectKind], namespace: str, account: str) -> list[dict[str, Any]]:
    """A ClusterRole with these rules, and its binding to a ServiceAccount."""
    return [
        {
            "apiVersion": f"{_API}/v1",
            "kind": "ClusterRole",
            "metadata": _metadata(),
            "rules": rules(kinds),
        },
        {
            "apiVersion": f"{_API}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _metadata(),
            "roleRef": {"apiGroup": _API, "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]


def _metadata() -> dict[str, Any]:
    return {"name": NAME, "labels": {"app.kubernetes.io/name": "holdfast"}}

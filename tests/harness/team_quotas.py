"""A plugin that reads a custom resource, for tests of every way its objects come in.

A pod labelled `team` needs a TeamQuota of that name in its namespace. It goes only to nodes on which
less than `spec.maxCPU` cores are claimed; a team that is `closed` is not scheduled at all.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

from holdfast.api.raw_objects import ObjectKind, RawObject, raw_object
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.slots import CPU
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.interface import Filter, Plugin, Reason, Rejected, Scope

QUOTA = ObjectKind("example.com", "v1", "TeamQuota", "teamquotas")
FULL = "node(s) were full for the team"


class TeamQuotas(Plugin):
    name = "TeamQuotas"
    wakes_on = Change.NODE_ADDED
    reads_objects: ClassVar[tuple[ObjectKind, ...]] = (QUOTA,)

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        team = cls.labels.get("team")
        if team is None:
            return None
        quota = self.handle.objects(QUOTA).get((cls.namespace, team))
        if quota is None:
            return Rejected(f"no TeamQuota {team}")
        if quota["spec"].get("closed"):
            return Rejected(f"TeamQuota {team} is closed")
        most = int(quota["spec"]["maxCPU"]) * 1000

        def passes(view: View) -> Cells:
            return view.claimed(CPU) < most

        return Filter(passes, lambda view: [Reason(FULL, view.full(True))], Scope.USAGE)


def quota(name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": QUOTA.api_version,
        "kind": QUOTA.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"maxCPU": 1, **spec},
    }


def quota_object(name: str, namespace: str = "default", uid: str = "1", **spec: Any) -> RawObject:
    raw = quota(name, namespace, **spec)
    raw["metadata"]["uid"] = uid
    return raw_object(QUOTA.info(), raw)


def quota_definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "teamquotas.example.com"},
        "spec": {
            "group": QUOTA.group,
            "scope": "Namespaced",
            "names": {
                "kind": QUOTA.kind,
                "listKind": "TeamQuotaList",
                "plural": QUOTA.plural,
                "singular": "teamquota",
            },
            "versions": [version],
        },
    }


def config() -> dict[str, Any]:
    """A configuration with the plugin on."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": TeamQuotas.name}]}}}],
    }


def install(folder: Path) -> dict[str, str]:
    """Makes the plugin one of an installed package; the environment of processes that shall find it.
    Its configuration is config.yaml there."""
    package = folder / "team_quotas-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: team-quotas\nVersion: 1.0\n")
    entry = f"{TeamQuotas.name} = harness.team_quotas:{TeamQuotas.__name__}"
    (package / "entry_points.txt").write_text(f"[holdfast.scheduler.plugins]\n{entry}\n")
    (folder / "config.yaml").write_text(json.dumps(config()))
    parts = [str(folder), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, parts))}

"""Configurations in which kube-scheduler of some version and Holdfast, which follows 1.37, agree.

What an older version does differently is disabled on both sides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from realserver.server import RealServer

Json = dict[str, Any]

_DYNAMIC_RESOURCES = "DynamicResources"
"""It adds words of its own to messages before 1.37. In 1.37 it ends preemption with the words `not
found` where an earlier plugin has rejected the pod in PreFilter."""
_FOUND = " preemption: found a potential placement"


class Comparison(NamedTuple):
    kube: Json
    ours: Json
    minor: int

    def same(self, message: str) -> str:
        """Our message as that version words it."""
        return message if self.minor >= 37 else message.partition(_FOUND)[0]


def minor_version(server: RealServer) -> int:
    return int(str(server.client.request("GET", "/version")["minor"]).rstrip("+"))


def comparison(server: RealServer) -> Comparison:
    minor = minor_version(server)
    both = ["NodeResourcesBalancedAllocation", "ImageLocality"] if minor < 36 else []
    ours: Json = {"multiPoint": _disabled(both)}
    if minor < 37:
        ours["score"] = _disabled(["VolumeBinding"])
    return Comparison(
        {
            "percentageOfNodesToScore": 100,
            **_profile({"multiPoint": _disabled([*both, _DYNAMIC_RESOURCES])}),
        },
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            **_profile(ours),
        },
        minor,
    )


def _disabled(names: list[str]) -> Json:
    return {"disabled": [{"name": name} for name in names]}


def _profile(plugins: Json) -> Json:
    return {"profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}]}

"""A registry as kube-scheduler's and Holdfast's plugins would make it, and short ways to load."""

from typing import Any

from holdfast.scheduler.framework.config import API_VERSION, KIND, ConfigError, Configuration, load

_SERVED = {
    "preEnqueue": "SchedulingGates DefaultPreemption Coscheduling",
    "queueSort": "PrioritySort OtherSort",
    "preFilter": "NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits "
    "VolumeBinding VolumeZone PodTopologySpread InterPodAffinity Reservation",
    "filter": "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit "
    "VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread "
    "InterPodAffinity Reservation LimitAware NodeDeclaredFeatures Custom",
    "postFilter": "DefaultPreemption ReservationPreemption",
    "preScore": "TaintToleration NodeAffinity NodeResourcesFit PodTopologySpread "
    "InterPodAffinity NodeResourcesBalancedAllocation",
    "score": "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread "
    "InterPodAffinity NodeResourcesBalancedAllocation ImageLocality Reservation LimitAware Custom",
    "reserve": "VolumeBinding Reservation DynamicReservation",
    "permit": "Coscheduling",
    "preBind": "VolumeBinding Reservation DynamicReservation",
    "bind": "DefaultBinder Reservation",
    "postBind": "Coscheduling",
}

IMPLEMENTS: dict[str, frozenset[str]] = {}
for _point, _names in _SERVED.items():
    for _name in _names.split():
        IMPLEMENTS[_name] = IMPLEMENTS.get(_name, frozenset()) | {_point}

HEAD = {"apiVersion": API_VERSION, "kind": KIND}


def loaded(**fields: Any) -> Configuration:
    return load(HEAD | fields, IMPLEMENTS)


def problems(**fields: Any) -> list[str]:
    """What is wrong with a file of these fields, one line each; empty if nothing is."""
    return problems_of(HEAD | fields)


def problems_of(mapping: Any) -> list[str]:
    try:
        load(mapping, IMPLEMENTS)
    except ConfigError as error:
        assert str(error).splitlines() == [": ".join(filter(None, p)) for p in error.problems]
        return str(error).splitlines()
    return []

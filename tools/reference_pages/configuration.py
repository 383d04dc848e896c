"""The configuration file: every field with its default, the actions, and the arguments of plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect as shapes

from holdfast.api.times import format_duration
from holdfast.scheduler.framework.config import actions, args, document
from holdfast.scheduler.framework.config.plugin_sets import DEFAULT_PLUGINS, EXTENSION_POINTS
from holdfast.scheduler.plugins import registry
from reference_pages.markdown import code, page, table

_INTRODUCTION = """\
The file is kube-scheduler's `KubeSchedulerConfiguration` (`kubescheduler.config.k8s.io/v1`) with three more fields:
`actions`, `configurations` and `dynamicReservation`. `holdfast config default` prints all of it,
`holdfast config validate` reports errors with their path. Unknown fields are errors. A file of Volcano (with
`actions` and without `kind`) is read too.

A duration is a number of seconds or a string such as `10m`.
"""

MEANINGS: Mapping[str, str] = {
    "apiVersion": "`kubescheduler.config.k8s.io/v1`",
    "kind": "`KubeSchedulerConfiguration`",
    "parallelism": "accepted, no effect: nodes are filtered by vector operations",
    "leaderElection.leaderElect": "schedule only while holding the lease; `--leader-elect` takes precedence",
    "leaderElection.leaseDuration": "how long a lease is valid after its last renewal",
    "leaderElection.renewDeadline": "a leader that has not renewed for this long stops writing",
    "leaderElection.retryPeriod": "how often the leader renews",
    "leaderElection.resourceLock": "only `leases`",
    "leaderElection.resourceName": "the name of the Lease",
    "leaderElection.resourceNamespace": "its namespace; the chart sets that of the release",
    "clientConnection.kubeconfig": "the kubeconfig; `--kubeconfig` takes precedence",
    "clientConnection.acceptContentTypes": "accepted, no effect: Holdfast uses JSON",
    "clientConnection.contentType": "accepted, no effect: Holdfast uses JSON",
    "clientConnection.qps": "writes per second; negative for no limit",
    "clientConnection.burst": "writes that may exceed `qps` for a moment",
    "enableProfiling": "accepted, no effect",
    "enableContentionProfiling": "accepted, no effect; default: as `enableProfiling`",
    "percentageOfNodesToScore": "accepted, no effect: all feasible nodes are scored",
    "podInitialBackoffSeconds": "the first back-off of a pod whose attempt failed",
    "podMaxBackoffSeconds": "the longest back-off; it doubles up to this",
    "profiles": "see [profiles](#profiles)",
    "extenders": "must be empty: HTTP extenders are not supported; write a [plugin](../plugins.md)",
    "delayCacheUntilActive": "accepted, no effect: a follower always has a warm cache",
    "actions": "see [actions](#actions)",
    "configurations": "arguments of actions, in Volcano's form: a list of `name` and `arguments`",
    "dynamicReservation.provisioner": "what creates the reservations that pods request by template: the scheduler, or another process",
    "dynamicReservation.provisionTimeout": "how long a reservation may take to be created",
    "dynamicReservation.virtualRetention": "how long the capacity is kept for the next attempt after a request failed",
    "dynamicReservation.onFailure": "`Requeue`: the pod is tried again; `Bind`: it is bound without a reservation",
    "profiles[].schedulerName": "pods choose the profile by `spec.schedulerName`; default `holdfast-scheduler`",
    "profiles[].percentageOfNodesToScore": "accepted, no effect",
    "profiles[].plugins": "`enabled` and `disabled` plugins per extension point, or for all in `multiPoint`",
    "profiles[].pluginConfig": "`name` and `args` of plugins; see [arguments of plugins](#arguments-of-plugins)",
    "reserve.starvingJobTimeThreshold": "a job that is pending for longer than this starves",
    "reserve.reservedNodePercent": "at most this percentage of all nodes, rounded up, has starvation holds",
    "reserve.hold": "`node`: a held node takes no new pods; `amount`: only the requested amount is held",
    "backfill.learnRunTimes": "jobs that often exceed their run-time estimates are planned with their real "
    "length",
    "reserve.backfill": "pods with a run-time estimate may use held capacity: `conservative`, or true, until it is "
    "needed; `easy`, that held for the first starving job until it is needed, and that for others at any time",
    "Coscheduling.permitWaitingTimeSeconds": "how long a job may be pending before `ScheduleTimeout` is reported; unset: not limited",
    "Coscheduling.defaultTimeout": "the same, as Koordinator spells it",
    "Coscheduling.podGroupBackoffSeconds": "accepted, no effect",
    "Coscheduling.controllerWorkers": "accepted, no effect",
    "Coscheduling.skipCheckScheduleCycle": "accepted, no effect",
    "Coscheduling.enablePreemption": "accepted, no effect: the action `preempt` decides",
    "Coscheduling.awareNetworkTopology": "accepted, no effect",
    "Coscheduling.defaultMatchPolicy": "accepted, no effect: the annotation of a gang decides",
    "DefaultPreemption.minCandidateNodesPercentage": "preemption compares at least this percentage of the nodes",
    "DefaultPreemption.minCandidateNodesAbsolute": "and at least this many nodes",
    "DefaultPreemption.holdRoom": "whether a [preemption hold](../reservations.md#preemption-holds) keeps what victims release",
    "DeviceShare.allocator": "accepted, no effect",
    "DeviceShare.scoringStrategy": "see [scoring strategies](../gpu.md#scoring-strategies)",
    "DeviceShare.disableDeviceNUMATopologyAlignment": "do not align devices with the NUMA nodes of the pod's CPUs",
    "DeviceShare.gpuSharedResourceTemplatesConfig": "accepted, no effect",
    "DynamicResources.filterTimeout": "accepted, no effect: allocating devices on a node is bounded in steps",
    "DynamicResources.bindingTimeout": "how long devices with binding conditions may take to be ready",
    "InterPodAffinity.hardPodAffinityWeight": "weight of a required affinity of existing pods in the score",
    "InterPodAffinity.ignorePreferredTermsOfExistingPods": "whether preferred terms of existing pods count only if the new pod has some",
    "LimitAware.resources": "resources in the score, with their weights",
    "LimitAware.scoringResourceWeights": "the same as a mapping",
    "LimitAware.defaultLimitToAllocatableRatio": "the bound per resource in percent of allocatable: [limit-aware scheduling](../limit-aware.md)",
    "NodeAffinity.addedAffinity": "a NodeAffinity that applies to every pod of the profile",
    "NodeNUMAResource.defaultCPUBindPolicy": "how CPUs are chosen for pods that have no policy: [NUMA](../numa.md)",
    "NodeNUMAResource.scoringStrategy": "how nodes are scored: `LeastAllocated` or `MostAllocated`",
    "NodeNUMAResource.numaScoringStrategy": "how NUMA nodes are chosen",
    "NodeResourcesBalancedAllocation.resources": "resources whose utilization is balanced",
    "NodeResourcesFit.ignoredResources": "extended resources that are not compared",
    "NodeResourcesFit.ignoredResourceGroups": "groups of extended resources that are not compared",
    "NodeResourcesFit.scoringStrategy": "`LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`, with `resources` and `requestedToCapacityRatio.shape`",
    "PodTopologySpread.defaultConstraints": "constraints of pods that have none; needs `defaultingType: List`",
    "PodTopologySpread.defaultingType": "`System`: kube-scheduler's default constraints",
    "Reservation.enablePreemption": "accepted, no effect: see ReservationPreemption",
    "Reservation.minCandidateNodesPercentage": "accepted, no effect",
    "Reservation.minCandidateNodesAbsolute": "accepted, no effect",
    "Reservation.controllerWorkers": "accepted, no effect",
    "Reservation.gcDurationSeconds": "finished reservations are deleted after this time",
    "Reservation.gcIntervalSeconds": "accepted, no effect: each is deleted when its time has come",
    "Reservation.disableGarbageCollection": "keep finished reservations",
    "Reservation.resyncIntervalSeconds": "accepted, no effect",
    "Reservation.preAllocationConfig": "accepted, no effect",
    "Reservation.ignoredResources": "resources that owners of a `Restricted` reservation may take from the node",
    "Reservation.ignoredResourceGroups": "groups of such resources",
    "Reservation.reservationSelectorIndex": "accepted, no effect",
    "ReservationPreemption.eviction": "`Delete`: the pods of a preempted reservation are evicted; `Soft`: it is only labelled",
    "ReservationPreemption.softEvictor": "whether Holdfast itself evicts the pods of labelled reservations",
    "VolumeBinding.bindTimeoutSeconds": "how long volumes may take to be bound",
    "VolumeBinding.shape": "the score by the percentage used of a volume, or of storage capacity",
}
"""What each field means, by its path."""


def text() -> str:
    return page(
        "Configuration",
        _INTRODUCTION,
        "## Fields\n",
        _table(dict(_of(document.ConfigurationDocument))),
        "## Profiles\n",
        _table(dict(_of(document.ProfileDocument, "profiles[]."))),
        f"Extension points: {', '.join(map(code, EXTENSION_POINTS))}, and `multiPoint` for all of them.\n",
        "Default plugins, in order, and the extension points that they implement:\n",
        _plugins(),
        "## Actions\n",
        "A round runs the listed actions in order; one that is not listed does not run. The default is all of "
        "them:\n",
        _actions(),
        "## Arguments of plugins\n",
        *_arguments(),
    )


def fields() -> dict[str, shapes.Field]:
    """Every field of the file, by its path."""
    found = dict(_of(document.ConfigurationDocument)) | dict(
        _of(document.ProfileDocument, "profiles[].")
    )
    for name, struct in actions._ARGUMENTS.items():
        found |= _of(struct, f"{name}.")
    for plugin, typed in args._TYPED.items():
        found |= dict(_of(typed.given, f"{plugin}.", deep=False))
    return found


def _of(cls: type[Any], prefix: str = "", deep: bool = True) -> Iterator[tuple[str, shapes.Field]]:
    shape = shapes.type_info(cls)
    assert isinstance(shape, shapes.StructType)
    for field in shape.fields:
        path = f"{prefix}{field.encode_name}"
        if deep and isinstance(field.type, shapes.StructType) and field.encode_name != "plugins":
            yield from _of(field.type.cls, f"{path}.")
        else:
            yield path, field


def _table(rows: Mapping[str, shapes.Field], prefix: str = "") -> str:
    return table(
        ("field", "type", "default", "meaning"),
        [
            (
                code(path.removeprefix(prefix)),
                _type(field.type),
                _default(field),
                MEANINGS.get(path, ""),
            )
            for path, field in rows.items()
        ],
    )


def _plugins() -> str:
    implements = registry().implements()
    rows = []
    for ref in DEFAULT_PLUGINS:
        points = [point for point in EXTENSION_POINTS if point in implements.get(ref.name, ())]
        scores = "score" in points
        rows.append((code(ref.name), str(ref.weight or 1) if scores else "", ", ".join(points)))
    return table(("plugin", "weight", "extension points"), rows)


def _actions() -> str:
    rows = []
    for name, struct in actions._ARGUMENTS.items():
        own = dict(_of(struct, f"{name}."))
        rows += [(code(name), "", "", "", "")] if not own else []
        rows += [
            (
                code(name),
                code(field.encode_name),
                _type(field.type),
                _default(field),
                MEANINGS.get(path, ""),
            )
            for path, field in own.items()
        ]
    return table(("action", "argument", "type", "default", "meaning"), rows)


def _arguments() -> Iterator[str]:
    yield (
        "Plugins that are not listed have no arguments. `args` may have `apiVersion` and `kind: <plugin>Args`, as in "
        "kube-scheduler.\n"
    )
    for plugin, typed in args._TYPED.items():
        yield f"### {plugin}\n"
        yield _table(dict(_of(typed.given, f"{plugin}.", deep=False)), f"{plugin}.")


def _type(shape: shapes.Type) -> str:
    match shape:
        case shapes.Metadata(extra=extra) if extra:
            return "duration"
        case shapes.Metadata(type=inner):
            return _type(inner)
        case shapes.UnionType(types=types):
            known = [each for each in types if not isinstance(each, shapes.NoneType)]
            return ", ".join(_type(each) for each in known)
        case shapes.LiteralType(values=values):
            return ", ".join(code(value) for value in values if value)
        case shapes.VarTupleType():
            return "list"
        case shapes.DictType() | shapes.StructType():
            return "mapping"
        case shapes.BoolType():
            return "boolean"
        case shapes.IntType():
            return "integer"
        case shapes.FloatType():
            return "number"
        case shapes.StrType():
            return "string"
        case _:
            return "any"


def _shown(value: object) -> str:
    if isinstance(value, msgspec.Struct) and not hasattr(value, "name"):
        return str(msgspec.json.encode(value).decode())
    return str(getattr(value, "name", value))


def _default(field: shapes.Field) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is msgspec.NODEFAULT or value in (None, "", ()):
        return ""
    if isinstance(field.type, shapes.Metadata) and field.type.extra:
        return code(format_duration(value))
    if isinstance(value, bool):
        return code("true" if value else "false")
    if isinstance(value, msgspec.Struct):
        return code(value.type) if hasattr(value, "type") else ""
    if isinstance(value, tuple):
        return code(", ".join(map(_shown, value)))
    return code(int(value) if isinstance(value, float) and value.is_integer() else value)

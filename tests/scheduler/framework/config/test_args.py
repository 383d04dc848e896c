"""Arguments of plugins: defaults, reading, rules."""

from typing import Any

import pytest

from holdfast.scheduler.framework.config import (
    CoschedulingArgs,
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    LimitAwareArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    ReservationArgs,
    ReservationPreemptionArgs,
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
    SpreadConstraint,
    VolumeBindingArgs,
)
from scheduler.framework.config.loading import loaded, problems

HOSTNAME = "kubernetes.io/hostname"
SPREAD = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway"}
POINT = {"utilization": 0, "score": 10}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ADDED = {
    REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
}


def configured(plugin: str, args: Any) -> list[dict[str, Any]]:
    return [{"pluginConfig": [{"name": plugin, "args": args}]}]


def args_of(plugin: str, args: Any) -> Any:
    return loaded(profiles=configured(plugin, args)).profiles[0].args[plugin]


CPU, MEMORY = ResourceWeight("cpu", 1), ResourceWeight("memory", 1)


def test_enabled_plugins_get_their_defaults() -> None:
    assert loaded().profiles[0].args == {
        "Coscheduling": CoschedulingArgs(),
        "DefaultPreemption": DefaultPreemptionArgs(10, 100),
        "DynamicReservation": {},
        "InterPodAffinity": InterPodAffinityArgs(1, False),
        "LimitAware": LimitAwareArgs((CPU, MEMORY), {}),
        "NodeAffinity": NodeAffinityArgs(None),
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs((CPU, MEMORY)),
        "NodeResourcesFit": NodeResourcesFitArgs(
            (), (), ScoringStrategy("LeastAllocated", (CPU, MEMORY), None)
        ),
        "PodTopologySpread": PodTopologySpreadArgs((), "System"),
        "Reservation": ReservationArgs(
            enable_preemption=False,
            min_candidate_nodes_percentage=10,
            min_candidate_nodes_absolute=100,
            controller_workers=1,
            gc_duration_seconds=86400,
            gc_interval_seconds=60,
            disable_garbage_collection=False,
            resync_interval_seconds=60,
        ),
        "ReservationPreemption": ReservationPreemptionArgs("Delete", False),
        "VolumeBinding": VolumeBindingArgs(600, (ShapePoint(0, 10), ShapePoint(100, 0))),
    }


@pytest.mark.parametrize(
    ("plugin", "args", "expected"),
    [
        ("NodeResourcesFit", None, NodeResourcesFitArgs()),
        (
            "NodeResourcesFit",
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "NodeResourcesFitArgs",
                "ignoredResources": ["example.com/foo"],
                "ignoredResourceGroups": ["example.org"],
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 5}, {"name": "nvidia.com/gpu"}],
                },
            },
            NodeResourcesFitArgs(
                ("example.com/foo",),
                ("example.org",),
                ScoringStrategy(
                    "MostAllocated", (ResourceWeight("cpu", 5), ResourceWeight("nvidia.com/gpu", 1))
                ),
            ),
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "LeastAllocated", "resources": []}},
            NodeResourcesFitArgs(),
        ),
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu", "weight": 0}]},
            NodeResourcesBalancedAllocationArgs((CPU,)),
        ),
        (
            "NodeAffinity",
            {"addedAffinity": ADDED},
            NodeAffinityArgs(ADDED),
        ),
        (
            "PodTopologySpread",
            {"defaultingType": "List", "defaultConstraints": [SPREAD | {"minDomains": 2}]},
            PodTopologySpreadArgs(
                (SpreadConstraint(1, HOSTNAME, "ScheduleAnyway", min_domains=2),), "List"
            ),
        ),
        (
            "InterPodAffinity",
            {"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": True},
            InterPodAffinityArgs(0, True),
        ),
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0},
            DefaultPreemptionArgs(0, 100),
        ),
        (
            "VolumeBinding",
            {"bindTimeoutSeconds": 0, "shape": [POINT]},
            VolumeBindingArgs(0, (ShapePoint(0, 10),)),
        ),
        ("VolumeBinding", {"shape": []}, VolumeBindingArgs()),
        (
            "LimitAware",
            {
                "resources": [{"name": "cpu", "weight": 2}],
                "scoringResourceWeights": {"memory": 0, "cpu": 2},
                "defaultLimitToAllocatableRatio": {"cpu": "125%", "memory": 150},
            },
            LimitAwareArgs((ResourceWeight("cpu", 2), MEMORY), {"cpu": 125, "memory": 150}),
        ),
        (
            "ReservationPreemption",
            {"eviction": "Soft", "softEvictor": True},
            ReservationPreemptionArgs("Soft", True),
        ),
        ("DynamicReservation", {"kind": "DynamicReservationArgs", "any": [1]}, {"any": [1]}),
        (
            "Coscheduling",
            {"kind": "CoschedulingArgs", "permitWaitingTimeSeconds": 60, "podGroupBackoffSeconds": 5},
            CoschedulingArgs(permit_waiting_time_seconds=60, pod_group_backoff_seconds=5),
        ),
        (
            "Coscheduling",
            {"defaultTimeout": "10m", "controllerWorkers": 2, "enablePreemption": True},
            CoschedulingArgs(default_timeout=600, controller_workers=2, enable_preemption=True),
        ),
        (
            "Custom",
            {"kind": "Whatever", "depth": {"x": 1}},
            {"kind": "Whatever", "depth": {"x": 1}},
        ),
    ],
)
def test_arguments_are_read(plugin: str, args: Any, expected: Any) -> None:
    assert args_of(plugin, args) == expected


def _ratio(*points: tuple[int, int]) -> dict[str, Any]:
    shape = [{"utilization": x, "score": y} for x, y in points]
    strategy = {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}
    return {"scoringStrategy": strategy}


@pytest.mark.parametrize(
    ("plugin", "args", "expected"),
    [
        ("NodeResourcesFit", [1], [": expected a mapping, got a list"]),
        ("Custom", "x", [': expected a mapping, got "x"']),
        (
            "NodeResourcesFit",
            {"kind": "NodeResourcesFit"},
            ['.kind: must be "NodeResourcesFitArgs", got "NodeResourcesFit"'],
        ),
        (
            "DeviceShare",
            {"apiVersion": "v2"},
            ['.apiVersion: must be "kubescheduler.config.k8s.io/v1", got "v2"'],
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategi": {}},
            ['.scoringStrategi: unknown field; did you mean "scoringStrategy"?'],
        ),
        ("NodeResourcesFit", {"scoringStrategy": {}}, [".scoringStrategy.type: required"]),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "leastAllocated"}},
            [
                ".scoringStrategy.type: expected one of LeastAllocated, MostAllocated, "
                'RequestedToCapacityRatio, got "leastAllocated"; did you mean "LeastAllocated"?'
            ],
        ),
        (
            "NodeResourcesFit",
            {
                "scoringStrategy": {
                    "type": "LeastAllocated",
                    "resources": [{"name": "cpu", "weight": 101}, {"name": "cpu"}],
                }
            },
            [
                '.scoringStrategy.resources[1].name: "cpu" is already given in '
                "profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].name",
                ".scoringStrategy.resources[0].weight: must be between 1 and 100, got 101",
            ],
        ),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
            [
                ".scoringStrategy.requestedToCapacityRatio: required for the type "
                "RequestedToCapacityRatio"
            ],
        ),
        (
            "NodeResourcesFit",
            _ratio(),
            [".scoringStrategy.requestedToCapacityRatio.shape: at least one point is needed"],
        ),
        (
            "NodeResourcesFit",
            _ratio((0, 0), (50, 5), (50, 10)),
            [
                ".scoringStrategy.requestedToCapacityRatio.shape[2].utilization: must be greater "
                "than the one before, 50"
            ],
        ),
        (
            "NodeResourcesFit",
            _ratio((101, 11)),
            [
                ".scoringStrategy.requestedToCapacityRatio.shape[0].utilization: must be between "
                "0 and 100, got 101",
                ".scoringStrategy.requestedToCapacityRatio.shape[0].score: must be between "
                "0 and 10, got 11",
            ],
        ),
        (
            "NodeResourcesFit",
            {"ignoredResources": ["-cpu"], "ignoredResourceGroups": ["example.com/foo"]},
            [
                '.ignoredResources[0]: Invalid value: "-cpu": name part must consist of alphanumeric '
                "characters, '-', '_' or '.', and must start and end with an alphanumeric character "
                "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
                "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                '.ignoredResourceGroups[0]: "example.com/foo" is a resource; a group is what '
                "comes before the slash",
            ],
        ),
        (
            "NodeResourcesBalancedAllocation",
            {"resources": [{"name": "cpu", "weight": 2}]},
            [".resources[0].weight: must be 1, got 2"],
        ),
        (
            "NodeAffinity",
            {"addedAffinity": {"requiredDuringScheduling": {}}},
            [
                ".addedAffinity.requiredDuringScheduling: unknown field; did you mean "
                '"requiredDuringSchedulingIgnoredDuringExecution"?'
            ],
        ),
        (
            "NodeAffinity",
            {
                "addedAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": {}}, {"match": []}]},
                    PREFERRED: [{"weight": "high", "preference": {}}],
                }
            },
            [
                f".addedAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions: expected a list, "
                "got a mapping",
                f".addedAffinity.{REQUIRED}.nodeSelectorTerms[1].match: unknown field; did you mean "
                '"matchFields"?',
                f'.addedAffinity.{PREFERRED}[0].weight: expected an integer, got "high"',
            ],
        ),
        (
            "NodeAffinity",
            {
                "addedAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Inn", "values": ["b"]}]},
                            {"matchFields": [{"key": "name", "operator": "In", "values": ["b"]}]},
                        ]
                    },
                    PREFERRED: [
                        {"weight": 0, "preference": {"matchExpressions": [{"operator": "In"}]}},
                        {
                            "weight": 1,
                            "preference": {"matchExpressions": [{"key": "a", "operator": "In"}]},
                        },
                    ],
                }
            },
            [
                f".addedAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator: "
                'Unsupported value: "Inn": supported values: "DoesNotExist", "Exists", "Gt", "In", '
                '"Lt", "NotIn"',
                f".addedAffinity.{REQUIRED}.nodeSelectorTerms[1].matchFields[0].key: must be "
                '"metadata.name", got "name"',
                f".addedAffinity.{PREFERRED}[1].preference.matchExpressions[0].values: Invalid value: "
                "null: for 'in', 'notin' operators, values set can't be empty",
            ],
        ),
        (
            "PodTopologySpread",
            {"defaultConstraints": [SPREAD]},
            [".defaultingType: must be List when defaultConstraints are given"],
        ),
        (
            "PodTopologySpread",
            {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0}]},
            [
                ".defaultConstraints[0].maxSkew: must be at least 1, got 0",
                ".defaultConstraints[0].topologyKey: required",
                ".defaultConstraints[0].whenUnsatisfiable: required",
            ],
        ),
        (
            "PodTopologySpread",
            {
                "defaultingType": "List",
                "defaultConstraints": [SPREAD, SPREAD | {"labelSelector": {}}],
            },
            [
                ".defaultConstraints[1].labelSelector: must not be given, as it is deduced for "
                "each pod",
                ".defaultConstraints[1]: has the topologyKey and whenUnsatisfiable of "
                "profiles[0].pluginConfig[0].args.defaultConstraints[0]",
            ],
        ),
        (
            "InterPodAffinity",
            {"hardPodAffinityWeight": 101},
            [".hardPodAffinityWeight: must be between 0 and 100, got 101"],
        ),
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            [".minCandidateNodesPercentage: must not be 0 while minCandidateNodesAbsolute is 0"],
        ),
        (
            "DefaultPreemption",
            {"minCandidateNodesAbsolute": -1},
            [".minCandidateNodesAbsolute: must be at least 0, got -1"],
        ),
        (
            "VolumeBinding",
            {"bindTimeoutSeconds": -1},
            [".bindTimeoutSeconds: must be at least 0, got -1"],
        ),
        (
            "LimitAware",
            {
                "resources": [{"name": "cpu", "weight": 2}],
                "scoringResourceWeights": {"cpu": 3},
                "defaultLimitToAllocatableRatio": {"cpu": "1.25", "memory": -1},
            },
            [
                ".scoringResourceWeights[cpu]: is 3, but "
                "profiles[0].pluginConfig[0].args.resources has 2",
                ".defaultLimitToAllocatableRatio[cpu]: expected a percentage such as "
                '"125%" or 125, got "1.25"',
                ".defaultLimitToAllocatableRatio[memory]: expected a percentage such as "
                '"125%" or 125, got -1',
            ],
        ),
        (
            "Reservation",
            {"gcDurationSecond": 1, "controllerWorkers": 0},
            [
                '.gcDurationSecond: unknown field; did you mean "gcDurationSeconds"?',
                ".controllerWorkers: must be at least 1, got 0",
            ],
        ),
        (
            "ReservationPreemption",
            {"eviction": "soft"},
            ['.eviction: expected Delete or Soft, got "soft"; did you mean "Soft"?'],
        ),
    ],
)
def test_argument_faults_have_their_full_path(plugin: str, args: Any, expected: list[str]) -> None:
    prefix = "profiles[0].pluginConfig[0].args"
    assert problems(profiles=configured(plugin, args)) == [prefix + each for each in expected]


def test_arguments_for_one_plugin_are_given_once() -> None:
    config = [{"name": "Custom"}, {"name": "Custom"}]
    assert problems(profiles=[{"pluginConfig": config}]) == [
        'profiles[0].pluginConfig[1].name: "Custom" already has its arguments'
    ]


def test_arguments_for_an_unknown_plugin_are_refused() -> None:
    assert problems(profiles=configured("NodeResourceFit", {})) == [
        'profiles[0].pluginConfig[0].name: unknown plugin "NodeResourceFit"; '
        'did you mean "NodeResourcesFit"?'
    ]


def test_arguments_for_a_known_plugin_that_is_not_here_are_warned_of() -> None:
    assert loaded(profiles=configured("DeviceShare", {})).warnings == (
        'profiles[0].pluginConfig[0].name: has no effect: plugin "DeviceShare" is not available here',
    )

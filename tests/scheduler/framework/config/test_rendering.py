"""The effective configuration as a mapping: complete, and loadable again to the same."""

import json
from typing import Any

import pytest

from holdfast.scheduler.framework.config import default_configuration, load, to_mapping
from scheduler.framework.config.loading import HEAD, IMPLEMENTS, loaded


def test_default_configuration_loads_to_what_an_empty_file_does() -> None:
    mapping = default_configuration(IMPLEMENTS)
    assert load(mapping, IMPLEMENTS) == load(HEAD, IMPLEMENTS)
    assert to_mapping(load(mapping, IMPLEMENTS)) == mapping


def test_default_configuration_is_plain_and_complete() -> None:
    mapping = default_configuration(IMPLEMENTS, "mine")
    assert json.loads(json.dumps(mapping)) == mapping
    assert mapping["leaderElection"]["leaseDuration"] == "15s"
    assert mapping["dynamicReservation"] == {
        "provisioner": "builtin",
        "provisionTimeout": "10m0s",
        "virtualRetention": "10m0s",
        "onFailure": "Requeue",
    }
    assert mapping["actions"][2] == {
        "name": "reserve",
        "arguments": {
            "starvingJobTimeThreshold": 172800,
            "reservedNodePercent": 50,
            "hold": "node",
            "backfill": False,
        },
    }
    (profile,) = mapping["profiles"]
    assert profile["schedulerName"] == "mine"
    enabled = profile["plugins"]["multiPoint"]["enabled"]
    assert enabled[:2] == [{"name": "SchedulingGates"}, {"name": "PrioritySort"}]
    assert {"name": "Reservation", "weight": 5000} in enabled
    assert profile["pluginConfig"][-1] == {
        "name": "VolumeBinding",
        "args": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "VolumeBindingArgs",
            "bindTimeoutSeconds": 600,
            "shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}],
        },
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"parallelism": 4, "enableProfiling": False, "delayCacheUntilActive": True},
        {"podInitialBackoffSeconds": 2, "podMaxBackoffSeconds": 2},
        {"actions": "allocate, reserve", "configurations": [{"name": "reserve"}]},
        {"actions": [{"name": "reserve", "arguments": {"starvingJobTimeThreshold": "1.5s"}}]},
        {"dynamicReservation": {"provisionTimeout": "1h0.25s", "virtualRetention": 0}},
        {"extenders": []},
        {"percentageOfNodesToScore": 30},
        {
            "profiles": [
                {
                    "schedulerName": "a",
                    "plugins": {
                        "multiPoint": {"disabled": [{"name": "*"}]},
                        "score": {"enabled": [{"name": "Custom", "weight": 3}]},
                        "queueSort": {"enabled": [{"name": "PrioritySort"}]},
                        "bind": {"enabled": [{"name": "DefaultBinder"}]},
                    },
                },
                {
                    "schedulerName": "b",
                    "percentageOfNodesToScore": 0,
                    "plugins": {
                        "multiPoint": {
                            "disabled": [{"name": "NodeAffinity"}],
                            "enabled": [{"name": "Custom"}, {"name": "TaintToleration"}],
                        },
                        "filter": {"disabled": [{"name": "NodeName"}]},
                    },
                    "pluginConfig": [
                        {"name": "Custom", "args": {"kind": "X", "deep": [{"a": 1}]}},
                        {"name": "DynamicReservation", "args": {"raw": None}},
                        {"name": "Coscheduling", "args": {"defaultTimeout": "1m30s"}},
                        {
                            "name": "LimitAware",
                            "args": {"scoringResourceWeights": {"nvidia.com/gpu": 3}},
                        },
                    ],
                },
            ]
        },
    ],
)
def test_effective_configuration_loads_to_the_same(fields: dict[str, Any]) -> None:
    configuration = loaded(**fields)
    again = load(to_mapping(configuration), IMPLEMENTS)
    assert again == configuration

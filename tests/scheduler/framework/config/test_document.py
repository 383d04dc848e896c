"""The file as a whole: its type, its fields, its defaults, and how it is told what is wrong."""

from typing import Any

import pytest

from holdfast.api.errors import HoldfastError
from holdfast.scheduler.framework.config import (
    API_VERSION,
    KIND,
    ClientConnection,
    ConfigError,
    DynamicReservationConfig,
    LeaderElection,
    load,
)
from scheduler.framework.config.loading import HEAD, IMPLEMENTS, loaded, problems, problems_of

V1 = '"kubescheduler.config.k8s.io/v1"'


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        (None, ["expected a mapping, got nothing"]),
        (["a"], ["expected a mapping, got a list"]),
        (
            {},
            [f"apiVersion: required: {V1}", 'kind: required: "KubeSchedulerConfiguration"'],
        ),
        (
            {"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": KIND, "nonsense": 1},
            [f"apiVersion: version v1beta3 is not supported; convert the file to {V1}"],
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap"},
            [
                f'apiVersion: must be {V1}, got "v1"',
                'kind: must be "KubeSchedulerConfiguration", got "ConfigMap"',
            ],
        ),
        (
            {"apiVersion": API_VERSION, "kind": 7},
            ['kind: must be "KubeSchedulerConfiguration", got 7'],
        ),
    ],
)
def test_only_this_kind_and_version_is_read(mapping: Any, expected: list[str]) -> None:
    assert problems_of(mapping) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"paralelism": 1}, 'paralelism: unknown field; did you mean "parallelism"?'),
        ({"Parallelism": 1}, 'Parallelism: unknown field; did you mean "parallelism"?'),
        (
            {"profiles": [{"plugins": {"scoer": {}}}]},
            'profiles[0].plugins.scoer: unknown field; did you mean "score"?',
        ),
        (
            {"profiles": [{"plugins": {"score": {"enable": []}}}]},
            'profiles[0].plugins.score.enable: unknown field; did you mean "enabled"?',
        ),
        (
            {"profiles": [{"plugins": {"score": {"zzz": []}}}]},
            "profiles[0].plugins.score.zzz: unknown field; known: enabled, disabled",
        ),
        (
            {"leaderElection": {"leaderElected": True}},
            'leaderElection.leaderElected: unknown field; did you mean "leaderElect"?',
        ),
        (
            {"dynamicReservation": {"provisionTimout": 1}},
            'dynamicReservation.provisionTimout: unknown field; did you mean "provisionTimeout"?',
        ),
    ],
)
def test_unknown_field_is_named_with_its_path_and_the_nearest_name(
    fields: dict[str, Any], expected: str
) -> None:
    assert problems(**fields) == [expected]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"parallelism": "16"}, 'parallelism: expected an integer, got "16"'),
        ({"parallelism": True}, "parallelism: expected an integer, got true"),
        ({"parallelism": 1.5}, "parallelism: expected an integer, got 1.5"),
        ({"parallelism": 0}, "parallelism: must be at least 1, got 0"),
        ({"parallelism": 10**400}, "parallelism: is too large, got a number out of range"),
        ({"enableProfiling": "yes"}, 'enableProfiling: expected true or false, got "yes"'),
        ({"profiles": {"a": 1}}, "profiles: expected a list, got a mapping"),
        ({"profiles": ["a"]}, 'profiles[0]: expected a mapping, got "a"'),
        (
            {"profiles": [{"schedulerName": ""}]},
            "profiles[0].schedulerName: must not be empty",
        ),
        (
            {"profiles": [{"schedulerName": 5}]},
            "profiles[0].schedulerName: expected a string, got 5",
        ),
        (
            {"percentageOfNodesToScore": 101},
            "percentageOfNodesToScore: must be between 0 and 100, got 101",
        ),
        (
            {"profiles": [{"percentageOfNodesToScore": -1}]},
            "profiles[0].percentageOfNodesToScore: must be between 0 and 100, got -1",
        ),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: must be at least 1, got 0"),
        (
            {"podInitialBackoffSeconds": 20},
            "podMaxBackoffSeconds: must be at least podInitialBackoffSeconds, 20",
        ),
        ({"clientConnection": {"qps": "50"}}, 'clientConnection.qps: expected a number, got "50"'),
        (
            {"clientConnection": {"qps": float("nan")}},
            "clientConnection.qps: expected a number, got nan",
        ),
        ({"clientConnection": {"burst": -1}}, "clientConnection.burst: must be at least 0, got -1"),
    ],
)
def test_wrong_value_is_told_with_what_was_expected(fields: dict[str, Any], expected: str) -> None:
    assert problems(**fields) == [expected]


def test_problems_of_all_sections_are_reported_together() -> None:
    assert problems(
        parallelism="many",
        podMaxBackoffSeconds=0,
        extenders=[{"weight": 1}],
        actions="allocat",
        profiles=[
            {"plugins": {"scoer": {}}, "pluginConfig": [{"name": "Reservatoin"}]},
            {"schedulerName": "b", "plugins": {"filter": {"enabled": [{"name": "NodeNam"}]}}},
        ],
    ) == [
        'parallelism: expected an integer, got "many"',
        "podMaxBackoffSeconds: must be at least 1, got 0",
        'profiles[0].plugins.scoer: unknown field; did you mean "score"?',
        REFUSED_EXTENDERS,
        "profiles[0].schedulerName: required when there are several profiles",
        'profiles[0].pluginConfig[0].name: unknown plugin "Reservatoin"; did you mean "Reservation"?',
        'profiles[1].plugins.filter.enabled[0].name: unknown plugin "NodeNam"; '
        'did you mean "NodeName"?',
        'actions: unknown action "allocat"; did you mean "allocate"?',
    ]


def test_error_carries_paths_and_messages() -> None:
    with pytest.raises(ConfigError) as caught:
        load(HEAD | {"parallelism": 0}, IMPLEMENTS)
    assert caught.value.problems == [("parallelism", "must be at least 1, got 0")]
    assert isinstance(caught.value, HoldfastError)


def test_defaults_are_kube_schedulers() -> None:
    configuration = loaded()
    assert configuration.parallelism == 16
    assert configuration.percentage_of_nodes_to_score == 0
    assert (configuration.pod_initial_backoff, configuration.pod_max_backoff) == (1.0, 10.0)
    assert configuration.enable_profiling and configuration.enable_contention_profiling
    assert not configuration.delay_cache_until_active
    assert configuration.warnings == ()
    assert configuration.leader_election == LeaderElection(
        leader_elect=True,
        lease_duration=15,
        renew_deadline=10,
        retry_period=2,
        resource_lock="leases",
        resource_name="holdfast-scheduler",
        resource_namespace="kube-system",
    )
    assert configuration.client_connection == ClientConnection(qps=-1, burst=100)


def test_null_is_absent_and_zero_means_the_default_in_component_sections() -> None:
    assert loaded(parallelism=None, leaderElection=None) == loaded()
    zeros = {"retryPeriod": "0s", "resourceName": "", "leaderElect": False}
    assert loaded(leaderElection=zeros).leader_election == LeaderElection(leader_elect=False)
    assert loaded(clientConnection={"qps": 0, "burst": 0, "contentType": ""}) == loaded()
    assert loaded(clientConnection={"qps": -1}).client_connection.qps == -1


def test_contention_profiling_follows_profiling_unless_given() -> None:
    assert not loaded(enableProfiling=False).enable_contention_profiling
    both = loaded(enableProfiling=False, enableContentionProfiling=True)
    assert both.enable_contention_profiling


def test_sampling_of_nodes_is_accepted_and_said_to_have_no_effect() -> None:
    configuration = loaded(percentageOfNodesToScore=30, profiles=[{"percentageOfNodesToScore": 50}])
    assert configuration.percentage_of_nodes_to_score == 30
    assert configuration.warnings == (
        "percentageOfNodesToScore: has no effect: all feasible nodes are scored",
        "profiles[0].percentageOfNodesToScore: has no effect: all feasible nodes are scored",
    )
    assert loaded(percentageOfNodesToScore=100).warnings == ()


@pytest.mark.parametrize(
    ("election", "expected"),
    [
        ({"leaseDuration": "1h30m", "renewDeadline": 60, "retryPeriod": "1.5s"}, []),
        ({"leaderElect": False, "leaseDuration": "0s", "resourceLock": "endpoints"}, []),
        (
            {"leaseDuration": "10s"},
            ["leaderElection.leaseDuration: must be greater than renewDeadline"],
        ),
        (
            {"retryPeriod": "9s"},
            ["leaderElection.renewDeadline: must be greater than 1.2 times retryPeriod"],
        ),
        (
            {"resourceLock": "endpoints"},
            ['leaderElection.resourceLock: must be "leases", got "endpoints"'],
        ),
        (
            {"leaseDuration": "15"},
            [
                "leaderElection.leaseDuration: expected a number of seconds or a duration such "
                'as 10m, got "15"'
            ],
        ),
        (
            {"leaseDuration": "-15s"},
            ["leaderElection.leaseDuration: must be at least 0, got -15.0"],
        ),
    ],
)
def test_leader_election_leaves_time_to_renew(election: dict[str, Any], expected: list[str]) -> None:
    assert problems(leaderElection=election) == expected


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({}, DynamicReservationConfig("builtin", 600.0, 600.0, "Requeue")),
        (
            {
                "provisioner": "external",
                "provisionTimeout": "90s",
                "virtualRetention": 5,
                "onFailure": "Bind",
            },
            DynamicReservationConfig("external", 90.0, 5.0, "Bind"),
        ),
    ],
)
def test_dynamic_reservation_is_read_into_seconds(
    section: dict[str, Any], expected: DynamicReservationConfig
) -> None:
    assert loaded(dynamicReservation=section).dynamic_reservation == expected


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        (
            {"provisioner": "buildin"},
            'provisioner: expected builtin or external, got "buildin"; did you mean "builtin"?',
        ),
        ({"onFailure": "Retry"}, 'onFailure: expected Bind or Requeue, got "Retry"'),
        ({"onFailure": 1}, "onFailure: expected Bind or Requeue, got 1"),
        (
            {"virtualRetention": "soon"},
            'virtualRetention: expected a number of seconds or a duration such as 10m, got "soon"',
        ),
    ],
)
def test_dynamic_reservation_faults(section: dict[str, Any], expected: str) -> None:
    assert problems(dynamicReservation=section) == [f"dynamicReservation.{expected}"]


REFUSED_EXTENDERS = (
    "extenders: HTTP extenders are not supported: Holdfast makes no network requests while scheduling. "
    "Write a plugin in Python instead (docs/plugins.md) and remove this field"
)


@pytest.mark.parametrize(
    ("extenders", "expected"),
    [
        (None, []),
        ([], []),
        ([{"urlPrefix": "http://x", "filterVerb": "filter"}], [REFUSED_EXTENDERS]),
        ([{"urlPrefix": "http://x", "ignorable": True}], [REFUSED_EXTENDERS]),
        ([{"urlPrefix": "http://x"}, {"urlPrefix": "http://y"}], [REFUSED_EXTENDERS]),
        ([{}], [REFUSED_EXTENDERS]),
        ({"urlPrefix": "http://x"}, ["extenders: expected a list, got a mapping"]),
    ],
)
def test_extenders_are_refused_with_what_to_do_instead(extenders: Any, expected: list[str]) -> None:
    assert problems(extenders=extenders) == expected

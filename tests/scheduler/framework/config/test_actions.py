"""`actions` in both forms, their arguments, and what is taken over from Volcano."""

from typing import Any

import pytest

from holdfast.scheduler.framework.config import load
from scheduler.framework.config.loading import IMPLEMENTS, loaded, problems

RESERVE = {
    "starvingJobTimeThreshold": 172800.0,
    "reservedNodePercent": 50,
    "hold": "node",
    "backfill": False,
}
KNOWN = "allocate, backfill, reserve, preempt, reclaim"


def actions_of(**fields: Any) -> list[tuple[str, Any]]:
    return [(action.name, action.arguments) for action in loaded(**fields).actions]


def test_default_order_and_arguments() -> None:
    assert actions_of() == [
        ("allocate", {}),
        ("backfill", {"learnRunTimes": False}),
        ("reserve", RESERVE),
        ("preempt", {}),
        ("reclaim", {}),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {
            "actions": [
                {"name": "reserve", "arguments": {"reservedNodePercent": 30}},
                {"name": "allocate"},
            ]
        },
        {
            "actions": "reserve, allocate",
            "configurations": [{"name": "reserve", "arguments": {"reservedNodePercent": 30}}],
        },
        {
            "actions": "reserve,allocate,",
            "configurations": [{"name": "reserve", "arguments": {"reservedNodePercent": 30}}],
        },
        {
            "actions": [{"name": "reserve"}, {"name": "allocate", "arguments": None}],
            "configurations": [{"name": "reserve", "arguments": {"reservedNodePercent": 30}}],
        },
    ],
)
def test_both_forms_mean_the_same(fields: dict[str, Any]) -> None:
    assert actions_of(**fields) == [
        ("reserve", RESERVE | {"reservedNodePercent": 30}),
        ("allocate", {}),
    ]


def test_configurations_alone_change_the_default_actions() -> None:
    given = [{"name": "reserve", "arguments": {"hold": "amount"}}]
    assert dict(actions_of(configurations=given))["reserve"] == RESERVE | {"hold": "amount"}


@pytest.mark.parametrize(
    ("threshold", "seconds"), [(600, 600.0), (0.5, 0.5), ("48h", 172800.0), ("1h30m", 5400.0)]
)
def test_threshold_is_a_number_of_seconds_or_a_duration(threshold: Any, seconds: float) -> None:
    arguments = {"starvingJobTimeThreshold": threshold}
    result = actions_of(actions=[{"name": "reserve", "arguments": arguments}])
    assert result == [("reserve", RESERVE | {"starvingJobTimeThreshold": seconds})]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"actions": "alocate, backfill"},
            'actions: unknown action "alocate"; did you mean "allocate"?',
        ),
        (
            {"actions": [{"name": "preempts"}]},
            'actions[0].name: unknown action "preempts"; did you mean "preempt"?',
        ),
        (
            {"actions": [{"name": "zzz"}]},
            f'actions[0].name: unknown action "zzz"; known: {KNOWN}',
        ),
        (
            {"configurations": [{"name": "zzz"}]},
            f'configurations[0].name: unknown action "zzz"; known: {KNOWN}',
        ),
        ({"actions": [{"arguments": {}}]}, "actions[0].name: required"),
        ({"actions": ["allocate"]}, 'actions[0]: expected a mapping, got "allocate"'),
        (
            {"actions": 7},
            "actions: expected a list of actions or comma-separated names, got 7",
        ),
        ({"actions": []}, f"actions: expected at least one of {KNOWN}"),
        ({"actions": "enqueue"}, f"actions: expected at least one of {KNOWN}"),
        ({"actions": "allocate, allocate"}, 'actions: action "allocate" is already given'),
        (
            {"actions": [{"name": "allocate"}, {"name": "allocate"}]},
            'actions[1]: action "allocate" is already given in actions[0]',
        ),
        ({"configurations": "x"}, 'configurations: expected a list, got "x"'),
        (
            {"configurations": [{"name": "reserve"}, {"name": "reserve"}]},
            'configurations[1]: a configuration of "reserve" is already given',
        ),
        (
            {
                "actions": [{"name": "reserve", "arguments": {"hold": "node"}}],
                "configurations": [{"name": "reserve", "arguments": {"hold": "amount"}}],
            },
            "configurations[0].arguments: the arguments of this action are already given in "
            "actions[0].arguments",
        ),
        (
            {"actions": [{"name": "allocate", "argument": {}}]},
            'actions[0].argument: unknown field; did you mean "arguments"?',
        ),
        (
            {"actions": [{"name": "allocate", "arguments": {"hold": "node"}}]},
            "actions[0].arguments.hold: unknown field",
        ),
        (
            {"configurations": [{"name": "reserve", "arguments": {"holds": "node"}}]},
            'configurations[0].arguments.holds: unknown field; did you mean "hold"?',
        ),
        (
            {
                "actions": "allocate",
                "configurations": [{"name": "reserve", "arguments": {"hold": "nod"}}],
            },
            'configurations[0].arguments.hold: expected amount or node, got "nod"; '
            'did you mean "node"?',
        ),
        (
            {"actions": [{"name": "reserve", "arguments": {"reservedNodePercent": 120}}]},
            "actions[0].arguments.reservedNodePercent: must be between 0 and 100, got 120",
        ),
        (
            {"actions": [{"name": "reserve", "arguments": {"starvingJobTimeThreshold": -1}}]},
            "actions[0].arguments.starvingJobTimeThreshold: must be at least 0, got -1",
        ),
        (
            {"actions": [{"name": "reserve", "arguments": {"starvingJobTimeThreshold": 1e300}}]},
            "actions[0].arguments.starvingJobTimeThreshold: expected a number of seconds or a "
            "duration such as 10m, got a number out of range",
        ),
    ],
)
def test_faults_name_the_action_and_the_nearest_known(fields: dict[str, Any], expected: str) -> None:
    assert problems(**fields) == [expected]


def test_volcanos_other_actions_and_their_arguments_are_ignored_with_a_warning() -> None:
    configuration = loaded(
        actions="enqueue, elect, allocate, shuffle",
        configurations=[{"name": "enqueue", "arguments": {"overcommit-factor": 1.0}}],
    )
    assert [action.name for action in configuration.actions] == ["allocate"]
    ignored = "has no counterpart here and is ignored"
    assert set(configuration.warnings) == {
        f'actions: Volcano\'s "enqueue" {ignored}',
        f'actions: Volcano\'s "elect" {ignored}',
        f'actions: Volcano\'s "shuffle" {ignored}',
        f'configurations[0].name: Volcano\'s "enqueue" {ignored}',
    }


def test_arguments_of_an_action_that_does_not_run_are_warned_of() -> None:
    configuration = loaded(actions="allocate", configurations=[{"name": "reserve"}])
    assert configuration.warnings == (
        'configurations[0].arguments: has no effect, since "reserve" is not listed in actions',
    )


def test_volcanos_own_file_is_read_as_it_is() -> None:
    configuration = load(
        {
            "actions": "enqueue, allocate, reserve",
            "tiers": [{"plugins": [{"name": "gang"}]}],
            "configurations": [{"name": "reserve", "arguments": {"reservedNodePercent": 30}}],
        },
        IMPLEMENTS,
    )
    assert [action.name for action in configuration.actions] == ["allocate", "reserve"]
    assert configuration.actions[1].arguments["reservedNodePercent"] == 30
    assert (
        "tiers: is a field of Volcano without a counterpart here; it is ignored"
        in configuration.warnings
    )


@pytest.mark.parametrize(
    "actions",
    ["allocate, backfill, reserve", [{"name": "allocate"}, {"name": "backfill"}, {"name": "reserve"}]],
)
def test_actions_without_preempt_are_cautioned_against(actions: Any) -> None:
    said = 'actions: "preempt" is not listed: no pod preempts another'
    assert loaded(actions=actions).cautions == (said,)
    assert loaded(actions="allocate, backfill, preempt").cautions == loaded().cautions == ()


def test_actions_without_backfill_are_cautioned_against() -> None:
    (said,) = loaded(actions="allocate, preempt").cautions
    assert said.startswith(
        'actions: "backfill" is not listed: before a planned reservation starts, only'
    )


def test_actions_without_allocate_are_cautioned_against() -> None:
    said = 'actions: "allocate" is not listed: no pod is scheduled'
    assert loaded(actions="backfill, reserve, preempt, reclaim").cautions == (said,)


@pytest.mark.parametrize("given", [True, False, "easy", "conservative"])
def test_backfill_is_a_boolean_or_a_policy(given: object) -> None:
    [(_, arguments)] = actions_of(actions=[{"name": "reserve", "arguments": {"backfill": given}}])
    assert arguments["backfill"] == given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("esay", 'expected one of true, false, conservative, easy, got "esay"; did you mean "easy"?'),
        (1, "expected one of true, false, conservative, easy, got 1"),
    ],
)
def test_another_value_of_backfill_is_an_error(given: object, message: str) -> None:
    actions = [{"name": "reserve", "arguments": {"backfill": given}}]
    assert problems(actions=actions) == [f"actions[0].arguments.backfill: {message}"]

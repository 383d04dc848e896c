"""Which plugins run where: defaults, multiPoint, what a point says itself, weights, profiles."""

from typing import Any

import pytest

from holdfast.scheduler.framework.config import (
    EXTENSION_POINTS,
    ConfigError,
    PluginRef,
    ResolvedProfile,
    load,
    resolve_profile,
)
from scheduler.framework.config.loading import HEAD, IMPLEMENTS, loaded, problems


def resolved(**plugins: Any) -> ResolvedProfile:
    return resolve_profile({"plugins": plugins}, IMPLEMENTS)


def names(profile: ResolvedProfile, point: str) -> list[str]:
    return [ref.name for ref in profile.points[point]]


def weights(profile: ResolvedProfile) -> dict[str, int]:
    return {ref.name: ref.weight for ref in profile.points["score"]}


def on(*entries: str | tuple[str, int]) -> dict[str, Any]:
    """An `enabled` list; an entry may come with its weight."""
    pairs = [(entry, None) if isinstance(entry, str) else entry for entry in entries]
    return {"enabled": [{"name": n} | ({"weight": w} if w is not None else {}) for n, w in pairs]}


def off(*entries: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in entries]}


DEFAULT_SCORES = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "VolumeBinding": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "Reservation": 5000,
    "LimitAware": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
SCORES = list(DEFAULT_SCORES)


def test_default_plugins_in_order_with_weights() -> None:
    profile = resolved()
    assert tuple(profile.points) == EXTENSION_POINTS
    assert list(weights(profile).items()) == list(DEFAULT_SCORES.items())
    assert names(profile, "filter") == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "Reservation",
        "LimitAware",
        "NodeDeclaredFeatures",
    ]
    assert names(profile, "preEnqueue") == ["SchedulingGates", "Coscheduling", "DefaultPreemption"]
    assert names(profile, "queueSort") == ["PrioritySort"]
    assert names(profile, "postFilter") == ["ReservationPreemption", "DefaultPreemption"]
    assert names(profile, "bind") == ["Reservation", "DefaultBinder"]
    assert profile.points["bind"][0] == PluginRef("Reservation", 0), "weights are score's alone"


def test_default_plugins_that_are_not_registered_are_absent() -> None:
    few = {name: IMPLEMENTS[name] for name in ("PrioritySort", "NodeName", "DefaultBinder")}
    (profile,) = load(HEAD, few).profiles
    assert {point: names(profile, point) for point in EXTENSION_POINTS if profile.points[point]} == {
        "queueSort": ["PrioritySort"],
        "filter": ["NodeName"],
        "bind": ["DefaultBinder"],
    }
    assert load(HEAD, {}).profiles[0].args == {}


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param({"multiPoint": on(("NodeAffinity", 7))}, SCORES, id="re-weighed in place"),
        pytest.param({"multiPoint": on("Custom")}, [*SCORES, "Custom"], id="new goes last"),
        pytest.param(
            {"multiPoint": off("NodeAffinity", "LimitAware")},
            [name for name in SCORES if name not in ("NodeAffinity", "LimitAware")],
            id="disabled in multiPoint",
        ),
        pytest.param(
            {"multiPoint": off("NodeAffinity") | on("NodeAffinity")},
            [name for name in SCORES if name != "NodeAffinity"] + ["NodeAffinity"],
            id="disabled and enabled again goes last",
        ),
        pytest.param(
            {"multiPoint": off("*") | on("Custom", "PrioritySort", "DefaultBinder")},
            ["Custom"],
            id="all off but those named",
        ),
        pytest.param(
            {"score": off("*") | on("ImageLocality", "Custom")},
            ["ImageLocality", "Custom"],
            id="point has only its own",
        ),
        pytest.param({"score": off("*")}, [], id="point has none"),
        pytest.param(
            {"score": on("ImageLocality", "NodeAffinity")},
            ["ImageLocality", "NodeAffinity"]
            + [name for name in SCORES if name not in ("ImageLocality", "NodeAffinity")],
            id="named at the point come first, in its order",
        ),
        pytest.param(
            {"score": on("Custom", "ImageLocality")},
            ["ImageLocality", *SCORES[:-1], "Custom"],
            id="named at the point alone come last",
        ),
        pytest.param(
            {"score": off("Reservation")},
            [name for name in SCORES if name != "Reservation"],
            id="disabled at the point",
        ),
        pytest.param(
            {"score": off("Reservation") | on("Reservation")},
            [name for name in SCORES if name != "Reservation"] + ["Reservation"],
            id="disabled and enabled at the point counts as its own",
        ),
    ],
)
def test_order_at_a_point(plugins: dict[str, Any], expected: list[str]) -> None:
    assert names(resolved(**plugins), "score") == expected


def test_disabling_at_one_point_leaves_the_others() -> None:
    profile = resolved(score=off("Reservation"))
    assert "Reservation" in names(profile, "filter")
    assert names(profile, "bind") == ["Reservation", "DefaultBinder"]


@pytest.mark.parametrize(
    ("plugins", "name", "weight"),
    [
        ({"multiPoint": on(("NodeAffinity", 7))}, "NodeAffinity", 7),
        ({"multiPoint": on("NodeAffinity")}, "NodeAffinity", 1),
        ({"multiPoint": on(("NodeAffinity", 0))}, "NodeAffinity", 1),
        ({"multiPoint": on("Custom")}, "Custom", 1),
        ({"score": on(("NodeAffinity", 9))}, "NodeAffinity", 9),
        ({"score": on("NodeAffinity")}, "NodeAffinity", 1),
        (
            {"multiPoint": on(("NodeAffinity", 7)), "score": on(("NodeAffinity", 9))},
            "NodeAffinity",
            9,
        ),
        ({"score": off("*") | on(("Custom", 4))}, "Custom", 4),
    ],
)
def test_weight_of_the_point_wins_over_multi_points(
    plugins: dict[str, Any], name: str, weight: int
) -> None:
    assert weights(resolved(**plugins))[name] == weight


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        (
            {"score": on("NodeAfinity")},
            'score.enabled[0].name: unknown plugin "NodeAfinity"; did you mean "NodeAffinity"?',
        ),
        (
            {"multiPoint": on("Custom", "Reservations")},
            'multiPoint.enabled[1].name: unknown plugin "Reservations"; did you mean "Reservation"?',
        ),
        (
            {"filter": off("Reservations")},
            'filter.disabled[0].name: unknown plugin "Reservations"; did you mean "Reservation"?',
        ),
        (
            {"multiPoint": on("DynamicResources")},
            'multiPoint.enabled[0].name: plugin "DynamicResources" is not available here',
        ),
        (
            {"multiPoint": on("DeviceShare")},
            'multiPoint.enabled[0].name: plugin "DeviceShare" is not available here',
        ),
        (
            {"filter": on("EBSLimits")},
            'filter.enabled[0].name: plugin "EBSLimits" was removed from kube-scheduler; '
            "use NodeVolumeLimits",
        ),
        (
            {"filter": on("ImageLocality")},
            'filter.enabled[0].name: plugin "ImageLocality" does not serve filter, only score',
        ),
        (
            {"score": on("Custom", "Custom")},
            'score.enabled[1].name: "Custom" is already enabled by plugins.score.enabled[0].name',
        ),
        (
            {"multiPoint": on("Custom", "Custom")},
            'multiPoint.enabled[1].name: "Custom" is already enabled by '
            "plugins.multiPoint.enabled[0].name",
        ),
        ({"score": {"enabled": [{"weight": 1}]}}, "score.enabled[0].name: required"),
        ({"score": on(("Custom", -1))}, "score.enabled[0].weight: must be at least 0, got -1"),
        ({"score": on(("Custom", 2**31))}, "score.enabled[0].weight: is too large, got 2147483648"),
        (
            {"queueSort": off("*")},
            "queueSort: exactly one plugin must sort the queue, got none",
        ),
        (
            {"queueSort": on("OtherSort")},
            "queueSort: exactly one plugin must sort the queue, got PrioritySort, OtherSort",
        ),
        ({"bind": off("*")}, "bind: at least one plugin must bind pods, got none"),
        (
            {"bind": off("DefaultBinder")},
            "bind: at least one plugin must bind pods, got Reservation, which binds only reservations",
        ),
    ],
)
def test_plugin_set_faults(plugins: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(**plugins)
    assert str(caught.value) == f"plugins.{expected}"


def test_kube_schedulers_plugins_may_be_disabled_though_absent() -> None:
    resolved(multiPoint=off("DynamicResources", "DeviceShare", "EBSLimits"))


def test_one_profile_is_named_by_the_caller_unless_the_file_names_it() -> None:
    assert [p.scheduler_name for p in loaded().profiles] == ["holdfast-scheduler"]
    assert load(HEAD, IMPLEMENTS, "other").profiles[0].scheduler_name == "other"
    given = loaded(profiles=[{"schedulerName": "mine"}])
    assert [p.scheduler_name for p in given.profiles] == ["mine"]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"schedulerName": "b"}, []),
        ({}, ["profiles[1].schedulerName: required when there are several profiles"]),
        (
            {"schedulerName": "a"},
            ['profiles[1].schedulerName: "a" is already the name in profiles[0].schedulerName'],
        ),
        (
            {"schedulerName": "b", "plugins": {"queueSort": off("*") | on("OtherSort")}},
            ["profiles[1].plugins.queueSort: must be the same as that of profiles[0]"],
        ),
        (
            {
                "schedulerName": "b",
                "pluginConfig": [{"name": "PrioritySort", "args": {"by": "age"}}],
            },
            [
                'profiles[1].pluginConfig: the arguments of "PrioritySort" must be the same as '
                "in profiles[0], since it sorts the queue"
            ],
        ),
    ],
)
def test_several_profiles_have_names_of_their_own_and_one_order(
    second: dict[str, Any], expected: list[str]
) -> None:
    assert problems(profiles=[{"schedulerName": "a"}, second]) == expected


def test_profiles_may_differ_in_all_else() -> None:
    first, second = loaded(
        profiles=[
            {"schedulerName": "a", "plugins": {"score": off("*")}},
            {"schedulerName": "b", "plugins": {"multiPoint": on(("ImageLocality", 9))}},
        ]
    ).profiles
    assert names(first, "score") == []
    assert weights(second) == DEFAULT_SCORES | {"ImageLocality": 9}

"""Profiles: a scheduler name with its plugins and their arguments, resolved."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.scheduler.framework.config.args import HAVE_ARGS, default_args, read_args
from holdfast.scheduler.framework.config.document import PluginConfig, ProfileDocument
from holdfast.scheduler.framework.config.plugin_sets import (
    RESERVATION,
    Implements,
    PluginRef,
    PluginSet,
    check_plugins,
    expanded,
    merged_with_defaults,
    unknown_plugin,
    unusable_plugin,
)
from holdfast.scheduler.framework.config.structs import Problems, child, item, read

DEFAULT_SCHEDULER_NAME = "holdfast-scheduler"


class GivenArgs(dict[str, Any]):
    """Arguments by plugin, and where a file has them: `profiles[0].pluginConfig[1].args`."""

    def __init__(self, args: Mapping[str, Any], paths: Mapping[str, str]) -> None:
        super().__init__(args)
        self.paths = dict(paths)


class ResolvedProfile(msgspec.Struct, frozen=True):
    """The plugins of one scheduler name.

    `points` has every extension point, with its plugins in the order in which they run. `args` has the
    arguments by plugin: a struct, a mapping, or no entry for a plugin without arguments. `plugins` are
    the sets that `points` was expanded from, defaults included, for display.
    """

    scheduler_name: str
    points: dict[str, tuple[PluginRef, ...]]
    args: dict[str, Any]
    plugins: dict[str, PluginSet]
    percentage_of_nodes_to_score: int | None = None


def resolve_profile(
    profile: Mapping[str, Any],
    implements: Implements,
    default_scheduler_name: str = DEFAULT_SCHEDULER_NAME,
) -> ResolvedProfile:
    """Resolves one profile of a file by itself. Raises `ConfigError`."""
    problems = Problems()
    given = read(ProfileDocument, profile, "", problems)
    problems.raise_if_any()
    assert given is not None
    resolved = _resolved(given, implements, default_scheduler_name, "", problems)
    problems.raise_if_any()
    assert resolved is not None
    return resolved


def resolve_profiles(
    profiles: Sequence[ProfileDocument],
    implements: Implements,
    default_scheduler_name: str,
    problems: Problems,
) -> tuple[ResolvedProfile, ...]:
    """All profiles of a file; the default profile if it has none."""
    if problems.unread_item("profiles"):
        return ()
    given = profiles or (ProfileDocument(),)
    default = default_scheduler_name if len(given) == 1 else None
    _check_names(given, problems)
    resolved = [
        (path, _resolved(profile, implements, default, path, problems))
        for path, profile in ((item("profiles", i), profile) for i, profile in enumerate(given))
    ]
    complete = [(path, profile) for path, profile in resolved if profile is not None]
    _check_queue_sort(complete, problems)
    return tuple(profile for _, profile in complete)


def _resolved(
    profile: ProfileDocument,
    implements: Implements,
    default_scheduler_name: str | None,
    path: str,
    problems: Problems,
) -> ResolvedProfile | None:
    plugins_path = child(path, "plugins")
    if not problems.under(plugins_path):
        check_plugins(profile.plugins, implements, plugins_path, problems)
    sets = points = None
    if not problems.under(plugins_path):
        sets = merged_with_defaults(profile.plugins, implements)
        points = expanded(sets, implements)
        _check_needed(points, implements, plugins_path, problems)
    config_path = child(path, "pluginConfig")
    given = _given_args(profile.plugin_config, implements, config_path, problems)
    if sets is None or points is None:
        return None
    enabled = sorted({ref.name for plugin_set in sets.values() for ref in plugin_set.enabled})
    for i, config in enumerate(profile.plugin_config):
        if config.name in implements and config.name not in enabled and config.name not in HAVE_ARGS:
            at = child(item(config_path, i), "name")
            problems.warn(at, f'has no effect: plugin "{config.name}" is not enabled in this profile')
    defaults = {name: default_args(name) for name in enabled if name in HAVE_ARGS and name not in given}
    return ResolvedProfile(
        scheduler_name=profile.scheduler_name or default_scheduler_name or "",
        points=points,
        args=GivenArgs(given | defaults, _paths(profile.plugin_config, config_path)),
        plugins=sets,
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
    )


def _given_args(
    configs: Sequence[PluginConfig], implements: Implements, path: str, problems: Problems
) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if problems.under(path):
        return args
    for i, config in enumerate(configs):
        at = item(path, i)
        fault = unknown_plugin(config.name, implements)
        is_installed = bool(unusable_plugin(config.name, implements))
        if fault and not is_installed and config.name not in HAVE_ARGS:
            problems.add(child(at, "name"), fault)
            continue
        if fault:
            problems.warn(child(at, "name"), f"has no effect: {fault}")
        if config.name in args:
            problems.add(child(at, "name"), f'"{config.name}" already has its arguments')
        raw = {} if config.args is None else config.args
        args[config.name] = read_args(config.name, raw, child(at, "args"), problems)
    return args


def _paths(configs: Sequence[PluginConfig], path: str) -> dict[str, str]:
    return {config.name: child(item(path, i), "args") for i, config in enumerate(configs)}


def _check_names(profiles: Sequence[ProfileDocument], problems: Problems) -> None:
    first: dict[str, str] = {}
    for i, profile in enumerate(profiles):
        at = child(item("profiles", i), "schedulerName")
        name = profile.scheduler_name
        if name is None:
            if len(profiles) > 1 and not problems.under(at):
                problems.add(at, "required when there are several profiles")
        elif name in first:
            problems.add(at, f'"{name}" is already the name in {first[name]}')
        else:
            first[name] = at


def _check_needed(
    points: Mapping[str, tuple[PluginRef, ...]],
    implements: Implements,
    path: str,
    problems: Problems,
) -> None:
    """Checks that one plugin sorts the queue and at least one binds pods, if the registry has any."""
    served = frozenset().union(*implements.values())
    sorting = [ref.name for ref in points["queueSort"]]
    if len(sorting) > 1 or (not sorting and "queueSort" in served):
        found = ", ".join(sorting) or "none"
        problems.add(child(path, "queueSort"), f"exactly one plugin must sort the queue, got {found}")
    binding = [ref.name for ref in points["bind"]]
    if not set(binding) - {RESERVATION} and "bind" in served:
        found = f"{RESERVATION}, which binds only reservations" if binding else "none"
        problems.add(child(path, "bind"), f"at least one plugin must bind pods, got {found}")


def _check_queue_sort(profiles: Sequence[tuple[str, ResolvedProfile]], problems: Problems) -> None:
    """Checks that all profiles sort the queue by the same plugin and arguments: there is one queue."""
    if not profiles:
        return
    (first_path, first), *others = profiles
    for path, profile in others:
        if profile.points["queueSort"] != first.points["queueSort"]:
            problems.add(child(path, "plugins.queueSort"), f"must be the same as that of {first_path}")
            continue
        for ref in profile.points["queueSort"]:
            if profile.args.get(ref.name) != first.args.get(ref.name):
                problems.add(
                    child(path, "pluginConfig"),
                    f'the arguments of "{ref.name}" must be the same as in {first_path}, '
                    "since it sorts the queue",
                )

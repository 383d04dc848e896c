"""The actions of a round, in order, with their arguments.

Two forms are accepted, with the same result:

    actions:                                     actions: "allocate, reserve"
      - name: allocate                           configurations:
      - name: reserve                              - name: reserve
        arguments: {reservedNodePercent: 30}         arguments: {reservedNodePercent: 30}
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from holdfast.scheduler.framework.config.structs import (
    Name,
    Problems,
    Seconds,
    Section,
    child,
    described,
    hint,
    item,
    read,
)


class ActionConfig(msgspec.Struct, frozen=True):
    """One action of a round. `arguments` is complete: defaults are filled in, times are seconds."""

    name: str
    arguments: Mapping[str, Any]


class NoArguments(Section, frozen=True):
    pass


class BackfillArguments(Section, frozen=True):
    learn_run_times: bool = False


class ReserveArguments(Section, frozen=True):
    starving_job_time_threshold: Seconds = 172800.0
    reserved_node_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = 50
    hold: Literal["node", "amount"] = "node"
    backfill: bool | Literal["easy", "conservative"] = False


class _Entry(Section, frozen=True):
    name: Name
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


_ARGUMENTS: Mapping[str, type[Section]] = {
    "allocate": NoArguments,
    "backfill": BackfillArguments,
    "reserve": ReserveArguments,
    "preempt": NoArguments,
    "reclaim": NoArguments,
}

# What kube-scheduler does in any case or a default policy counts on, and is easily left out by mistake.
_WITHOUT = {
    "allocate": "no pod is scheduled",
    "preempt": "no pod preempts another",
    "backfill": "before a planned reservation starts, only pods that fit beside it start on its node, "
    "not those that end in time",
}

# Volcano's actions without a counterpart here: pods are enqueued at once, and nothing is shuffled.
_NOT_NEEDED = frozenset({"enqueue", "shuffle", "elect"})


def _complete(name: str, arguments: Section) -> ActionConfig:
    return ActionConfig(name, msgspec.to_builtins(arguments))


DEFAULT_ACTIONS: tuple[ActionConfig, ...] = tuple(
    _complete(name, arguments()) for name, arguments in _ARGUMENTS.items()
)


def read_actions(
    actions: object, configurations: object, problems: Problems
) -> tuple[ActionConfig, ...]:
    entries = _listed(actions, problems)
    given = _configured(configurations, problems)
    result: dict[str, ActionConfig] = {}
    first: dict[str, str] = {}
    for path, name, arguments in entries:
        if not _is_ours(name, child(path, "name") if path != "actions" else path, problems):
            continue
        if name in first:
            problems.add(path, f'action "{name}" is already given' + _where(first[name], path))
            continue
        first[name] = path
        at = child(path, "arguments")
        if name in given:
            elsewhere, configured = given.pop(name)
            if arguments and configured:
                problems.add(elsewhere, f"the arguments of this action are already given in {at}")
            if configured:
                at, arguments = elsewhere, configured
        complete = read(_ARGUMENTS[name], arguments, at, problems)
        if complete is not None:
            result[name] = _complete(name, complete)
    for name, (path, arguments) in given.items():
        read(_ARGUMENTS[name], arguments, path, problems)
        problems.warn(path, f'has no effect, since "{name}" is not listed in actions')
    if not first and not problems.under("actions"):
        problems.add("actions", f"expected at least one of {', '.join(_ARGUMENTS)}")
    return tuple(result.values())


def actions_left_out(actions: Iterable[ActionConfig]) -> Iterator[str]:
    """Warnings about actions that are not listed, and so do not run."""
    listed = {action.name for action in actions}
    for name, effect in _WITHOUT.items():
        if name not in listed:
            yield f'actions: "{name}" is not listed: {effect}'


def _listed(actions: object, problems: Problems) -> list[tuple[str, str, dict[str, Any]]]:
    """(path, name, arguments) for each action named, in either form."""
    if actions is None:
        return [(item("actions", i), name, {}) for i, name in enumerate(_ARGUMENTS)]
    if isinstance(actions, str):
        names = [name.strip() for name in actions.split(",")]
        return [("actions", name, {}) for name in names if name]
    if not isinstance(actions, list | tuple):
        problems.add(
            "actions",
            f"expected a list of actions or comma-separated names, got {described(actions)}",
        )
        return []
    return _entries(actions, "actions", problems)


def _configured(configurations: object, problems: Problems) -> dict[str, tuple[str, Any]]:
    """Arguments given under `configurations`, by action, each with its path."""
    if configurations is None:
        return {}
    if not isinstance(configurations, list | tuple):
        problems.add("configurations", f"expected a list, got {described(configurations)}")
        return {}
    result: dict[str, tuple[str, Any]] = {}
    for path, name, arguments in _entries(configurations, "configurations", problems):
        if not _is_ours(name, child(path, "name"), problems):
            continue
        if name in result:
            problems.add(path, f'a configuration of "{name}" is already given')
        result[name] = (child(path, "arguments"), arguments)
    return result


def _entries(
    raw: list[Any] | tuple[Any, ...], path: str, problems: Problems
) -> list[tuple[str, str, dict[str, Any]]]:
    result = []
    for i, each in enumerate(raw):
        entry = read(_Entry, each, item(path, i), problems)
        if entry is not None and entry.name is not None:
            result.append((item(path, i), entry.name, entry.arguments))
    return result


def _is_ours(name: str, path: str, problems: Problems) -> bool:
    if name in _ARGUMENTS:
        return True
    if name in _NOT_NEEDED:
        problems.warn(path, f'Volcano\'s "{name}" has no counterpart here and is ignored')
    else:
        problems.add(path, f'unknown action "{name}"' + hint(name, _ARGUMENTS))
    return False


def _where(first: str, path: str) -> str:
    return f" in {first}" if first != path else ""

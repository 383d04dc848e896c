"""The command line: every command with its arguments and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from holdfast.cli.app import COMMANDS, load_command
from reference_pages.markdown import code, page, table

_TYPE = re.compile(r" <[^>]*>$")
_INTRODUCTION = """\
`holdfast` is also a kubectl plugin: `kubectl holdfast …`. Every command has `--help`. Exit status: 0 success, 1
invalid input or a negative result, 2 an internal error or a broken invariant. [Inspecting and
reserving](../cli.md) has examples.
"""


def text() -> str:
    rows = [(f"[`holdfast {name}`](#holdfast-{name})", about) for name, (_, about) in COMMANDS.items()]
    sections = [
        section for name in COMMANDS for section in _sections(load_command(name), f"holdfast {name}")
    ]
    return page("Command line", _INTRODUCTION, table(("command", "what it does"), rows), *sections)


def _sections(command: Any, path: str) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    commands = [command.get_command(context, name) for name in getattr(command, "commands", ())]
    yield f"## {path}\n" if path.count(" ") == 1 else f"### {path}\n"
    yield f"{_help(command)}\n"
    if commands:
        for each in commands:
            yield from _sections(each, f"{path} {each.name}")
        return
    arguments = _records(command, "argument", context)
    options = _records(command, "option", context)
    words = [path, *(["[OPTIONS]"] if options else []), *(names for names, _ in arguments)]
    yield f"Usage: `{' '.join(words)}`\n"
    for kind, records in (("argument", arguments), ("option", options)):
        if records:
            yield table((kind, "meaning"), [(code(names), about) for names, about in records])


def _records(command: Any, kind: str, context: Any) -> list[tuple[str, str]]:
    shown = [each for each in command.params if each.param_type_name == kind and not each.hidden]
    records = filter(None, (each.get_help_record(context) for each in shown))
    return [(_TYPE.sub("", names) if kind == "argument" else names, about) for names, about in records]


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "").partition("\f")[0].partition("\n\nExamples:")[0]

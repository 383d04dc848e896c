"""Commands and groups with kubectl's habits: how help is laid out, and how flags may be written.

The docstring of a command's function is its help: the first paragraph is the summary, and a last
paragraph that begins with `Examples:` is printed as it is, after the options. An option is listed in
the section that its `rich_help_panel` names.

Flags are read as kubectl reads them: `-o=json`, `--watch=false`, and `--dry-run` alone for an option
whose metavar begins with `[`, which names the value it then has.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from typer.core import TyperCommand, TyperGroup

from holdfast.api.similar_names import did_you_mean

_GAP = 2
_INDENT = 2
_WIDEST_NAME = 28
_EXAMPLES = "Examples:"
_OPTIONS = "Options"
_METAVARS = {"F": "FILE", "Q": "QUANTITY", "NS": "NAMESPACE"}
"""Abbreviations that options use, in full."""
_VALUE_OF_SHORT = re.compile(r"-[a-zA-Z]=.")
_BOOLEANS = {"true": True, "false": False}


class HelpfulCommand(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return usage_pieces(self.get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(self, ctx, formatter.width))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(as_kubectl_reads(args, self.get_params(ctx))))


class HelpfulGroup(TyperGroup):
    sections: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Titles of parts of the list of commands, and the commands in each."""
    epilogue: ClassVar[str] = ""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["COMMAND", "[OPTIONS]"]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_text(self, ctx, formatter.width))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            hint = did_you_mean(args[0], self.list_commands(ctx))
            ctx.fail(f'unknown command "{args[0]}"{hint}')
        return super().resolve_command(ctx, args)


# Help


def help_text(command: Any, ctx: Any, width: int) -> str:
    described, examples = _parts_of(command.help or "")
    blocks = [_usage(command, ctx, width)]
    blocks += [_paragraph(each, width) for each in described]
    parameters = [each for each in command.get_params(ctx) if not getattr(each, "hidden", False)]
    arguments = [each for each in parameters if each.param_type_name == "argument" and each.help]
    options = [each for each in parameters if each.param_type_name == "option"]
    if arguments:
        blocks.append(_listed("Arguments", [(_name(each), each.help) for each in arguments], width))
    if isinstance(command, HelpfulGroup):
        blocks += _commands(command, ctx, width)
    for title in sorted({_section(each): None for each in options}, key=_OPTIONS.__ne__):
        rows = [(_flags(each), _meaning(each)) for each in options if _section(each) == title]
        blocks.append(_listed(title, rows, width))
    if examples:
        blocks.append(f"{_EXAMPLES}\n{textwrap.indent(examples, ' ' * _INDENT)}")
    if isinstance(command, HelpfulGroup) and command.epilogue:
        blocks += [_paragraph(each, width, 0) for each in command.epilogue.split("\n\n")]
    return "\n\n".join(blocks) + "\n"


def _parts_of(text: str) -> tuple[list[str], str]:
    """The paragraphs, and the examples, which keep their lines."""
    described, _, examples = text.partition(f"\n{_EXAMPLES}\n")
    paragraphs = [each for each in described.strip().split("\n\n") if each.strip()]
    return paragraphs, textwrap.dedent(examples).strip("\n")


def _usage(command: Any, ctx: Any, width: int) -> str:
    start = f"Usage: {ctx.command_path} "
    pieces = " ".join(command.collect_usage_pieces(ctx))
    indent = " " * min(len(start), width // 2)
    return textwrap.fill(start + pieces, width, subsequent_indent=indent, break_on_hyphens=False)


def usage_pieces(parameters: Sequence[Any]) -> list[str]:
    """Arguments first, since options may follow them."""
    pieces = []
    for each in parameters:
        if each.param_type_name == "argument":
            name = f"{_name(each)}..." if each.nargs != 1 else _name(each)
            pieces.append(name if each.required else f"[{name}]")
    return [*pieces, "[OPTIONS]"]


def _paragraph(text: str, width: int, indent: int = _INDENT) -> str:
    margin = " " * indent
    return _filled(" ".join(text.split()), width, margin, margin)


def _filled(text: str, width: int, first: str, rest: str) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _listed(title: str, rows: Sequence[tuple[str, str]], width: int) -> str:
    """Names and their meanings in two columns; a long name has a line to itself."""
    longest = max((len(name) for name, _ in rows if len(name) <= _WIDEST_NAME), default=0)
    column = _INDENT + longest + _GAP
    rest = " " * column
    lines = [f"{title}:"]
    for name, meaning in rows:
        first = f"{' ' * _INDENT}{name}"
        if len(first) + _GAP > column:
            lines.append(first)
            first = ""
        lines.append(_filled(meaning, width, first.ljust(column), rest) if meaning else first)
    return "\n".join(lines)


def _commands(group: HelpfulGroup, ctx: Any, width: int) -> list[str]:
    known = group.list_commands(ctx)
    sections = {title: [n for n in names if n in known] for title, names in group.sections.items()}
    listed = {name for names in sections.values() for name in names}
    others = [name for name in known if name not in listed]
    if others:
        sections["Other commands" if listed else "Commands"] = others
    return [
        _listed(title, [(name, _summary(group.get_command(ctx, name))) for name in names], width)
        for title, names in sections.items()
        if names
    ]


def _summary(command: Any) -> str:
    described, _ = _parts_of(command.help or "")
    return " ".join(described[0].split()) if described else ""


def _section(option: Any) -> str:
    return getattr(option, "rich_help_panel", None) or _OPTIONS


def _name(argument: Any) -> str:
    """`NAME`, however often it may be given."""
    name = str(argument.metavar or argument.name.upper()).strip("[]").removesuffix("...").strip("[]")
    return _METAVARS.get(name, name)


def _flags(option: Any) -> str:
    """`-o, --output FORMAT`; a flag that can be switched off is `--leader-elect, --no-leader-elect`."""
    names = ", ".join([*sorted(option.opts, key=len), *option.secondary_opts])
    if option.is_flag:
        return names
    value = _value(option)
    return f"{names}{value[0]}={value[1:]}" if value.startswith("[") else f"{names} {value}"


def _value(option: Any) -> str:
    if option.metavar:
        return _METAVARS.get(option.metavar, str(option.metavar))
    return "|".join(choices_of(option)) or option.name.upper()


def choices_of(parameter: Any) -> list[str]:
    """The values of a parameter that has a fixed set of them."""
    found = getattr(getattr(parameter, "type_descriptor", None), "choices", None)
    found = found or getattr(getattr(parameter, "type", None), "choices", None) or ()
    return [str(getattr(each, "value", each)) for each in found]


def _meaning(option: Any) -> str:
    text = " ".join((option.help or "").split())
    default = _default(option)
    if not default or "(default" in text:
        return text
    return f"{text.removesuffix('.')} (default: {default})."


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if not option.show_default or option.default is None or callable(option.default):
        return ""
    if option.is_flag and not option.secondary_opts:
        return ""
    if option.is_flag:
        return str((option.opts if option.default else option.secondary_opts)[0])
    return str(getattr(option.default, "value", option.default))


# Flags as kubectl reads them


def as_kubectl_reads(words: Sequence[str], parameters: Sequence[Any]) -> Iterator[str]:
    """The words with forms replaced that kubectl's parser knows and ours does not."""
    flags = {name: each for each in parameters for name in each.opts if getattr(each, "is_flag", False)}
    alone = {
        name: str(each.metavar).strip("[]").partition("|")[0]
        for each in parameters
        if str(each.metavar or "").startswith("[") and each.param_type_name == "option"
        for name in each.opts
    }
    rest = iter(words)
    for word in rest:
        if word == "--":
            yield word
            yield from rest
            return
        name, equals, value = word.partition("=")
        if word in alone:
            yield f"{word}={alone[word]}"
        elif equals and name in flags and value in _BOOLEANS:
            if _BOOLEANS[value]:
                yield name
        elif _VALUE_OF_SHORT.match(word):
            yield from (name, value)
        else:
            yield word

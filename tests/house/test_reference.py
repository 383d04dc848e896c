"""The reference is what the generator makes, and speaks of everything that the code has."""

from __future__ import annotations

import ast
import re

import pytest
from reference_pages import configuration, messages, names_on_objects
from write_reference import TARGET, contents

from holdfast.api import names
from house.source import modules
from house.texts import texts

PAGES = contents()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_generator_makes(name: str) -> None:
    assert (TARGET / name).read_text(encoding="utf-8") == PAGES[name], "run `make reference`"


def test_every_field_of_the_configuration_is_described() -> None:
    assert configuration.MEANINGS.keys() == configuration.fields().keys()


def test_every_label_and_annotation_is_described() -> None:
    constants = {
        name for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
    }
    described = {name for section in names_on_objects.SECTIONS.values() for name in section}
    assert not described & names_on_objects.OTHERS
    assert described | names_on_objects.OTHERS == constants


def _source_texts() -> set[str]:
    """The texts of the source; a text that is formatted later has its fields replaced too."""
    return {re.sub(r"\{[^{}]*\}", "{}", text.text) for text in texts()}


def test_every_message_is_in_the_source() -> None:
    known = _source_texts()
    shown = [text for section in messages.REASONS.values() for text in section]
    assert not [text for text in shown if text not in known and not any(text in each for each in known)]


def test_every_event_and_condition_is_in_the_source() -> None:
    known = _source_texts()
    shown = {reason for section in messages.EVENTS.values() for reason in section}
    for rows in messages.CONDITIONS.values():
        for condition, reasons, _ in rows:
            shown |= {condition, *re.findall(r"`(\w+)`", reasons)}
    assert not sorted(shown - known)


_REASON = re.compile(r"(?:node\(s\) |Insufficient |Too many |Reservation\(s\) \w)")


def test_every_reason_of_a_plugin_is_described() -> None:
    shown = {text for section in messages.REASONS.values() for text in section}
    reasons = {
        re.sub(r"\{[^{}]*\}", "{}", text.text)
        for text in texts()
        if text.where.startswith("scheduler/") and _REASON.match(text.text)
    }
    assert not sorted(reason for reason in reasons - shown if reason not in UNLISTED)


UNLISTED = {
    "node(s) didn't satisfy plugin(s) [{}]": "kube-scheduler's text for pods that name their nodes",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode ": "a part",
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use "
    "by another pod": "in docs/scheduling.md",
    "Reservation(s) {}": "a prefix",
}
"""Texts that look like a reason, with why they are not listed."""


def test_every_reason_of_an_event_is_described() -> None:
    """Of calls `Emit(about, type, reason, …)` whose reason is a literal or a constant."""
    shown = {reason for section in messages.EVENTS.values() for reason in section}
    constants = _constants()
    found = [
        _values(node.args[2], constants)
        for module in modules()
        if module.where.startswith("scheduler/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Emit"
    ]
    assert len(found) > 8
    assert not [values for values in found if values and not shown & set(values)]


def _values(reason: ast.expr, constants: list[tuple[str, str]]) -> list[str]:
    """The values that it can have: constants of several modules may have the same name."""
    match reason:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=wanted):
            return [value for name, value in constants if name == wanted]
    return []


def _constants() -> list[tuple[str, str]]:
    found = []
    for module in modules():
        for node in module.tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                    found.append((name, text))
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                    found += [
                        (target.id, value.value)
                        for target, value in zip(targets, values, strict=True)
                        if isinstance(target, ast.Name)
                        and isinstance(value, ast.Constant)
                        and isinstance(value.value, str)
                    ]
    return found

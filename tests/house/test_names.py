"""Names in the source: public class names occur once, and names are made of the field's words."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from house.source import definitions, modules, words

BANNED = frozenset(
    """
    accounts agenda ahead aligning alone anew barrier belongings blame care clearing contest custody
    deposed draw drawable drawing drawn draws drew findings giving hands happening happenings
    intake judging keeper luck meant minding minds mirror nobody offer offered orphans outlook
    passing picture promise promised promises resident residents rival rivals room rooms said say
    says sender taking tell telling tells told trial trials turn wish wishes
    """.split()
)
"""Words of our own for which kube-scheduler, Koordinator, Volcano or Kubernetes have one; the
glossary has it (`docs/glossary.md`). Words that Kubernetes uses in another sense (taints, budgets,
expiry, length, reading) are not here."""

EXCEPTIONS = Path(__file__).with_name("exceptions.txt")


def test_a_public_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for definition in definitions():
        if definition.is_class and not definition.name.startswith("_"):
            places[definition.name].append(definition.where)
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, f"public class names defined more than once: {twice}"


def test_no_module_or_package_is_named_by_a_banned_word() -> None:
    named = {
        module.where for module in modules() if BANNED & set(words(module.where.removesuffix(".py")))
    }
    assert not named, f"modules named by a word of our own, see docs/glossary.md: {sorted(named)}"


def test_classes_and_functions_are_named_in_the_words_of_the_field() -> None:
    exceptions = _exceptions()
    new = {name: where for name, where in _odd_names().items() if name not in exceptions}
    assert not new, f"names with a word of our own; docs/glossary.md has the field's: {new}"


def test_every_exception_is_still_needed() -> None:
    odd = _odd_names()
    gone = [name for name in _exceptions() if name not in odd]
    assert not gone, f"no longer in the source: remove from {EXCEPTIONS.name}: {gone}"


def test_exceptions_are_sorted_and_listed_once() -> None:
    assert _exceptions() == sorted(set(_exceptions()))


def _odd_names() -> dict[str, list[str]]:
    odd: dict[str, list[str]] = defaultdict(list)
    for definition in definitions():
        if BANNED & set(words(definition.name)):
            odd[definition.name].append(definition.where)
    return odd


def _exceptions() -> list[str]:
    return EXCEPTIONS.read_text().split()

"""Texts that users read are in the words of the field: messages, log lines, `--help`, metrics."""

from __future__ import annotations

import re

import pytest

from house.source import SOURCE, Module
from house.test_names import BANNED
from house.texts import texts, texts_of

INSTEAD = {
    "|".join(sorted(BANNED)): "see docs/glossary.md",
    "makes? no sense": "is invalid",
    "(?<!there )(?:is|are) (?:none|no (?:answer|number|owner|partition|state))": "is not a …",
    "(?:would|will) (?:not do|do(?= *$))": "is suitable, is feasible",
    "stands? against": "is rejected by",
    "ask(?:s|ed|ing)? for": "requests",
    "(?:has|have|had) (?:a|its|their|no) places?": "is placed",
    "for good|for ever|forever": "never expires, permanently",
    "any more|by now|does so no more": "no longer",
    "in vain|luck|hop(?:e|es|ed|ing)|fares?|goes ahead|looks? after": "what happens",
    "who|whoever|whom": "the pods, clients or users that",
    "lets? (?:in|into)": "admits, backfills",
    "again and again": "repeatedly",
    "g(?:ive|ives|ave|iven) (?:back|out)": "releases, allocates",
    "of (?:one's|its|their) own": "own, exclusive",
    "mend(?:s|ed)?": "fix",
    "want(?:s|ed)?": "requests, requires",
    "bears?": "has",
    "folders?": "directory",
    "^else|; else (?:all|as|the|when)": "(default: …)",
}
"""Patterns of whole words, each with what to write."""

NAMES = {
    ", request {}: asks for all devices, but resource pool": "kube-scheduler's text",
    "Trial": "a class of `holdfast.plugin`",
    "barrier": "an operation of scheduler_perf",
    "holdfast_reservation_draws_total": "a metric, whose name users build on",
    "kubernetes.io/config.mirror": "an annotation of Kubernetes",
}
"""Literals that are names with such a word. The list only shrinks."""

_PATTERNS = {
    re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE): instead
    for pattern, instead in INSTEAD.items()
}
_ANY = re.compile("|".join(pattern.pattern for pattern in _PATTERNS), re.IGNORECASE)


def odd_words(text: str) -> list[str]:
    if text in NAMES or not _ANY.search(text):
        return []
    found = ((pattern.search(text), instead) for pattern, instead in _PATTERNS.items())
    return [f"{match[0]!r}: write {instead}" for match, instead in found if match]


_OWN_PLURAL = re.compile(
    r"""(["'])(?:1 )?[\w ]*\1 if [^\n]{1,40} == 1 else (?:f?(["'])[^"']*s\2|f["']\{)"""
    r"""|== 1 else ["']s["']"""
)
"""`"1 pod" if count == 1 else f"{count} pods"`, `'' if count == 1 else 's'`."""


def test_plurals_are_made_in_one_place() -> None:
    found = [
        f"{path.relative_to(SOURCE)}: {match[0]}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.parts[-2:] != ("api", "plurals.py")
        for match in _OWN_PLURAL.finditer(path.read_text())
    ]
    assert not found, f"use holdfast.api.plurals: {found}"


def test_texts_are_in_the_words_of_the_field() -> None:
    odd = [
        f"{text.where}:{text.line}: {text.text!r}: {'; '.join(found)}"
        for text in texts()
        if (found := odd_words(text.text))
    ]
    assert not odd, "\n".join(["texts with words of our own:", *odd])


def test_every_name_is_still_in_the_source() -> None:
    gone = NAMES.keys() - {text.text for text in texts()}
    assert not gone, f"no longer in the source: remove from NAMES: {sorted(gone)}"


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ('raise Error(f"{pod} makes no sense")', "makes no sense"),
        ('log.info("told", pod=pod)', "told"),
        ('text = "no node " "will do"', "will do"),
        ("text = f\"{one} by {f'the room of {other}'}\"", "room"),
        ('"""A module."""\nimport typer\ndef run() -> None:\n    """Nobody waits."""', "Nobody"),
        ('option = typer.Option(help="Else the default.")', "Else"),
    ],
)
def test_an_odd_word_is_found(source: str, word: str) -> None:
    module = Module(SOURCE / "planted.py", source)
    found = [each for text in texts_of(module) for each in odd_words(text.text)]
    assert len(found) == 1, found
    assert found[0].startswith(repr(word))


@pytest.mark.parametrize(
    "source",
    [
        '"""Nobody is told."""',
        'def run() -> None:\n    """Whoever asks for room."""',
        '__slots__ = ("told",)',
        "told = 1  # whoever",
        'text = "a headroom of 1"',
    ],
)
def test_only_texts_of_users_are_read(source: str) -> None:
    module = Module(SOURCE / "planted.py", source)
    assert not [each for text in texts_of(module) for each in odd_words(text.text)]

"""Names like one that is unknown, for hints: `; did you mean train?`"""

from collections.abc import Iterable
from difflib import SequenceMatcher

_SIMILAR = 0.6
"""The ratio of equal characters from which two names are similar."""
_MOST = 3


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The known names that are most like the word: several, if they are equally near."""
    return similar_names(word, known)[:_MOST]


def similar_names(word: str, known: Iterable[str], similar: float = _SIMILAR) -> list[str]:
    """The known names that are most like the word, ignoring case: all that are equally near, sorted."""
    matcher = SequenceMatcher()
    matcher.set_seq2(word.lower())
    nearest, found = similar, list[str]()
    for name in sorted(set(known) - {word}):
        matcher.set_seq1(name.lower())
        if matcher.real_quick_ratio() < nearest or matcher.quick_ratio() < nearest:
            continue
        ratio = matcher.ratio()
        if ratio > nearest:
            nearest, found = ratio, []
        if ratio == nearest:
            found.append(name)
    return found


def did_you_mean(
    word: str,
    known: Iterable[str],
    otherwise: str = "",
    *,
    similar: float = _SIMILAR,
    quoted: bool = False,
) -> str:
    """`; did you mean a, b or c?`, or the other text if nothing known is like the word."""
    near = similar_names(word, known, similar)
    if near:
        mark = '"' if quoted else ""
        return f"; did you mean {any_of([f'{mark}{each}{mark}' for each in near])}?"
    return f"; {otherwise}" if otherwise else ""


def any_of(names: list[str]) -> str:
    """`a, b or c`; of more, the first and how many others there are."""
    if len(names) > _MOST:
        return f"{', '.join(names[:_MOST])} or another of {len(names)}"
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last

"""Regular expressions of schemas, which are written for Go.

Most mean the same here. What Go writes otherwise is translated; what cannot be is let pass unchecked.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "digit": "0-9",
    "lower": "a-z",
    "space": r"\s",
    "upper": "A-Z",
    "word": r"\w",
    "xdigit": "0-9a-fA-F",
}
_CLASS = re.compile(r"\[:(\w+):\]")
_BROKEN = ("unterminated", "unbalanced", "nothing to repeat", "multiple repeat", "bad character range")


@lru_cache(maxsize=512)
def compiled_pattern(text: str) -> re.Pattern[str] | None:
    """The expression, or None where it says something only Go understands; raises `re.error`."""
    translated = _CLASS.sub(lambda match: _CLASSES.get(match[1], match[0]), text)
    translated = translated.replace(r"\z", r"\Z")
    if translated.endswith("$") and not translated.endswith(r"\$"):
        translated = translated[:-1] + r"\Z"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(translated, re.ASCII)
    except re.error as error:
        if any(word in str(error) for word in _BROKEN):
            raise
        return None

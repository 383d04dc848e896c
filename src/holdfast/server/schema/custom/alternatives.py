"""`anyOf`, `oneOf`, `allOf` and `not`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.server.schema.problems import INVALID, Problem, field_problem

Check = Callable[[Any, str, list[Problem]], None]


def alternatives(word: str, options: list[Check]) -> Check:
    def check_alternatives(value: Any, path: str, problems: list[Problem]) -> None:
        tried: list[list[Problem]] = []
        for option in options:
            found: list[Problem] = []
            option(value, path, found)
            tried.append(found)
        good = sum(not found for found in tried)
        said = _complaint(word, path, good, len(options))
        if not said:
            return
        problems.append(field_problem(INVALID, "<nil>", "", said))
        if word == "allOf":
            problems.extend(problem for found in tried for problem in found)
        elif word != "not" and not good:
            problems.extend(sorted(tried, key=len)[0])

    return check_alternatives


def _complaint(word: str, path: str, good: int, count: int) -> str:
    if word == "not":
        return f'"{path}" must not validate the schema (not)' if good else ""
    if word == "allOf":
        none = ". None validated" if not good else ""
        return f'"{path}" must validate all the schemas (allOf){none}' if good < count else ""
    if word == "anyOf":
        return "" if good else f'"{path}" must validate at least one schema (anyOf)'
    if good == 1:
        return ""
    found = f"Found {good} valid alternatives" if good else "Found none valid"
    return f'"{path}" must validate one and only one schema (oneOf). {found}'

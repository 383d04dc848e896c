"""The error tree in the docstring is complete and correct."""

import importlib
import inspect
import pkgutil
import re

import pytest

import holdfast
from holdfast.api import errors
from holdfast.api.errors import HoldfastError

LINE = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>\w+) +(?P<module>[\w.]+)(?: .*)?$", re.MULTILINE)

ListedError = tuple[str, str]
"""The module and the name of a class."""


def defined() -> list[type[BaseException]]:
    found: dict[type[BaseException], None] = {}
    for info in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if info.name.endswith("__main__"):
            continue
        for each in vars(importlib.import_module(info.name)).values():
            is_error = inspect.isclass(each) and issubclass(each, BaseException)
            if is_error and each.__module__ == info.name:
                found[each] = None
    return list(found)


def place(error: type[BaseException]) -> ListedError:
    return error.__module__.removeprefix("holdfast."), error.__name__


def listed() -> dict[ListedError, ListedError | None]:
    """Each class in the docstring, with its parent."""
    found: dict[ListedError, ListedError | None] = {}
    above: list[ListedError] = []
    tree = (errors.__doc__ or "").split("\n\n")[1]
    for match in LINE.finditer(tree):
        depth = len(match["indent"]) // 4
        one = (match["module"], match["name"])
        found[one] = above[depth - 1] if depth else None
        above[depth:] = [one]
    return found


@pytest.mark.parametrize("error", defined(), ids=lambda error: ".".join(place(error)))
def test_every_error_descends_from_the_root_and_is_listed_under_its_parent(
    error: type[BaseException],
) -> None:
    assert issubclass(error, HoldfastError), "what is raised on purpose is a HoldfastError"
    parent = next((base for base in error.__bases__ if issubclass(base, HoldfastError)), None)
    expected = place(parent) if parent is not None else None
    assert listed().get(place(error), "not listed") == expected, "see the tree in api/errors.py"


def test_nothing_is_listed_that_does_not_exist() -> None:
    assert set(listed()) == {place(error) for error in defined()}

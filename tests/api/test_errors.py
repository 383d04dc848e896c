"""The error tree is complete, and drawn as it is."""

import importlib
import inspect
import pkgutil
import re

import pytest

import holdfast
from holdfast.api import errors
from holdfast.api.errors import HoldfastError

LINE = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>\w+) +(?P<module>[\w.]+)(?: .*)?$", re.MULTILINE)

Drawn = tuple[str, str]
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


def place(error: type[BaseException]) -> Drawn:
    return error.__module__.removeprefix("holdfast."), error.__name__


def drawn() -> dict[Drawn, Drawn | None]:
    """Each class in the docstring, with the one it is drawn under."""
    found: dict[Drawn, Drawn | None] = {}
    above: list[Drawn] = []
    tree = (errors.__doc__ or "").split("\n\n")[1]
    for match in LINE.finditer(tree):
        depth = len(match["indent"]) // 4
        one = (match["module"], match["name"])
        found[one] = above[depth - 1] if depth else None
        above[depth:] = [one]
    return found


@pytest.mark.parametrize("error", defined(), ids=lambda error: ".".join(place(error)))
def test_every_error_descends_from_the_root_and_is_drawn_under_its_parent(
    error: type[BaseException],
) -> None:
    assert issubclass(error, HoldfastError), "what is raised on purpose is a HoldfastError"
    parent = next((base for base in error.__bases__ if issubclass(base, HoldfastError)), None)
    expected = place(parent) if parent is not None else None
    assert drawn().get(place(error), "not drawn") == expected, "see the tree in api/errors.py"


def test_nothing_is_drawn_that_does_not_exist() -> None:
    assert set(drawn()) == {place(error) for error in defined()}

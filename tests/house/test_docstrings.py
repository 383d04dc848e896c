"""Docstrings: every module has one, and a package's lists modules and layers that exist."""

from __future__ import annotations

import re

import pytest

from house.source import SOURCE, Module, is_module, modules, packages

_ENTRY = re.compile(r"^ *(?P<names>[a-z_0-9/]+(?:, [a-z_0-9/]+)*,?)(?: {2,}\S.*|)$")
_IMPORTS = re.compile(r"[Mm]ay import (?P<names>[^.;:]*)")
_OTHERS = {"msgspec", "numpy", "aiohttp"}


def test_every_module_has_a_docstring() -> None:
    without = [module.where for module in modules() if not module.docstring]
    assert not without, f"modules without a docstring: {without}"


@pytest.mark.parametrize("package", list(packages()), ids=lambda package: package.where)
def test_a_package_lists_modules_that_exist(package: Module) -> None:
    gone = [name for name in _listed(package.docstring) if not is_module(package.path.parent / name)]
    assert not gone, f"{package.where} lists what is not there: {gone}"


@pytest.mark.parametrize("package", list(packages()), ids=lambda package: package.where)
def test_a_package_names_packages_that_exist_as_its_imports(package: Module) -> None:
    gone = [name for name in _imports(package.docstring) if not _is_importable(name)]
    assert not gone, f"{package.where} says that it may import what is not there: {gone}"


def _listed(docstring: str) -> list[str]:
    """The names of a docstring's table of modules: a name, or several with commas, two or more
    spaces, and what it is."""
    names: list[str] = []
    for line in docstring.splitlines():
        entry = _ENTRY.match(line)
        if entry and ("  " in line.strip() or line.endswith(",")):
            names += [name.strip("/ ") for name in entry["names"].split(",") if name.strip()]
    return names


def _imports(docstring: str) -> list[str]:
    return [
        name
        for sentence in _IMPORTS.finditer(" ".join(docstring.split()))
        for name in re.findall(r"`([a-z_./]+)`", sentence["names"])
    ]


def _is_importable(name: str) -> bool:
    path = name.replace(".", "/")
    return name in _OTHERS or is_module(SOURCE / path) or is_module(SOURCE / "scheduler" / path)

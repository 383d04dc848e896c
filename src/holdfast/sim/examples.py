"""The scenarios that come with Holdfast, by name: `reservations/scale-up`.

They are the folder `examples` of the repository, and `holdfast/examples` in the wheel
(`[tool.hatch.build.targets.wheel]` of pyproject.toml puts them there).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import holdfast
from holdfast.api.errors import HoldfastError
from holdfast.api.similar_names import any_of, similar_names

_PACKAGE = Path(holdfast.__file__).parent
_SUFFIX = ".yaml"
_NO_SCENARIOS = ("configs", "plugins")
"""Folders with configurations, and with scenarios that need a package of their own."""


class UnknownExample(HoldfastError):
    """No example has this name."""


class Example(NamedTuple):
    name: str
    file: Path

    @property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @property
    def description(self) -> str:
        """The first sentence of the comment that the file starts with."""
        lines: list[str] = []
        for line in self.text.splitlines():
            comment = line.removeprefix("#").strip()
            if not line.startswith("#") or not comment:
                break
            lines.append(comment)
        return re.split(r"(?<=[.!?])\s", " ".join(lines), maxsplit=1)[0]


def examples_folder() -> Path:
    """In the wheel, or in the clone that is installed in editable mode."""
    installed = _PACKAGE / "examples"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "examples"


def examples() -> list[Example]:
    """All of them; those outside of folders come first."""
    return sorted(_found(examples_folder()), key=lambda each: ("/" in each.name, each.name))


def _found(folder: Path) -> Iterator[Example]:
    for file in folder.rglob(f"*{_SUFFIX}"):
        parts = file.relative_to(folder).with_suffix("").parts
        if not any(part in _NO_SCENARIOS for part in parts[:-1]):
            yield Example("/".join(parts), file)


def find_example(name: str) -> Example:
    """By its name, or by its path in the repository. Raises UnknownExample."""
    wanted = name.strip().removeprefix("./").removeprefix("examples/").removesuffix(_SUFFIX).strip("/")
    known = {each.name: each for each in examples()}
    if wanted in known:
        return known[wanted]
    close = [each for each in known if wanted in (each.rpartition("/")[2], each.partition("/")[0])]
    close = close or similar_names(wanted, known, 0.7)
    if not close:
        near = similar_names(
            wanted.rpartition("/")[2], (each.rpartition("/")[2] for each in known), 0.7
        )
        close = sorted(each for each in known if each.rpartition("/")[2] in near)
    hint = f"did you mean {any_of(close)}?" if close else "--list-examples lists them"
    raise UnknownExample(f"no example {name!r}; {hint}")

"""What files are made of, and how much of it they may have."""

from dataclasses import dataclass
from typing import Any

from holdfast.api.errors import HoldfastError

MAX_BYTES = 256 * 1024**2
MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_ALIASED_NODES = 100_000
MAX_DIRECTIVES = 100
"""Lines such as `%TAG`: the parser compares each with all that came before."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file. `number` counts the file's documents from 1."""

    file: str
    number: int
    line: int
    data: Any
    item: int | None = None
    """Its place in a `kind: List`, if it stood in one."""

    def __str__(self) -> str:
        place = f"{self.file}: document {self.number}, line {self.line}"
        return place if self.item is None else f"{place}, items[{self.item}]"


class BadFileError(HoldfastError):
    def __init__(self, number: int, line: int, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.line = line

"""Errors that stop a simulation.

HoldfastError
├── InvalidInput      the files are not a valid scenario: all errors at once
└── InvariantBroken   the run violated an invariant, which is a bug in Holdfast
"""

from collections.abc import Iterable

from holdfast.api.errors import HoldfastError


class InvalidInput(HoldfastError):
    """One line per error, each naming the file, the document and the field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


class InvariantBroken(HoldfastError):
    """`problems` are the violations; `stories` the history of the objects they name."""

    def __init__(self, t: float, problems: Iterable[str], stories: Iterable[str] = ()) -> None:
        self.t = t
        self.problems = list(problems)
        self.stories = list(stories)
        super().__init__("\n".join([*self.problems, *self.stories]))

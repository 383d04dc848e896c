"""What stops a simulation.

HoldfastError
├── InvalidInput      the files are not a scenario that can be run: every reason at once
└── InvariantBroken   the run itself went wrong, which is a fault in Holdfast
"""

from collections.abc import Iterable

from holdfast.api.errors import HoldfastError


class InvalidInput(HoldfastError):
    """Each problem is one line, which names the file, the document and the field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


class InvariantBroken(HoldfastError):
    """`problems` say what does not hold; `stories` what happened to the objects they name."""

    def __init__(self, t: float, problems: Iterable[str], stories: Iterable[str] = ()) -> None:
        self.t = t
        self.problems = list(problems)
        self.stories = list(stories)
        super().__init__("\n".join([*self.problems, *self.stories]))

"""What is wrong with a configuration: every problem with its path, reported together.

HoldfastError
└── ConfigError     .problems: [(path, message), …]
"""

from collections.abc import Iterable
from difflib import get_close_matches

from holdfast.api.errors import HoldfastError

Problem = tuple[str, str]


class ConfigError(HoldfastError):
    """A configuration that cannot be used. `problems` holds (path, message) in reading order."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(told(*problem) for problem in self.problems))


class Problems:
    """Gathers problems, which stop the loading, and warnings, which do not."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self.warnings: list[str] = []

    def add(self, path: str, message: str) -> None:
        self.found.append((path, message))

    def warn(self, path: str, message: str) -> None:
        self.warnings.append(told(path, message))

    def raise_if_any(self) -> None:
        if self.found:
            raise ConfigError(self.found)

    def under(self, path: str) -> bool:
        """Whether anything at this path or below it is wrong, so that its value is not to trust."""
        inside = (f"{path}.", f"{path}[")
        return any(each == path or each.startswith(inside) for each, _ in self.found)

    def unread_item(self, path: str) -> bool:
        """Whether an item of the list at this path was left out, so that indexes have shifted."""
        starts = f"{path}["
        return any(
            each == path or (each.startswith(starts) and "]" not in each[len(starts) : -1])
            for each, _ in self.found
        )

    def __len__(self) -> int:
        return len(self.found)


def told(path: str, message: str) -> str:
    return f"{path}: {message}" if path else message


def child(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def item(path: str, index: object) -> str:
    return f"{path}[{index}]"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name most like `name`, whatever its capitals; None if nothing comes close."""
    by_fold = {each.casefold(): each for each in known}
    close = get_close_matches(str(name).casefold(), by_fold, n=1)
    return by_fold[close[0]] if close else None


def hint(name: object, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or the names there are, or nothing if there are none."""
    names = list(known)
    guess = nearest(name, names)
    if guess is not None:
        return f'; did you mean "{guess}"?'
    return f"; known: {', '.join(names)}" if names else ""

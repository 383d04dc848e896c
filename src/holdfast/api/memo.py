"""A bounded memo: results by key, at most a fixed number of them."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """A dictionary that is emptied when it is full and another key comes: what it has can be computed
    again, and what is in use comes back at once. Read it by `get` and write it by `memo[key] = value`,
    so that reading costs no more than with a plain dictionary."""

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._most:
            self.clear()
        super().__setitem__(key, value)

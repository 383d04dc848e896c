"""How long to wait before trying again: longer each time, and never in step with others."""

import random


class Backoff:
    """The k-th wait is `first * 2^k`, at most `most`, times something between 1 and 2."""

    def __init__(self, rng: random.Random, first: float = 0.5, most: float = 30.0) -> None:
        self._first = first
        self._most = most
        self._rng = rng
        self.tries = 0

    def next(self, at_least: float | None = None) -> float:
        """The next wait, no shorter than what the server asked for."""
        wait = min(self._first * 2.0 ** min(self.tries, 30), self._most) * (1 + self._rng.random())
        self.tries += 1
        return max(wait, at_least or 0.0)

    def reset(self) -> None:
        self.tries = 0

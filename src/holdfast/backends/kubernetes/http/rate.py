"""A bound on requests per second, with a burst: a bucket that fills at `qps` and holds `burst`."""

import asyncio


class RateLimit:
    """A `qps` below zero is no limit."""

    def __init__(self, qps: float = -1.0, burst: int = 1) -> None:
        self._qps = qps
        self._burst = float(max(burst, 1))
        self._left = self._burst
        self._filled_at: float | None = None

    def take(self) -> float:
        """0 if one more request may be made now, which then counts; else when to ask again."""
        if self._qps < 0:
            return 0.0
        now = asyncio.get_running_loop().time()
        if self._filled_at is not None:
            self._left = min(self._burst, self._left + (now - self._filled_at) * self._qps)
        self._filled_at = now
        if self._left >= 1.0 - 1e-9:
            self._left -= 1.0
            return 0.0
        return max((1.0 - self._left) / self._qps, 0.001)

"""Sets of CPUs as Linux writes them: `0-3,8,10-11`."""

from collections.abc import Iterable

MOST_CPUS = 1 << 16
"""No node has more; a list that says so is a mistake, and must not be written out."""


def parse_cpus(text: str) -> frozenset[int]:
    """Raises ValueError for what is no such list."""
    found: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.strip().partition("-")
        low = int(first)
        high = int(last) if dash else low
        if low < 0 or high < low or high >= MOST_CPUS:
            raise ValueError(f"{part!r} is no range of CPUs")
        found.update(range(low, high + 1))
    return frozenset(found)


def format_cpus(cpus: Iterable[int]) -> str:
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in ranges)

"""Host ports in use, counted per row.

Two uses of a port conflict when protocol and number agree and either address is the wildcard or
both are the same.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.row_columns import RowColumn, RowColumns

WILDCARD = "0.0.0.0"


class HostPort(NamedTuple):
    ip: str
    protocol: str
    port: int


Counts = NDArray[np.int32]


def conflict(one: HostPort, other: HostPort) -> bool:
    """Whether two pods on one node cannot both have their port."""
    if (one.protocol, one.port) != (other.protocol, other.port):
        return False
    return WILDCARD in (one.ip, other.ip) or one.ip == other.ip


class PortUse:
    """For each address, and for each port over all addresses, how often each row uses it. Ports no row
    uses are not kept: nobody may keep the counts of one."""

    def __init__(self, columns: RowColumns) -> None:
        self._columns = columns
        self._by_address: dict[HostPort, RowColumn[np.int32]] = {}
        self._by_port: dict[tuple[str, int], RowColumn[np.int32]] = {}
        self._totals: dict[HostPort | tuple[str, int], int] = {}
        self._none = columns.new(np.int32)

    def __len__(self) -> int:
        return len(self._by_port)

    def add(self, row: int, port: HostPort, count: int) -> None:
        self._add(self._by_address, port, row, count)
        self._add(self._by_port, (port.protocol, port.port), row, count)

    def _add(self, uses: dict[Any, RowColumn[np.int32]], key: Any, row: int, count: int) -> None:
        counts = uses.get(key)
        if counts is None:
            counts = uses[key] = self._columns.new(np.int32)
        counts.cells[row] += count
        total = self._totals[key] = self._totals.get(key, 0) + count
        if not total:
            del uses[key], self._totals[key]

    def uses(self, port: HostPort) -> Counts:
        """How often each row uses this port on exactly this address."""
        return self._by_address.get(port, self._none).cells

    def uses_anywhere(self, port: HostPort) -> Counts:
        """How often each row uses this port on any address."""
        return self._by_port.get((port.protocol, port.port), self._none).cells

    def conflicts(self, port: HostPort) -> tuple[Counts, ...]:
        """The counts of which any that is not zero is a conflict."""
        if port.ip == WILDCARD:
            return (self.uses_anywhere(port),)
        return (self.uses(port), self.uses(port._replace(ip=WILDCARD)))

    def in_use(self, row: int) -> dict[HostPort, int]:
        return {port: int(c.cells[row]) for port, c in self._by_address.items() if c.cells[row]}

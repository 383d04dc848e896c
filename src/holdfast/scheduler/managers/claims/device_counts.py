"""How many devices drivers publish on each node, and how many of them are in use, reserved or held.

For tables and charts: a device counts as in use if a claim has it or a share of it, and as reserved or
held if only a reservation's claim has it. Devices that several nodes can use are not of one node, and
do not count.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.scheduler.managers.claims.claim_manager import ClaimManager

Ints = NDArray[np.int64]


def devices_resource(driver: str) -> str:
    """What the devices of a driver are listed as among resources: `gpu.example.com/devices`."""
    return f"{driver}/devices"


class DriverDevices(NamedTuple):
    """The devices of one driver, by row of the node table."""

    published: Ints
    in_use: Ints
    reserved: Ints
    """Kept by reservations, and used by no owner."""
    held: Ints
    """Kept by preemption and starvation holds."""


class DeviceCounts:
    """Counts devices by driver. Which devices a node has is read again when slices or nodes change."""

    def __init__(self, claims: ClaimManager) -> None:
        self._claims = claims
        self._structure = -1
        self._drivers: list[str] = []
        self._driver: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._row: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._identity: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        """Of each device: the index of its driver, its node's row, and its identity."""

    @property
    def version(self) -> tuple[int, int]:
        """Changes when a count may."""
        return self._claims.catalogue.structure, self._claims.use.version

    @property
    def drivers(self) -> list[str]:
        """The drivers that publish devices on nodes, by name."""
        self._read()
        return self._drivers

    def by_driver(self, size: int, holds: Collection[str] = ()) -> dict[str, DriverDevices]:
        """The counts of each driver for the rows below `size`. The reservations with these uids are
        preemption and starvation holds."""
        self._read()
        if not self._drivers:
            return {}
        use = self._claims.use
        use.cover()
        identities = self._identity
        has = (use.taken[identities] > 0) | (use.share_state[identities] > 0)
        uids = self._claims.held.reservations()
        reserved = has & self._is_kept_by(uid for uid in uids if uid not in holds)
        held = has & ~reserved & self._is_kept_by(uid for uid in uids if uid in holds)
        found = {}
        for index, driver in enumerate(self._drivers):
            own = (self._driver == index) & (self._row < size)
            counts = [
                np.bincount(self._row[own & which], minlength=size).astype(np.int64)
                for which in (np.ones_like(own), has & ~reserved & ~held, reserved, held)
            ]
            found[driver] = DriverDevices(*counts)
        return found

    def _is_kept_by(self, reservations: Iterable[str]) -> NDArray[np.bool_]:
        """Of each device, whether one of these reservations keeps it and no owner uses it."""
        find, use = self._claims.catalogue.table.identities.find, self._claims.use
        keys = [key for uid in reservations for key in self._claims.held.of(uid)]
        found = (find(result.device_id) for key in keys for result in use.results(key))
        kept = np.zeros(len(use.taken), dtype=np.bool_)
        kept[[identity for identity in found if identity is not None]] = True
        return kept[self._identity]

    def _read(self) -> None:
        catalogue = self._claims.catalogue
        if catalogue.structure == self._structure:
            return
        self._structure = catalogue.structure
        devices = [(row, entry) for row, entry in catalogue.devices_of_nodes()]
        self._drivers = sorted({entry.id.driver for _, entry in devices})
        index = {driver: number for number, driver in enumerate(self._drivers)}
        self._driver = np.array([index[entry.id.driver] for _, entry in devices], dtype=np.intp)
        self._row = np.array([row for row, _ in devices], dtype=np.intp)
        self._identity = np.array([entry.identity for _, entry in devices], dtype=np.intp)

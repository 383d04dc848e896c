"""Container images present on nodes.

As in kube-scheduler, an image has one size, that of the first node seen to have it, for as long as
any node has it.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from holdfast.core.row_columns import RowColumns, cells_of


class Image:
    __slots__ = ("_present", "nodes", "size")

    present: NDArray[np.bool_] = cells_of("_present")
    """The rows that have it."""

    def __init__(self, size: int, columns: RowColumns) -> None:
        self.size = size
        self.nodes = 0
        self._present = columns.new(np.bool_)


class Images:
    """`version` moves when any image appears on or disappears from a node."""

    def __init__(self, columns: RowColumns) -> None:
        self._columns = columns
        self._images: dict[str, Image] = {}
        self._on_row: dict[int, frozenset[str]] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._images)

    def get(self, name: str) -> Image | None:
        return self._images.get(name)

    def on(self, row: int) -> frozenset[str]:
        return self._on_row.get(row, frozenset())

    def set(self, row: int, sizes: Mapping[str, int]) -> None:
        names = frozenset(sizes)
        before = self._on_row.get(row, frozenset())
        # Where no other node has the image, this one's word on its size is the only one.
        resized = [
            name
            for name in sorted(names & before)
            if self._images[name].nodes == 1 and self._images[name].size != sizes[name]
        ]
        if names == before and not resized:
            return
        self.version += 1
        for name in resized:
            self._images[name].size = sizes[name]
        for name in sorted(before - names):
            image = self._images[name]
            image.present[row] = False
            image.nodes -= 1
            if image.nodes == 0:
                del self._images[name]
        for name in sizes:
            if name in before:
                continue
            found = self._images.get(name)
            if found is None:
                found = self._images[name] = Image(sizes[name], self._columns)
            found.present[row] = True
            found.nodes += 1
        if names:
            self._on_row[row] = names
        else:
            self._on_row.pop(row, None)


def normalized(name: str) -> str:
    """An image name with the tag it has when none is given."""
    return name if name.rfind(":") > name.rfind("/") else name + ":latest"

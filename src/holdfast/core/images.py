"""Container images present on nodes.

As in kube-scheduler, an image has one size, that of the first node seen to have it, for as long as
any node has it.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class Image:
    __slots__ = ("nodes", "present", "size")

    def __init__(self, size: int, capacity: int) -> None:
        self.size = size
        self.nodes = 0
        self.present: NDArray[np.bool_] = np.zeros(capacity, dtype=np.bool_)


class Images:
    """`version` moves when any image appears on or disappears from a node."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
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
                found = self._images[name] = Image(sizes[name], self._capacity)
            found.present[row] = True
            found.nodes += 1
        if names:
            self._on_row[row] = names
        else:
            self._on_row.pop(row, None)

    def grow(self, capacity: int) -> None:
        more = capacity - self._capacity
        self._capacity = capacity
        for image in self._images.values():
            image.present = np.pad(image.present, (0, more))


def normalized(name: str) -> str:
    """An image name with the tag it has when none is given."""
    return name if name.rfind(":") > name.rfind("/") else name + ":latest"

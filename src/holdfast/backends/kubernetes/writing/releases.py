"""Capacity that reservations release, which nobody gets before the server knows.

A reservation whose node is replaced by another of its name fails, and what it held there is free. If
the pod that gets it were bound first and the scheduler ended then, whoever leads next would find both
on the node: a reservation says the name of its node and nothing else of it.
"""

import asyncio


class Releases:
    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        """The nodes of reservations that have failed, by uid, until that is written."""
        self._left: dict[str, int] = {}
        """How many there are, by node."""
        self._written: dict[str, asyncio.Future[None]] = {}

    def begin(self, uid: str, node: str) -> None:
        """That a reservation on the node has failed is to be written."""
        if node and uid not in self._nodes:
            self._nodes[uid] = node
            self._left[node] = self._left.get(node, 0) + 1

    def end(self, uid: str) -> None:
        """It is written, or will not be."""
        node = self._nodes.pop(uid, None)
        if node is None:
            return
        self._left[node] -= 1
        if not self._left[node]:
            del self._left[node]
            written = self._written.pop(node, None)
            if written is not None and not written.done():
                written.set_result(None)

    def waiting(self, node: str) -> asyncio.Future[None] | None:
        """Done when all on the node are written; None if they are."""
        if node not in self._left:
            return None
        written = self._written.get(node)
        if written is None:
            written = self._written[node] = asyncio.get_running_loop().create_future()
        return written

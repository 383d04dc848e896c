"""Waiting for claims to be bound.

A pod may be bound once its claims are: the scheduler says which volume, or for which node one is to be
made, and others (the volume controller, a provisioner) do the rest, or say that they cannot.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from holdfast.api import names
from holdfast.api.errors import HoldfastError
from holdfast.api.storage import PersistentVolumeClaim
from holdfast.backends.kubernetes.reading.mirror import is_older

Key = tuple[str, str]
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


class ClaimFailed(HoldfastError):
    """The claim will not be bound as the scheduler wanted."""


class Claims:
    """`known` are the claims as the core has them."""

    def __init__(self, known: Mapping[Key, Any]) -> None:
        self._known = known
        self._waiting: dict[Key, list[asyncio.Future[None]]] = {}

    def is_bound(self, key: Key, written: str, node: str | None) -> bool:
        """Whether the claim is fully bound. `written` is the version our own write made: anything
        older says nothing. With `node`, a volume is being made for that node."""
        claim: PersistentVolumeClaim | None = self._known.get(key)
        if claim is None:
            raise ClaimFailed(f'persistentvolumeclaim "{key[1]}" not found')
        meta = claim.metadata
        if is_older(meta.resource_version, written):
            return False
        if node is not None and meta.annotations.get(names.SELECTED_NODE_ANNOTATION) != node:
            raise ClaimFailed(f'provisioning failed for PVC "{key[1]}"')
        return bool(claim.spec.volume_name) and BIND_COMPLETED in meta.annotations

    def next_change(self, key: Key) -> asyncio.Future[None]:
        """Done when the claim changes."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(future)
        return future

    def changed(self, key: Key) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def __len__(self) -> int:
        return len(self._waiting)

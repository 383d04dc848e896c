"""A bind, from its decision to what became of it.

    volumes written ─► claims bound ─► binding posted ─► confirmed
          │                 │               │
          └────────┬────────┴───────────────┤ refused
                   ▼                        │
                refused                     └─ no answer, or "already assigned": look at the pod

A pod stays assumed until it is known what became of its bind. Where the server did not say, because the
connection was cut or its answer was too slow, the pod itself is looked at before anything is decided.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.api.decode import decode_pod_json
from holdfast.api.errors import InvalidObject
from holdfast.api.meta import ObjectMeta
from holdfast.api.pod import Pod
from holdfast.backends.kubernetes.errors import ApiError, Deposed
from holdfast.backends.kubernetes.http.backoff import Backoff
from holdfast.backends.kubernetes.http.paths import POD, path_of
from holdfast.backends.kubernetes.writing import volumes
from holdfast.backends.kubernetes.writing.claims import ClaimFailed, Claims
from holdfast.backends.kubernetes.writing.queue import Outcome
from holdfast.backends.kubernetes.writing.sender import Passing, Sender, is_conflict, wait_after
from holdfast.core.decisions import Bind, BindVolume, SelectNode
from holdfast.core.events import BindConfirmed, BindRefused, Deleted, Event, Updated

_SERVER_ERRORS = 4
"""So many times in a row the server says it cannot; then the pod is looked at and, if it has no node,
tried again later, perhaps elsewhere."""
_CONFLICTS = 5

Feed = Callable[[Event], None]


class BindJob:
    """Called again and again by the queue until it is done."""

    def __init__(
        self,
        sender: Sender,
        feed: Feed,
        claims: Claims,
        bind: Bind,
        before: Sequence[BindVolume | SelectNode],
        claim_timeout: float,
    ) -> None:
        self._sender = sender
        self._feed = feed
        self._claims = claims
        self._bind = bind
        self._to_write = list(before)
        self._to_await = [
            (each.claim.namespace, each.claim.name, bind.node if isinstance(each, SelectNode) else None)
            for each in before
        ]
        self._written: dict[tuple[str, str], str] = {}
        self._claim_timeout = claim_timeout
        self._give_up_at: float | None = None
        self._backoff = Backoff(first=0.1, most=5.0)
        self._errors = 0

    async def __call__(self) -> Outcome:
        try:
            if self._to_write:
                await self._write_volumes()
            if self._to_await and (pending := self._await_claims()) is not None:
                return pending
            return await self._post()
        except ClaimFailed as error:
            return await self._refuse(str(error))
        except Deposed:
            # Whoever leads now sees the pod as it is.
            return None
        except Passing as error:
            wait = wait_after(error, self._backoff)
            if (
                wait is None
                and self._to_write
                and is_conflict(error)
                and self._backoff.tries < _CONFLICTS
            ):
                wait = self._backoff.next()  # somebody else wrote in between: look again
            return await self._refuse(str(error)) if wait is None else wait

    # Volumes

    async def _write_volumes(self) -> None:
        while self._to_write:
            decision = self._to_write[0]
            version = await volumes.write(self._sender, decision)
            self._written[decision.claim.namespace, decision.claim.name] = version
            del self._to_write[0]
        self._backoff.reset()
        self._give_up_at = asyncio.get_running_loop().time() + self._claim_timeout

    def _await_claims(self) -> Outcome:
        loop = asyncio.get_running_loop()
        while self._to_await:
            namespace, name, node = self._to_await[0]
            key = (namespace, name)
            if self._claims.is_bound(key, self._written.get(key, ""), node):
                del self._to_await[0]
                continue
            assert self._give_up_at is not None
            left = self._give_up_at - loop.time()
            if left <= 0:
                raise ClaimFailed("timed out waiting for the condition")
            change = self._claims.next_change(key)
            self._wake_by(loop.call_later(left, self._claims.changed, key), change)
            return change
        return None

    def _wake_by(self, timer: asyncio.TimerHandle, change: asyncio.Future[None]) -> None:
        change.add_done_callback(lambda _: timer.cancel())

    # The pod

    async def _post(self) -> Outcome:
        pod = self._bind.pod
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if self._bind.annotations:
            metadata["annotations"] = dict(self._bind.annotations)
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"kind": "Node", "name": self._bind.node},
        }
        try:
            await self._sender.write("POST", path_of(POD, pod.namespace, pod.name, "binding"), body)
        except ApiError as error:
            self._errors += error.status != 429
            if error.is_passing and self._errors < _SERVER_ERRORS:
                raise
            return await self._refuse(error.message or str(error))
        self._feed(BindConfirmed(pod.uid))
        return None

    async def _refuse(self, why: str) -> Outcome:
        """Tells the core how the pod really is; and if that is without a node, that the bind failed."""
        pod = self._bind.pod
        try:
            found = decode_pod_json(await self._sender.read(path_of(POD, pod.namespace, pod.name)))
        except ApiError as error:
            if error.status == 404:
                self._gone()
                return None
            if error.is_passing:
                return wait_after(error, self._backoff)
        except InvalidObject:
            pass  # it makes no sense any more, which its reflector will say
        except Passing as error:
            return wait_after(error, self._backoff)
        else:
            if found.metadata.uid != pod.uid:
                self._gone()
                return None
            self._feed(Updated(found))
            if found.spec.node_name:
                return None
        self._feed(BindRefused(pod.uid, why))
        return None

    def _gone(self) -> None:
        pod = self._bind.pod
        meta = ObjectMeta(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        self._feed(Deleted(Pod(metadata=meta)))

"""get and list: consistent pages of a snapshot, and the tokens that continue them.

A continue token has the revision of the first page, so that all pages show one moment, and the last
object shown. Once that revision is compacted, the response is 410 with another token, which continues
from the same object with the current objects; the list is then inconsistent.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.local.apiserver.api_state import ApiRequest
from holdfast.local.apiserver.request_bodies import read_json
from holdfast.local.apiserver.request_info import ListOptions, parse_revision
from holdfast.local.apiserver.selection import Selection, select
from holdfast.local.store import Compacted, FutureRevision, Key, Raw, Snapshot
from holdfast.machinery.schema.types import storage_group, to_version
from holdfast.machinery.status import StatusError, bad_request, expired, not_found, revision_too_large

_LIST_EXPIRED = "The resourceVersion for the provided list is too old."


class Listed(NamedTuple):
    objects: Sequence[Raw]
    metadata: Raw
    revision: int


def get(call: ApiRequest, resource_version: str = "") -> Raw:
    if resource_version:
        try:
            wanted = parse_revision(resource_version)
        except ValueError as error:
            raise StatusError(500, "", str(error)) from None
        _not_newer(call, wanted)
    return found(call)


def found(call: ApiRequest) -> Raw:
    raw = call.cluster.store.get(call.key)
    if raw is None:
        raise not_found(call.resource, call.name)
    return raw


class Page:
    """A range of a snapshot, before selection. Selecting reads nothing but the snapshot, so it may run
    in another thread."""

    def __init__(
        self,
        call: ApiRequest,
        limit: int,
        chosen: Selection,
        snapshot: Snapshot,
        after: Key | None,
        revision: int,
    ) -> None:
        self._type = call.type
        self._limit = max(limit, 0)
        self._chosen = chosen
        self._snapshot = snapshot
        self._start, self._end = snapshot.span(call.namespace or None, after)
        self._revision = revision

    @property
    def size(self) -> int:
        """How many objects may have to be visited."""
        if not self._chosen.everything:
            return self._end - self._start
        return min(self._limit, self._end - self._start)

    def listed(self) -> Listed:
        snapshot, chosen, limit, revision = self._snapshot, self._chosen, self._limit, self._revision
        metadata: Raw = {"resourceVersion": str(revision)}
        if not self._type.builtin:
            metadata["continue"] = ""
        if chosen.everything and not limit:
            return Listed(snapshot.objects[self._start : self._end], metadata, revision)
        objects: list[Raw] = []
        for at in range(self._start, self._end):
            raw = snapshot.objects[at]
            if chosen.everything or chosen.matches(to_version(self._type, raw)):
                if limit and len(objects) == limit:
                    last = snapshot.keys[at - 1]
                    metadata["continue"] = make_token(Place(revision, last.namespace, last.name))
                    if chosen.everything:
                        metadata["remainingItemCount"] = self._end - at
                    break
                objects.append(raw)
        return Listed(objects, metadata, revision)


def list_objects(call: ApiRequest, options: ListOptions) -> Listed:
    return page(call, options).listed()


def page(call: ApiRequest, options: ListOptions) -> Page:
    chosen = select(call.type, options.label_selector, options.field_selector)
    if options.continue_token:
        return _continued(call, options, chosen)
    snapshot = _snapshot(call, options)
    return Page(call, options.limit, chosen, snapshot, None, snapshot.revision)


def _snapshot(call: ApiRequest, options: ListOptions) -> Snapshot:
    store = call.cluster.store
    group, kind = storage_group(call.type), call.type.kind
    if options.resource_version in ("", "0"):
        return store.snapshot(group, kind)
    try:
        wanted = parse_revision(options.resource_version)
    except ValueError as error:
        raise bad_request(f"invalid resource version: {error}") from None
    # Without resourceVersionMatch, a revision with a limit means exactly that revision.
    exact = options.match == "Exact" or (not options.match and options.limit > 0)
    if wanted > store.revision:
        raise revision_too_large(wanted, store.revision, retry_after=0 if exact else 1)
    if not exact:
        return store.snapshot(group, kind)
    try:
        return store.snapshot(group, kind, at=wanted)
    except Compacted:
        raise expired(_LIST_EXPIRED) from None


def _continued(call: ApiRequest, options: ListOptions, chosen: Selection) -> Page:
    if options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    place = read_token(options.continue_token)
    store = call.cluster.store
    group, kind = storage_group(call.type), call.type.kind
    after = place.key(group, kind)
    if place.revision == NOW:
        snapshot = store.snapshot(group, kind)
        return Page(call, options.limit, chosen, snapshot, after, snapshot.revision)
    try:
        snapshot = store.snapshot(group, kind, at=place.revision)
    except Compacted:
        raise ContinueExpired(place) from None
    except FutureRevision:
        raise revision_too_large(place.revision, store.revision, retry_after=0) from None
    return Page(call, options.limit, chosen, snapshot, after, place.revision)


def _not_newer(call: ApiRequest, wanted: int) -> None:
    current = call.cluster.store.revision
    if wanted > current:
        raise revision_too_large(wanted, current)


NOW = -1
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a "
    "new list without the continue parameter, or use the continue token in this response to retrieve "
    "the remainder of the results. Continuing with the provided token results in an inconsistent list "
    "- objects that were created, modified, or deleted between the time the first chunk was returned "
    "and now may show up in the list."
)


class Place(NamedTuple):
    revision: int
    namespace: str
    name: str

    def key(self, group: str, kind: str) -> Key:
        return Key(group, kind, self.namespace, self.name)


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


def make_token(place: Place) -> str:
    start = f"{place.namespace}/{place.name}\0" if place.namespace else f"{place.name}\0"
    token = msgspec.json.encode(_Token("meta.k8s.io/v1", place.revision, start))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def read_token(text: str) -> Place:
    """Raises StatusError 400."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.convert(read_json(data), _Token)
    except (binascii.Error, ValueError, StatusError) as error:
        why = f"continue key is not valid: {error}"
        raise bad_request(f"invalid continue token: {why}") from None
    if token.v != "meta.k8s.io/v1":
        why = f'continue key is not valid: server does not recognize this encoded version "{token.v}"'
        raise bad_request(f"invalid continue token: {why}")
    if token.rv == 0 or token.rv < NOW:
        raise bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start "
            "resourceVersion (version meta.k8s.io/v1)"
        )
    namespace, _, name = token.start.removesuffix("\0").rpartition("/")
    return Place(token.rv, namespace, name)


class ContinueExpired(StatusError):
    """410 with a token to continue from the current objects, in the metadata of the Status."""

    def __init__(self, place: Place) -> None:
        super().__init__(410, "Expired", _TOO_OLD)
        self._token = make_token(place._replace(revision=NOW))

    def status(self) -> dict[str, object]:
        return {**super().status(), "metadata": {"continue": self._token}}

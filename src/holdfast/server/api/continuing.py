"""Tokens with which a list in pages goes on where it stopped.

A token names the revision of the first page, so that all pages show one moment, and the last object
that was shown. Once that moment is forgotten, the answer is 410 with another token that goes on from
the same object as things are now; whoever uses it knows the list is of two moments.
"""

import base64
import binascii
from typing import NamedTuple

import msgspec

from holdfast.server.api.bodies import read_json
from holdfast.server.api.status import ApiError, bad_request
from holdfast.store import Key

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
    """Raises ApiError 400."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.convert(read_json(data), _Token)
    except (binascii.Error, ValueError, ApiError) as error:
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


class ContinueExpired(ApiError):
    """410, with a token to go on with in the Status' own metadata."""

    def __init__(self, place: Place) -> None:
        super().__init__(410, "Expired", _TOO_OLD)
        self._token = make_token(place._replace(revision=NOW))

    def status(self) -> dict[str, object]:
        return {**super().status(), "metadata": {"continue": self._token}}

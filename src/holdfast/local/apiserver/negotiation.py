"""In which form an answer is wanted: JSON or YAML; the object itself, a table of it, or its metadata.

Protobuf is not spoken. A client that prefers it, as Go clients do, names JSON as its second choice and
is given that.
"""

from functools import lru_cache
from typing import NamedTuple

from holdfast.machinery.status import StatusError

JSON = "application/json"
YAML = "application/yaml"
META_GROUP = "meta.k8s.io"
DISCOVERY_GROUP = "apidiscovery.k8s.io"

_KNOWN = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_META_KINDS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_META_VERSIONS = frozenset({"v1", "v1beta1"})


class Form(NamedTuple):
    """`kind` is empty for the object as it is."""

    media: str = JSON
    kind: str = ""
    version: str = ""

    @property
    def table(self) -> bool:
        return self.kind == "Table"

    @property
    def api_version(self) -> str:
        return f"{META_GROUP}/{self.version}"


PLAIN = Form()


class _Choice(NamedTuple):
    media: str
    parameters: dict[str, str]


@lru_cache(maxsize=512)
def object_form(accept: str) -> Form:
    """For objects and lists. Raises StatusError 406 when there is no form both sides know."""
    offered = False
    for choice in _choices(accept):
        media = _media(choice.media)
        if media is None:
            continue
        wanted = choice.parameters.get("as", "")
        if not wanted:
            return Form(media)
        offered = True
        group, version = choice.parameters.get("g", ""), choice.parameters.get("v", "")
        if wanted in _META_KINDS and group == META_GROUP and version in _META_VERSIONS:
            return Form(media, wanted, version)
    if offered:
        raise StatusError(
            406, "NotAcceptable", f"only the following media types are accepted: {_KNOWN}"
        )
    raise not_acceptable()


@lru_cache(maxsize=512)
def media_type(accept: str) -> str:
    """For everything that has one shape only. Raises StatusError 406."""
    for choice in _choices(accept):
        media = _media(choice.media)
        if media is not None and "as" not in choice.parameters:
            return media
    raise not_acceptable()


@lru_cache(maxsize=64)
def wants_aggregated_discovery(accept: str) -> bool:
    """Whether all groups are wanted in one document, rather than just their list."""
    for choice in _choices(accept):
        if choice.media in (JSON, "application/*", "*/*"):
            wanted = choice.parameters
            if "as" not in wanted:
                return False
            if (wanted["as"], wanted.get("g"), wanted.get("v")) == (
                "APIGroupDiscoveryList",
                DISCOVERY_GROUP,
                "v2",
            ):
                return True
    return False


def not_acceptable() -> StatusError:
    message = f"406: Not Acceptable\n\nAvailable representations: {_KNOWN}, {_STREAMS}"
    return StatusError(406, "NotAcceptable", message, {})


def _media(name: str) -> str | None:
    if name in (JSON, "*/*", "application/*"):
        return JSON
    return YAML if name == YAML else None


def _choices(accept: str) -> list[_Choice]:
    """What the client takes, best first."""
    if not accept.strip():
        return [_Choice("*/*", {})]
    weighted = []
    for part in accept.split(","):
        media, *rest = part.split(";")
        parameters = {}
        for each in rest:
            name, _, value = each.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        weighted.append((_weight(parameters.pop("q", "1")), _Choice(media.strip().lower(), parameters)))
    weighted.sort(key=lambda pair: -pair[0])
    return [choice for weight, choice in weighted if weight > 0]


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0

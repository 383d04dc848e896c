"""Applies manifest files to a local cluster like `kubectl apply --server-side`."""

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.api import names
from holdfast.api.decode import object_name
from holdfast.api.documents import Document
from holdfast.api.errors import HoldfastError
from holdfast.local.apiserver.api_state import ApiRequest, ApiState
from holdfast.local.apiserver.verbs.patch import APPLY, patch
from holdfast.local.apiserver.verbs.writes import create_object
from holdfast.local.store import Raw
from holdfast.machinery.object_request import WriteOptions
from holdfast.machinery.status import StatusError

MANAGER = "holdfast-up"
_FIRST = ("CustomResourceDefinition", "Namespace", "PriorityClass", "StorageClass")
"""Kinds that others need when they are created; these come first, wherever they stand."""


class NotApplied(HoldfastError):
    """One line per problem, each naming the file and the document."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def apply_documents(cluster: ApiState, documents: Sequence[Document]) -> int:
    """Applies all valid documents and returns their number. Raises NotApplied with all problems."""
    problems: list[str] = []
    for document in sorted(documents, key=_rank):
        problems.extend(f"{document}: {problem}" for problem in _apply(cluster, document.data))
    if problems:
        raise NotApplied(problems)
    return len(documents)


def _rank(document: Document) -> int:
    kind = document.data.get("kind") if isinstance(document.data, dict) else None
    return _FIRST.index(kind) if kind in _FIRST else len(_FIRST)


def _apply(cluster: ApiState, raw: object) -> Iterator[str]:
    if not isinstance(raw, dict):
        yield "expected an object"
        return
    metadata = raw.get("metadata")
    if raw.get("apiVersion") == names.SIM_API:
        yield f"{raw.get('kind')}: is for `holdfast simulate` only"
        return
    group, _, version = str(raw.get("apiVersion") or "").rpartition("/")
    type = cluster.catalogue.kind(group, version, str(raw.get("kind") or ""))
    if type is None:
        yield f"no kind {raw.get('kind')!r} in version {raw.get('apiVersion')!r}"
        return
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        yield f"{raw['kind']}: metadata.name: is required"
        return
    namespace = str(metadata.get("namespace") or names.DEFAULT_NAMESPACE) if type.namespaced else ""
    call = ApiRequest(
        cluster,
        type,
        namespace,
        str(metadata.get("name") or ""),
        options=WriteOptions(manager=MANAGER, validation="Strict", force=True),
    )
    try:
        _put(call, raw)
    except StatusError as error:
        yield f"{object_name(raw)}: {error.message}"


def _put(call: ApiRequest, raw: Raw) -> None:
    if call.name:
        patch(call, msgspec.json.encode(raw), APPLY)
    else:
        create_object(call, raw)

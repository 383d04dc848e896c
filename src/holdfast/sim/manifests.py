"""Loads YAML and JSON documents from files, folders and standard input."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from holdfast.api.documents import MAX_BYTES, MAX_DEPTH, BadFileError, Document, read_yaml, whole_number
from holdfast.api.errors import HoldfastError
from holdfast.api.kinds import KINDS, NO_KINDS, KindInfo, Kinds, api_version_of
from holdfast.api.names import SIM_API, WORKLOAD_API

SUFFIXES = (".yaml", ".yml", ".json")
_HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape that makes sense beside another one only."""


class InvalidInput(HoldfastError):
    """One line per error, each naming the file, the document and the field."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def load_files(paths: Sequence[str]) -> list[Document]:
    """All documents of all files, in order. A folder stands for its files, `-` for stdin."""
    problems: list[str] = []
    documents: list[Document] = []
    for name, text in _texts(paths, problems):
        try:
            documents.extend(load_text(text, name))
        except BadFileError as error:
            place = f"{name}: document {error.number}, line {error.line}"
            problems.append(f"{place}: {error}")
    if problems:
        raise InvalidInput(problems)
    return documents


def load_text(text: str, name: str) -> list[Document]:
    """The documents of a text; empty ones are left out but counted. A List stands for its items."""
    return list(_expanded(_documents(text, name)))


def _documents(text: str, name: str) -> list[Document]:
    if name.endswith(".json") or text.lstrip()[:1] == "{":
        try:
            return _json(text, name)
        except json.JSONDecodeError as error:
            if name.endswith(".json"):
                raise BadFileError(1, error.lineno, f"not JSON: {error.msg}") from None
    return list(read_yaml(text, name))


def load_one(path: str) -> Any:
    """The only document of a file, for configuration files."""
    documents = load_files([path])
    if len(documents) != 1:
        found = str(len(documents))
        if (
            documents
            and documents[0].item is not None
            and len({each.number for each in documents}) == 1
        ):
            found = f"a List of {len(documents)} objects"
        raise InvalidInput([f"{path}: expected one document, found {found}"])
    return documents[0].data


def _texts(paths: Sequence[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    for given in paths:
        path = Path(given)
        names = [given]
        if given != "-" and path.is_dir():
            names = sorted(str(each) for each in path.iterdir() if each.suffix in SUFFIXES)
            if not names:
                problems.append(f"{given}: no {', '.join(SUFFIXES)} file in this directory")
        for name in names:
            try:
                with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
                    content = file.read(MAX_BYTES + 1)
                if len(content) > MAX_BYTES:
                    problems.append(f"{name}: larger than {MAX_BYTES // 1024**2} MiB")
                    continue
                yield name, content.decode("utf-8-sig")
            except OSError as error:
                problems.append(f"{name}: {error.strerror or error}")
            except UnicodeDecodeError as error:
                problems.append(f"{name}: not UTF-8 text, at byte {error.start}")


def _expanded(documents: Iterable[Document]) -> Iterator[Document]:
    for document in documents:
        item_kind = _item_kind(document.data)
        if item_kind is None:
            yield document
            continue
        items = document.data["items"] or []
        if not isinstance(items, list):
            raise BadFileError(document.number, document.line, "items: expected a list")
        yield from _expanded(
            Document(document.file, document.number, document.line, {**item_kind, **item}, i)
            if isinstance(item, dict)
            else Document(document.file, document.number, document.line, item, i)
            for i, item in enumerate(items)
        )


def _item_kind(data: Any) -> dict[str, Any] | None:
    """The kind of a list's items, which they may omit: a PodList has Pods. None if it is not a list."""
    if not isinstance(data, dict) or "items" not in data:
        return None
    kind = data.get("kind")
    if kind == "List":
        return {}
    if isinstance(kind, str) and kind.endswith("List") and "apiVersion" in data and "spec" not in data:
        return {"apiVersion": data["apiVersion"], "kind": kind.removesuffix("List")}
    return None


def _json(text: str, name: str) -> list[Document]:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(found)
        if len(mapping) != len(found):
            [(twice, _)] = Counter(key for key, _ in found).most_common(1)
            raise BadFileError(1, 1, f"key {twice!r} is given twice")
        return mapping

    def no_number(constant: str) -> None:
        raise BadFileError(1, 1, f"not JSON: {constant} is not a number")

    try:
        data = json.loads(
            text, object_pairs_hook=pairs, parse_constant=no_number, parse_int=whole_number
        )
        if _HALF_A_CHARACTER.search(text):
            json.dumps(data, ensure_ascii=False).encode()
    except RecursionError:
        raise BadFileError(1, 1, f"nested deeper than {MAX_DEPTH} levels") from None
    except UnicodeEncodeError:
        raise BadFileError(1, 1, "not Unicode text: half of a surrogate pair") from None
    if _depth(data) > MAX_DEPTH:
        raise BadFileError(1, 1, f"nested deeper than {MAX_DEPTH} levels")
    return [Document(name, 1, 1, data)] if data is not None else []


def _depth(data: Any) -> int:
    depth, level = 0, [data]
    while level := [v for v in level if isinstance(v, dict | list)]:
        depth += 1
        level = [inner for v in level for inner in (v.values() if isinstance(v, dict) else v)]
    return depth


# Kinds that scheduling does not read are skipped and counted, so that a dump of a cluster loads.
#
# A kind is skipped if it is listed here, or if Holdfast reads nothing of its API group (custom
# resources, and groups such as rbac.authorization.k8s.io). Any other kind of a group that Holdfast
# reads is probably misspelt, and an error. So is one that resembles a kind that a plugin declares.


_UNREAD = {
    "": (
        "ComponentStatus",
        "ConfigMap",
        "Endpoints",
        "LimitRange",
        "PodTemplate",
        "ResourceQuota",
        "Secret",
        "ServiceAccount",
    ),
    "apps": ("ControllerRevision",),
    "coordination.k8s.io": ("LeaseCandidate",),
    "policy": ("PodSecurityPolicy",),
    "resource.k8s.io": ("PodSchedulingContext", "ResourceClass", "ResourcePoolStatusRequest"),
    "scheduling.k8s.io": ("PodGroup", "Workload"),
    "scheduling.koordinator.sh": ("PodMigrationPolicy",),
    "scheduling.sigs.k8s.io": ("ElasticQuota",),
    "storage.k8s.io": ("VolumeAttributesClass",),
}
_OLD_VERSIONS = tuple(
    f"resource.k8s.io/{each}" for each in ("v1alpha2", "v1alpha3", "v1beta1", "v1beta2")
)
"""In dumps of clusters before Kubernetes 1.34; their claims have another form."""
_DOTLESS = ("autoscaling", "extensions")
"""Kubernetes' own groups without a dot that nothing is read of; custom groups have a dot."""
_GROUPS = {info.group for info in KINDS.values()}
_OURS = SIM_API.partition("/")[0]
_MISSPELT = 0.75


def is_skipped(api_version: Any, kind: Any, declared: Kinds = NO_KINDS) -> bool:
    if not (isinstance(api_version, str) and isinstance(kind, str) and api_version and kind):
        return False
    if api_version == WORKLOAD_API:
        return False  # its kinds are skipped in other versions
    group = api_version.rpartition("/")[0]
    if any(_is_of_kind(group, kind, info) for info in declared.values()):
        return False
    if api_version in _OLD_VERSIONS:
        return True
    if group in _GROUPS or group == _OURS:
        return kind in _UNREAD.get(group, ())
    if "." not in group and group not in _DOTLESS:
        return False
    groups = {info.group for info in KINDS.values() if info.kind == kind}
    if group in _DOTLESS:
        return not groups
    return not any(_ratio(group, known) >= _MISSPELT for known in groups)


def _is_of_kind(group: str, kind: str, info: KindInfo) -> bool:
    """Whether the object is of the kind, in any version, or its group or kind is misspelt."""
    if info.group == group:
        return info.kind == kind or _ratio(info.kind, kind) >= _MISSPELT
    return info.kind == kind and bool(group) and _ratio(info.group, group) >= _MISSPELT


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def counted(skipped: Counter[tuple[str, str]]) -> str:
    """`31 ConfigMap, 12 Secret` from counts by group and kind, most frequent first."""
    by_name: Counter[str] = Counter()
    for (group, kind), count in skipped.items():
        read = api_version_of(kind)
        is_other = bool(read) and read.rpartition("/")[0] != group
        by_name[f"{kind}.{group}" if is_other else kind] += count
    ordered = sorted(by_name.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered)

"""Renames what objects are called. A snapshot then tells only its shape; scheduling decides as before.

Every name, namespace, label and image is cut at `-`, `.` and `/` into words, and each word is replaced
by a token wherever it occurs. So what belongs together still does: a pod's name still begins with that
of its ReplicaSet, a claim's has that of its StatefulSet. Tokens are in the order of the words, since
decisions that are otherwise equal go by name. Numbers stay (ordinals, indices, the values of `Gt`), and
so do UIDs and times. The word `default` stays: objects without a namespace mean that one.

Names that programs know stay: kinds, resources, schedulers, drivers and classes of devices, attributes
of devices and the expressions about them, labels of the domains of Kubernetes, Koordinator, Volcano and
Holdfast (the values of the first are renamed). Messages are removed. Every other text is renamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.api import names as n
from holdfast.api.names import DEFAULT_NAMESPACE
from holdfast.kube.object_client import Raw

Rename = Callable[[str], str]

# Words


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SEGMENT = re.compile(rf"({_UUID.pattern})|([0-9]*)([^-./0-9][^-./]*)?")
_IN_IMAGE = re.compile(r"[^-./:@]+")
_STAY = frozenset({"true", "false", n.SYSTEM_CLUSTER_CRITICAL, n.SYSTEM_NODE_CRITICAL})
_LONGEST_LABEL = 63
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Renaming:
    """Words and their tokens: first `collect` all texts, then `freeze`, then `rename` them."""

    def __init__(self) -> None:
        self._texts: set[str] = set(_STAY)
        self._words: set[str] = set()
        self._tokens: dict[str, str] = {}
        self._renamed: dict[str, str] = {text: text for text in _STAY}

    def collect(self, text: str) -> str:
        if text not in self._texts:
            self._texts.add(text)
            words = [word for _, _, word in _SEGMENT.findall(text) if word]
            self._words.update(words)
            if len(words) > 1 and len(text) <= _LONGEST_LABEL:
                self._words.add(text)  # in case the tokens of its words are too long for a label
        return text

    def collect_image(self, text: str) -> str:
        self._words.update(_IN_IMAGE.findall(text))
        return text

    def freeze(self) -> None:
        width = 1
        while len(_DIGITS) ** width < len(self._words):
            width += 1
        for number, word in enumerate(sorted(self._words)):
            letter = "a" if word < DEFAULT_NAMESPACE else "w"  # so that the order is kept
            self._tokens[word] = f"{letter}{_in_digits(number, width)}"
        self._tokens[DEFAULT_NAMESPACE] = DEFAULT_NAMESPACE

    def rename(self, text: str) -> str:
        known = self._renamed.get(text)
        if known is None:
            known = _SEGMENT.sub(self._segment, text)
            if len(known) > _LONGEST_LABEL >= len(text):
                known = self._tokens[text]
            self._renamed[text] = known
        return known

    def rename_image(self, text: str) -> str:
        """A tag stays a tag: without one, `latest` is meant."""
        return _IN_IMAGE.sub(lambda word: self._tokens[word[0]], text)

    def _segment(self, found: re.Match[str]) -> str:
        uid, number, word = found.groups()
        return uid or f"{number or ''}{self._tokens[word] if word else ''}"


def _in_digits(number: int, width: int) -> str:
    text = ""
    for _ in range(width):
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text


# Objects


_DOMAINS = ("kubernetes.io", "k8s.io", "koordinator.sh", "volcano.sh", "holdfast.io")
_READ_DOMAINS = _DOMAINS[2:]
"""Domains of which values are words that Holdfast knows, unless they are names."""
_KEYS = frozenset(
    {
        "controller-revision-hash",
        "controller-uid",
        "foregroundDeletion",
        "job-name",
        "metadata.name",
        "orphan",
        "pod-template-generation",
        "pod-template-hash",
    }
)
_KNOWN_VALUES = (n.OS_LABEL, n.ARCH_LABEL, "beta.kubernetes.io/os", "beta.kubernetes.io/arch")
_NAMES = frozenset(
    {
        n.GANG_NAME,
        n.HELD_FOR,
        n.HOLD_JOB,
        n.LIGHT_GROUP_NAME,
        n.MIGRATION_JOB,
        n.PREEMPTED_BY,
        n.PREEMPTS,
        n.QUEUE_NAME_ANNOTATION,
        n.RESERVATION_ID,
        n.TASK_SPEC,
        n.VOLCANO_GROUP_NAME_ANNOTATION,
        n.VOLCANO_JOB_NAME,
    }
)
"""Labels and annotations of those domains whose values are names."""
_REMOVED = frozenset(
    {n.EVICT_REASON, n.EVICT_TRIGGER, n.HELD_BECAUSE, n.RESERVATION_PROVISION_ERROR, "message"}
)
"""Annotations and fields with free text."""
_LABEL_MAPS = frozenset({"labels", "matchLabels", "nodeSelector", "reservationSelector", "selector"})
_LABEL_KEYS = frozenset(
    {"finalizers", "key", "matchLabelKeys", "mismatchLabelKeys", "topologyKey", "topologyKeys"}
)
"""Fields whose values are keys of labels, or look like them."""
_KEPT_FIELDS = frozenset(
    {
        "apiVersion",
        "attacher",
        "attributes",
        "cel",
        "declaredFeatures",
        "deviceClassName",
        "distinctAttribute",
        "driver",
        "extendedResourceName",
        "hostIP",
        "kind",
        "matchAttribute",
        "nodeInfo",
        "provisioner",
        "resourceName",
        "resourceVersion",
        "schedule",
        "schedulerName",
        "timeZone",
        "uid",
    }
)
_KEPT_KINDS = frozenset({"Device", "NodeResourceTopology"})
"""Kinds of which only the metadata is renamed: amounts, positions and numbers of hardware."""
_KEPT_NAMES = frozenset({"CSIDriver", "DeviceClass"})
"""Kinds whose objects are named after a program or a product."""
_NO_NAME = re.compile(
    r"[A-Z][A-Za-z]*"  # a constant such as NoSchedule
    r"|[+-]?[0-9.]+(?:[EPTGM]i?|Ki|[numkeE]|e[+-]?[0-9]+)?%?"  # an amount
    r"|(?:[0-9.]+(?:h|m|s|ms|us|ns))+"  # a duration
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"
)


class Anonymizer:
    """Walks an object, and renames what it finds by the given functions."""

    def __init__(self, rename: Rename, rename_image: Rename) -> None:
        self._rename = rename
        self._rename_image = rename_image

    def object(self, raw: Raw) -> Raw:
        kind = raw["kind"]
        if kind in _KEPT_KINDS:
            return {**raw, "metadata": self._map(raw["metadata"])}
        found = self._map(raw)
        if kind in _KEPT_NAMES:
            found["metadata"]["name"] = raw["metadata"]["name"]
        if kind == "CSINode":
            for renamed, given in zip(
                (found.get("spec") or {}).get("drivers") or (),
                (raw.get("spec") or {}).get("drivers") or (),
                strict=True,
            ):
                renamed["name"] = given["name"]
        return found

    def _map(self, given: Raw) -> Raw:
        if "key" in given and ("operator" in given or "effect" in given):
            return self._requirement(given)
        return {key: self._field(key, value) for key, value in given.items() if key not in _REMOVED}

    def _field(self, key: str, value: Any) -> Any:
        if key in _KEPT_FIELDS:
            return value
        if key in _LABEL_KEYS:
            return _each(self._label_key, value)
        if isinstance(value, dict):
            if key == "annotations":
                return self._annotations(value)
            if key in _LABEL_MAPS and all(isinstance(each, str) for each in value.values()):
                return {self._label_key(k): self._label_value(k, v) for k, v in value.items()}
            return self._map(value)
        if isinstance(value, list):
            if key == "names":  # of an image
                return [self._rename_image(each) for each in value]
            return [self._item(each) for each in value]
        if isinstance(value, str):
            return self._text(key, value)
        return value

    def _item(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._map(value)
        if isinstance(value, list):
            return [self._item(each) for each in value]
        return self._text("", value) if isinstance(value, str) else value

    def _text(self, key: str, value: str) -> str:
        if key == "image":
            return self._rename_image(value)
        is_name = key.endswith(("name", "Name")) or key == "namespace"
        return value if not is_name and _is_no_name(value) else self._rename(value)

    def _requirement(self, given: Raw) -> Raw:
        """A requirement of a selector, a taint or a toleration."""
        found = dict(given)
        key = given["key"]
        found["key"] = self._label_key(key)
        if isinstance(given.get("values"), list):
            found["values"] = [self._label_value(key, each) for each in given["values"]]
        if isinstance(given.get("value"), str):
            found["value"] = self._label_value(key, given["value"])
        return found

    def _label_key(self, key: str) -> str:
        if key in _KEYS or _is_in(key, _DOMAINS):
            return key
        return self._rename(key)

    def _label_value(self, key: str, value: str) -> str:
        if key in _KNOWN_VALUES or (_is_in(key, _READ_DOMAINS) and key not in _NAMES):
            return value
        return self._rename(value)

    def _annotations(self, given: dict[str, str]) -> dict[str, str]:
        return {
            self._label_key(key): self._annotation(key, value)
            for key, value in given.items()
            if key not in _REMOVED
        }

    def _annotation(self, key: str, value: str) -> str:
        if value[:1] in ("{", "["):
            try:
                found = msgspec.json.decode(value)
            except msgspec.MsgspecError:
                return self._rename(value)
            return msgspec.json.encode(self._item(found)).decode()
        if _is_no_name(value):
            return value
        return self._label_value(key, value)


@lru_cache(maxsize=100_000)
def _is_no_name(text: str) -> bool:
    return _NO_NAME.fullmatch(text) is not None


def _each(change: Rename, value: Any) -> Any:
    if isinstance(value, list):
        return [change(each) if isinstance(each, str) else each for each in value]
    return change(value) if isinstance(value, str) else value


def _is_in(key: str, domains: tuple[str, ...]) -> bool:
    domain = key.partition("/")[0]
    return any(domain == each or domain.endswith(f".{each}") for each in domains)


def anonymize(objects: Iterable[Raw]) -> tuple[list[Raw], Renaming]:
    """All objects of a cluster, renamed, and how."""
    given = list(objects)
    renaming = Renaming()
    collector = Anonymizer(renaming.collect, renaming.collect_image)
    for raw in given:
        collector.object(raw)
    renaming.freeze()
    renamer = Anonymizer(renaming.rename, renaming.rename_image)
    return [renamer.object(raw) for raw in given], renaming

"""Renames what objects are called. A snapshot then tells only its shape; scheduling decides as before.

Every name, namespace, label and image is cut at `-`, `.` and `/` into words, and each word is replaced
by a token wherever it occurs. So what belongs together still does: a pod's name still begins with that
of its ReplicaSet, a claim's has that of its StatefulSet. Tokens are in the order of the words, since
decisions that are otherwise equal go by name. Numbers stay (ordinals, indices, the values of `Gt`), and
so do UIDs and times. The word `default` stays: objects without a namespace mean that one.

What becomes of a text is decided by where it stands, not by what it looks like. Fields, labels and
annotations whose values are words, amounts or programs that Holdfast knows are listed here, and stay;
messages are removed; every other text is renamed. Only amounts and times are recognised as such, in
fields that do not name anything: they stand under the names of any resources.
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
_EVERY_HOST = frozenset({"", "0.0.0.0", "::", "127.0.0.1", "::1"})
_LONGEST_LABEL = 63
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Renaming:
    """Words and their tokens: first `collect` all texts, then `freeze`, then `rename` them."""

    def __init__(self) -> None:
        self._texts: set[str] = set(_STAY)
        self._words: set[str] = set()
        self._addresses: dict[str, str] = {}
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

    def collect_address(self, text: str) -> str:
        if text not in _EVERY_HOST:
            count = len(self._addresses)
            self._addresses.setdefault(text, f"10.{count >> 16 & 255}.{count >> 8 & 255}.{count & 255}")
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

    def rename_address(self, text: str) -> str:
        """Equal addresses stay equal."""
        return self._addresses.get(text, text)

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


_KUBERNETES = ("kubernetes.io", "k8s.io")
_READ_DOMAINS = ("koordinator.sh", "volcano.sh", "holdfast.io")
_CHOSEN = ("node-role.kubernetes.io/", "node-restriction.kubernetes.io/", "kubernetes.io/cluster/")
"""What follows these prefixes in the key of a label is up to the cluster."""
_KEYS = frozenset(
    {
        "controller-revision-hash",
        "controller-uid",
        "foregroundDeletion",
        "holdfast.io/template-digest",
        "job-name",
        "kubernetes",
        "metadata.name",
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "orphan",
        "pod-template-generation",
        "pod-template-hash",
        *(name for name in vars(n).values() if isinstance(name, str) and "/" in name),
    }
)
_STAYING_VALUES = frozenset(
    {
        n.AMPLIFICATION_RATIO,
        n.ARCH_LABEL,
        n.AT_END,
        n.BEFORE_START,
        n.CPU_TOPOLOGY,
        n.DEVICE_ALLOCATED,
        n.DEVICE_ALLOCATE_HINT,
        n.DEVICE_JOINT_ALLOCATE,
        n.GANG_MATCH_POLICY,
        n.GANG_MODE,
        n.GANG_WAITING_TIME,
        n.GPU_PARTITIONS,
        n.GPU_PARTITION_POLICY,
        n.GPU_PARTITION_SPEC,
        n.GPU_VENDOR,
        n.HOLD_EXPECTED_START,
        n.HOLD_LABEL,
        n.KOORD_PRIORITY_CLASS,
        n.KUBELET_CPU_POLICY,
        n.LEAD,
        n.LIGHT_GROUP_MATCH_POLICY,
        n.LIMIT_TO_ALLOCATABLE,
        n.MIGRATED_PLUGINS_ANNOTATION,
        n.NODE_CPU_BIND_POLICY,
        n.NODE_NUMA_ALLOCATE_STRATEGY,
        n.NODE_NUMA_TOPOLOGY_POLICY,
        n.NUMA_TOPOLOGY_SPEC,
        n.OS_LABEL,
        n.OVERRAN,
        n.PREEMPTOR_UID,
        n.PREEMPTS,
        n.PROVISIONED_BY_ANNOTATION,
        n.QOS_CLASS,
        n.RELEASE_IF_UNUSED_AFTER,
        n.RESERVATION_INNER,
        n.RESERVATION_RESIZE_ALLOCATABLE,
        n.RESERVATION_RESTRICTED_OPTIONS,
        n.RESOURCE_SPEC,
        n.RESOURCE_STATUS,
        n.RUN_ESTIMATE,
        n.SIM_AT,
        n.SIM_DELETE_AT,
        n.SIM_RUNS_FOR,
        n.SIM_STOPS_IN,
        n.STARTS_AT,
        n.SYSTEM_CPUS,
        "batch.kubernetes.io/cronjob-scheduled-timestamp",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "holdfast.io/template-digest",
    }
)
"""Labels and annotations whose values are words of programs, amounts, times, UIDs or hardware."""
_REMOVED = frozenset(
    {
        n.EVICT_REASON,
        n.EVICT_TRIGGER,
        n.HELD_BECAUSE,
        n.RESERVATION_PROVISION_ERROR,
        "controlledResources",
        "message",
    }
)
"""Annotations and fields with free text, and a map of plugins that nothing reads."""
_REMOVED_ANNOTATIONS = _REMOVED | {n.SOFT_EVICTION}
"""The label of the last is read; the annotation says why, in free text."""
_LABEL_MAPS = frozenset({"labels", "matchLabels", "nodeSelector", "reservationSelector", "selector"})
_NAME_MAPS = frozenset({"disruptedPods", "minTaskMember", "taskStatusCount"})
"""Maps whose keys are names of pods or tasks."""
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
        "kind",
        "matchAttribute",
        "nodeInfo",
        "os",
        "provisioner",
        "resourceName",
        "resourceNames",
        "resourceVersion",
        "schedulerName",
        "uid",
        "schedule",
        "timeZone",
    }
)
"""Names of programs, and what only they understand; and when recurring work starts."""
_WORD_FIELDS = frozenset(
    {
        "accessModes",
        "action",
        "allocatePolicy",
        "allocationMode",
        "atEnd",
        "beforeStart",
        "cachingMode",
        "completionMode",
        "concurrencyPolicy",
        "dequeueStrategy",
        "effect",
        "fsType",
        "mode",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "operator",
        "persistentVolumeReclaimPolicy",
        "phase",
        "podManagementPolicy",
        "podReplacementPolicy",
        "policy",
        "preemptionPolicy",
        "protocol",
        "qosClass",
        "reclaimPolicy",
        "resize",
        "restartPolicy",
        "scope",
        "state",
        "status",
        "unhealthyPodEvictionPolicy",
        "volumeBindingMode",
        "volumeMode",
        "whenDeleted",
        "whenScaled",
        "whenUnsatisfiable",
    }
)
"""Fields whose texts are one of a few words. Of those that may be objects, such as `status`, the fields
are looked at."""
_REFERENCES = frozenset({"device", "namespace", "parent", "pool", "queue", "request"})
"""Fields with names, beside those that end so."""
_ADDRESSES = frozenset({"monitors", "targetPortal"})
"""Hosts and ports, cut into words as images are."""
_KEPT_KINDS = frozenset({"Device", "NodeResourceTopology"})
"""Kinds of which only the metadata is renamed: amounts, positions and numbers of hardware."""
_KEPT_NAMES = frozenset({"CSIDriver", "DeviceClass"})
"""Kinds whose objects are named after a program or a product."""
_AMOUNT = re.compile(
    r"[+-]?[0-9.]+(?:[EPTGM]i?|Ki|[numkeE]|e[+-]?[0-9]+)?%?"
    r"|(?:[0-9.]+(?:h|m|s|ms|us|ns))+"  # a duration
)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")


class Anonymizer:
    """Walks an object, and renames what it finds by the given functions."""

    def __init__(self, rename: Rename, rename_image: Rename, rename_address: Rename) -> None:
        self._rename = rename
        self._rename_image = rename_image
        self._rename_address = rename_address

    @classmethod
    def that_collects(cls, renaming: Renaming) -> Anonymizer:
        return cls(renaming.collect, renaming.collect_image, renaming.collect_address)

    @classmethod
    def that_renames(cls, renaming: Renaming) -> Anonymizer:
        return cls(renaming.rename, renaming.rename_image, renaming.rename_address)

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
        found = {key: self._field(key, value) for key, value in given.items() if key not in _REMOVED}
        label = given.get("key")
        if isinstance(label, str):  # a requirement of a selector, a taint or a toleration
            if isinstance(given.get("values"), list):
                found["values"] = [self._label_value(label, each) for each in given["values"]]
            if isinstance(given.get("value"), str):
                found["value"] = self._label_value(label, given["value"])
        return found

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
            if key in _NAME_MAPS:
                return {self._rename(k): self._item("", v) for k, v in value.items()}
            return self._map(value)
        if isinstance(value, list):
            return [self._item(key, each) for each in value]
        return self._text(key, value) if isinstance(value, str) else value

    def _item(self, key: str, value: Any) -> Any:
        """Of a list in the field `key`. There are no amounts in lists."""
        if isinstance(value, dict):
            return self._map(value)
        if isinstance(value, list):
            return [self._item(key, each) for each in value]
        return self._text(key, value, has_amounts=False) if isinstance(value, str) else value

    def _text(self, key: str, value: str, *, has_amounts: bool = True) -> str:
        if key in _WORD_FIELDS:
            return value
        if key == "type":  # one that a program knows has no domain
            return self._label_key(value) if "/" in value else value
        if key == "reason":
            return value if value.isalpha() else self._rename(value)
        if key == "hostIP":
            return self._rename_address(value)
        if key in _ADDRESSES or key in ("image", "names"):  # the names of an image
            return self._rename_image(value)
        if key in _REFERENCES or key.endswith(("name", "Name")):
            return self._rename(value)
        return value if _is_time(value) or (has_amounts and _is_amount(value)) else self._rename(value)

    def _label_key(self, key: str) -> str:
        if key in _KEYS or (_is_in(key, _KUBERNETES) and not key.startswith(_CHOSEN)):
            return key
        if key.startswith(_CHOSEN) or _is_in(key, _READ_DOMAINS):
            domain, _, chosen = key.partition("/")
            return f"{domain}/{self._rename(chosen)}"
        return self._rename(key)

    def _label_value(self, key: str, value: str) -> str:
        return value if key in _STAYING_VALUES else self._rename(value)

    def _annotations(self, given: dict[str, str]) -> dict[str, str]:
        return {
            self._label_key(key): self._annotation(key, value)
            for key, value in given.items()
            if key not in _REMOVED_ANNOTATIONS
        }

    def _annotation(self, key: str, value: str) -> str:
        if key in _STAYING_VALUES:
            return value
        if value[:1] in ("{", "["):
            try:
                found = msgspec.json.decode(value)
            except msgspec.MsgspecError:
                return self._rename(value)
            return msgspec.json.encode(self._item("", found)).decode()
        return self._rename(value)


@lru_cache(maxsize=100_000)
def _is_amount(text: str) -> bool:
    return _AMOUNT.fullmatch(text) is not None


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None


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
    collector = Anonymizer.that_collects(renaming)
    for raw in given:
        collector.object(raw)
    renaming.freeze()
    renamer = Anonymizer.that_renames(renaming)
    return [renamer.object(raw) for raw in given], renaming

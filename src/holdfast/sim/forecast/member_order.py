"""The order of gang members that were created in the same second.

A scheduler tries the members of a gang in the order in which it saw them. Timestamps have whole
seconds; the order within one is that of the resourceVersions, as long as nothing but the scheduler
writes the pending pods. A scheduler of a forecast sees all pods at once and would take the order of
their names.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from holdfast.api.documents import Document
from holdfast.api.errors import TimeError
from holdfast.api.times import format_time, parse_time
from holdfast.scheduler.jobs.job import KEYS

Raw = dict[str, Any]

_SIZES = ("nodeSelector", "affinity", "tolerations", "priority", "resources")
_MOST = 10
"""Into how many seconds one is divided at most."""


def in_order_seen(documents: Sequence[Document]) -> list[Document]:
    """The documents, with pending gang members of one second, if they differ, in seconds before it: as
    many seconds as are needed to keep their order."""
    seconds: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, each in enumerate(documents):
        if isinstance(each.data, dict) and _is_pending_member(each.data):
            metadata = each.data["metadata"]
            version = str(metadata.get("resourceVersion") or "")
            if version.isdecimal():
                seconds[str(metadata.get("creationTimestamp") or "")].append((int(version), at))
    found = list(documents)
    for created, pods in seconds.items():
        seen = [at for _, at in sorted(pods)]
        by_name = sorted(seen, key=lambda at: documents[at].data["metadata"]["name"])
        kinds = {at: _kind(documents[at].data) for at in seen}
        runs = [list(run) for _, run in groupby(seen, key=kinds.__getitem__)]
        if len(runs) > _MOST or [kinds[at] for at in seen] == [kinds[at] for at in by_name]:
            continue
        for number, run in enumerate(reversed(runs)):
            for at in run:
                found[at] = _created_before(found[at], created, number)
    return found


def _is_pending_member(raw: Raw) -> bool:
    spec, metadata = raw.get("spec") or {}, raw.get("metadata") or {}
    if raw.get("kind") != "Pod" or spec.get("nodeName"):
        return False
    given = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return bool(spec.get("schedulingGroup")) or not KEYS.isdisjoint(given)


def _kind(raw: Raw) -> str:
    """What the order of members matters for."""
    spec = raw["spec"]
    sizes = [each.get("resources") for each in spec.get("containers") or ()]
    return json.dumps([sizes, *(spec.get(each) for each in _SIZES)], sort_keys=True)


def _created_before(document: Document, created: str, seconds: int) -> Document:
    try:
        time = format_time(parse_time(created) - seconds)
    except TimeError:
        return document
    metadata = {**document.data["metadata"], "creationTimestamp": time}
    return replace(document, data={**document.data, "metadata": metadata})

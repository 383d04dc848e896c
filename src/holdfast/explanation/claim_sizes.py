"""Fewer devices for a pod or reservation: how many its ResourceClaims may request at most."""

import copy
from collections.abc import Iterator, Mapping

from holdfast.api.kinds import KindInfo
from holdfast.explanation.advice import Advisor
from holdfast.explanation.missing_claims import named_claims, replaced_claim
from holdfast.explanation.repairs import RESIZE, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts, Subject, starts_on
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import ObjectChange, applied
from holdfast.snapshot.cluster_snapshot import RESOURCE_CLAIM, ClusterSnapshot

_CLAIMS_PLUGIN = "DynamicResources"
_SHARES = (7, 6, 5, 4, 3, 2, 1)
"""How many eighths of all counts together are tried, where fewer devices of one request do not help."""

Counts = Mapping[str, int]
"""The number of devices by the name of the request."""


def consider_fewer_devices(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
) -> None:
    """Proposes the largest number of devices with which the object would be scheduled: of one request,
    or of all."""
    if not any(each.plugin == _CLAIMS_PLUGIN for each in placing.rejections.values()):
        return
    claims = _claims(snapshot, subject, pod)
    asked: dict[str, int] = {}
    for _, raw in claims:
        for name, exact in _requests(raw):
            asked[name] = max(asked.get(name, 1), int(exact.get("count") or 1))
    asked = {name: count for name, count in asked.items() if count > 1}

    def helps(counts: Counts) -> bool:
        with applied(snapshot, _replaced(claims, counts)):
            return bool(starts_on(snapshot, subject))

    options: list[Counts] = []
    for name, count in asked.items():
        if not helps({name: 1}):
            continue
        low, high = 1, count
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if helps({name: middle}) else (low, middle)
        options.append({name: low})
    if not options and len(asked) > 1:
        shares = ({name: max(1, n * each // 8) for name, n in asked.items()} for each in _SHARES)
        options += [each for each in [next(filter(helps, shares), None)] if each is not None]
    for counts in options:
        text = ", ".join(
            f"{n} {'device' if n == 1 else 'devices'} instead of {asked[name]} for request {name}"
            for name, n in counts.items()
        )
        changed = [
            f"{info.kind} {raw['metadata']['name']}"
            for info, raw in claims
            if any(name in counts for name, _ in _requests(raw)) and not _is_generated(info, raw)
        ]
        pods = ", and the pod" if any(_is_generated(*each) for each in claims) else ""
        where = f" in {few(changed)} (delete and create it again{pods})" if changed else ""
        advisor.propose(
            repair(f"request at most {text}{where}", "Resize", _replaced(claims, counts), RESIZE)
        )


def _claims(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> list[tuple[KindInfo, Raw]]:
    """The claims that are not allocated, and templates, of the pod and of the waiting pods of its
    job."""
    job = snapshot.cluster.jobs.of(pod)
    members = job.waiting() if job is not None and not job.is_ready else [pod]
    subjects = [subject, *(Subject.of(each) for each in members if each is not pod)]
    found: dict[tuple[str, str], tuple[KindInfo, Raw]] = {}
    for each in subjects:
        for info, raw in named_claims(snapshot, each, pod.namespace):
            if not (raw.get("status") or {}).get("allocation"):
                found[info.kind, raw["metadata"]["name"]] = info, raw
    return list(found.values())


def _is_generated(info: KindInfo, raw: Raw) -> bool:
    """Whether the claim was made from a template."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return info is RESOURCE_CLAIM and any(each.get("controller") for each in owners)


def _requests(raw: Raw) -> Iterator[tuple[str, Raw]]:
    """The requests of a claim or template by name, alternatives of one under its name."""
    spec = raw.get("spec") or {}
    devices = (spec.get("devices") or (spec.get("spec") or {}).get("devices")) or {}
    for each in devices.get("requests") or ():
        for exact in (each.get("exactly"), *(each.get("firstAvailable") or ())):
            if exact is not None and exact.get("allocationMode") != "All":
                yield str(each.get("name")), exact


def _replaced(claims: list[tuple[KindInfo, Raw]], counts: Counts) -> list[ObjectChange]:
    objects: list[ObjectChange] = []
    for info, raw in claims:
        changed = copy.deepcopy(raw)
        for name, exact in _requests(changed):
            if name in counts and int(exact.get("count") or 1) > counts[name]:
                exact["count"] = counts[name]
        if changed != raw:
            objects += replaced_claim(info, raw, changed)
    return objects

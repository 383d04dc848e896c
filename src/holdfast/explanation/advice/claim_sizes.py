"""Fewer devices for a pod or reservation: how many its ResourceClaims may request at most."""

import copy
from collections.abc import Callable, Iterator, Mapping

from holdfast.api.kinds import KindInfo
from holdfast.api.plurals import number_of
from holdfast.api.resource_claims import ALL_DEVICES, EXACT_COUNT
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.missing_claims import named_claims, replaced_claim
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.repairs.pod_sizes import SMALLEST_SHARE
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts, Subject, rejection_on, starts_on
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.claims_request import MAX_RESULTS
from holdfast.snapshot.cluster_changes import ObjectChange, applied
from holdfast.snapshot.cluster_snapshot import RESOURCE_CLAIM, ClusterSnapshot

CLAIMS_PLUGIN = "DynamicResources"
_SHARES = (7, 6, 5, 4, 3, 2, 1)
"""How many eighths of all counts together are tried, where fewer devices of one request do not help."""

Counts = Mapping[str, int]
"""The number of devices by the name of the request."""
Claims = list[tuple[KindInfo, Raw]]
"""ResourceClaims and templates."""


def consider_fewer_devices(
    snapshot: ClusterSnapshot,
    subject: Subject,
    pod: PodRecord,
    placing: NodeVerdicts,
    advisor: Advisor,
) -> None:
    """Proposes the largest number of devices with which the object would be scheduled: of one request,
    or of all."""
    if any(each.plugin == CLAIMS_PLUGIN for each in placing.rejections.values()):
        for each in _fewer(snapshot, subject, pod, lambda: bool(starts_on(snapshot, subject))):
            advisor.propose(each)


def fewer_device_steps(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """The largest number of devices that one node has for the claims."""

    def has_devices() -> bool:
        record = subject.record(snapshot)
        return record is not None and rejection_on(snapshot, record, row).plugin != CLAIMS_PLUGIN

    yield from _fewer(snapshot, subject, pod, has_devices)


def _fewer(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, is_enough: Callable[[], bool]
) -> Iterator[Repair]:
    yield from _fewer_served(snapshot, subject, pod, is_enough)
    claims = unallocated_claims(snapshot, subject, pod)
    asked: dict[str, int] = {}
    for _, raw in claims:
        for name, exact in _requests(_devices(raw)):
            is_all = exact.get("allocationMode") == ALL_DEVICES
            count = MAX_RESULTS + 1 if is_all else int(exact.get("count") or 1)
            asked[name] = max(asked.get(name, 1), count)
    asked = {name: count for name, count in asked.items() if count > 1}

    def helps(counts: Counts) -> bool:
        with applied(snapshot, _lowered(claims, counts).objects):
            return is_enough()

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
        most = {name: min(n, MAX_RESULTS) for name, n in asked.items()}
        shares = [{name: max(1, n * each // 8) for name, n in most.items()} for each in _SHARES]
        shares.append(dict.fromkeys(asked, 1))
        options += [each for each in [next(filter(helps, shares), None)] if each is not None]
    for counts in options:
        text = ", ".join(
            f"{number_of(n, 'device')} instead of "
            f"{'all' if asked[name] > MAX_RESULTS else asked[name]} for request {name}"
            for name, n in counts.items()
        )
        changed = _lowered(claims, counts)
        yield repair(f"request at most {text}{changed.where}", "Resize", changed.objects, RESIZE)


def _fewer_served(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, is_enough: Callable[[], bool]
) -> Iterator[Repair]:
    """The most devices in place of an extended resource that a device class serves."""
    asked = dict(pod.cls.requests)
    for slot, name in snapshot.cluster.claims.delegated(pod.cls):
        best, low, high = None, -(-asked[slot] // SMALLEST_SHARE), asked[slot]
        while low < high:
            middle = low if best is None else (low + high) // 2
            option = resize(snapshot, subject, {name: (asked[slot], middle)})
            if option is None:
                break
            with applied(snapshot, option.change.objects):
                helps = is_enough()
            if not helps and best is None:
                break
            if helps:
                best, low = option, middle + 1
            else:
                high = middle
        if best is not None:
            yield best


# Claims with other requests


class ChangedClaims:
    """Claims and templates that request other devices, created again since their specs are
    immutable."""

    def __init__(self, claims: Claims, edit: Callable[[Raw], None]) -> None:
        """`edit` changes `devices` of the spec in place."""
        self.objects: list[ObjectChange] = []
        self._names: list[str] = []
        self._has_generated = False
        for info, raw in claims:
            changed = copy.deepcopy(raw)
            edit(_devices(changed))
            if changed == raw:
                continue
            self.objects += replaced_claim(info, raw, changed)
            if _is_generated(info, raw):
                self._has_generated = True
            else:
                self._names.append(f"{info.kind} {raw['metadata']['name']}")

    @property
    def where(self) -> str:
        """` in ResourceClaim c (delete and create it again)`"""
        pods = ", and the pod" if self._has_generated else ""
        return f" in {few(self._names)} (delete and create it again{pods})" if self._names else ""


def _lowered(claims: Claims, counts: Counts) -> ChangedClaims:
    def edit(name: str, exact: Raw) -> None:
        is_all = exact.get("allocationMode") == ALL_DEVICES
        if name in counts and (is_all or int(exact.get("count") or 1) > counts[name]):
            exact |= {"allocationMode": EXACT_COUNT, "count": counts[name]}

    return ChangedClaims(claims, each_request(edit))


def each_request(edit: Callable[[str, Raw], None]) -> Callable[[Raw], None]:
    """Changes each request, by its name, and alternatives of one under its name."""

    def edit_all(devices: Raw) -> None:
        for name, exact in _requests(devices):
            edit(name, exact)

    return edit_all


def unallocated_claims(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Claims:
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


def _devices(raw: Raw) -> Raw:
    """What a claim, or template, requests."""
    spec = raw.get("spec") or {}
    return (spec.get("devices") or (spec.get("spec") or {}).get("devices")) or {}


def _requests(devices: Raw) -> Iterator[tuple[str, Raw]]:
    """The requests by name, alternatives of one under its name."""
    for each in devices.get("requests") or ():
        for exact in (each.get("exactly"), *(each.get("firstAvailable") or ())):
            if exact is not None:
                yield str(each.get("name")), exact

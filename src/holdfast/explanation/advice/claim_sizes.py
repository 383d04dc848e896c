"""Fewer devices for a pod or reservation: how many its ResourceClaims may request at most."""

from collections.abc import Callable, Iterator, Mapping

from holdfast.api.plurals import number_of
from holdfast.api.resource_claims import ALL_DEVICES, EXACT_COUNT
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.smaller_requests import resize
from holdfast.explanation.repairs.changed_claims import (
    ChangedClaims,
    ClaimsOfPod,
    claims_of_pod,
    each_request,
    outdated_claims,
)
from holdfast.explanation.repairs.pod_sizes import SMALLEST_SHARE
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair
from holdfast.explanation.verdicts import NodeVerdicts, Subject, rejection_on, starts_on
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.claims_request import MAX_RESULTS
from holdfast.snapshot.cluster_changes import applied
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

CLAIMS_PLUGIN = "DynamicResources"
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
    if all(each.plugin != CLAIMS_PLUGIN for each in placing.rejections.values()):
        return
    if ("RecreatePods",) in advisor.actions:
        return  # the template requests fewer already
    options = _fewer(snapshot, subject, pod, lambda: bool(starts_on(snapshot, subject)))
    for each in options:
        advisor.propose(each)
    if advisor.has_siblings:
        _consider_fewer_for_all(advisor, claims_of_pod(snapshot, subject, pod))


def consider_outdated_claims(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, advisor: Advisor
) -> None:
    """Claims that were made from a template which is another one since."""
    any(map(advisor.propose, outdated_claims(snapshot, claims_of_pod(snapshot, subject, pod))))


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
    claims = claims_of_pod(snapshot, subject, pod)
    asked = _counts(claims)

    def helps(counts: Counts) -> bool:
        changes = _lowered(snapshot, claims, counts).objects
        if not changes:
            return False
        with applied(snapshot, changes):
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
        yield _resized(snapshot, claims, counts)


def _counts(claims: ClaimsOfPod) -> dict[str, int]:
    """How many devices each request is for, if more than one."""
    asked: dict[str, int] = {}
    for name, exact in claims.requests:
        is_all = exact.get("allocationMode") == ALL_DEVICES
        count = MAX_RESULTS + 1 if is_all else int(exact.get("count") or 1)
        asked[name] = max(asked.get(name, 1), count)
    return {name: count for name, count in asked.items() if count > 1}


def _resized(
    snapshot: ClusterSnapshot, claims: ClaimsOfPod, counts: Counts, with_running: bool = False
) -> Repair:
    asked = _counts(claims)
    text = ", ".join(
        f"{number_of(n, 'device')} instead of "
        f"{'all' if asked[name] > MAX_RESULTS else asked[name]} for request {name}"
        for name, n in counts.items()
    )
    changed = _lowered(snapshot, claims, counts, with_running)
    return repair(f"request at most {text}{changed.where}", "Resize", changed.objects, RESIZE)


def _consider_fewer_for_all(advisor: Advisor, claims: ClaimsOfPod) -> None:
    """The most devices of a request with which all pods of a workload start, those that run created
    again as well; found by bisection."""

    def with_count(name: str, count: int) -> Repair:
        return _resized(advisor.snapshot, claims, {name: count}, with_running=True)

    for name, count in _counts(claims).items():
        low, high = 0, count
        while high - low > 1:
            middle = (low + high) // 2
            is_low = advisor.is_enough(with_count(name, middle))
            low, high = (middle, high) if is_low else (low, middle)
        if low:
            advisor.propose(with_count(name, low))


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


def _lowered(
    snapshot: ClusterSnapshot, claims: ClaimsOfPod, counts: Counts, with_running: bool = False
) -> ChangedClaims:
    def edit(name: str, exact: Raw) -> None:
        is_all = exact.get("allocationMode") == ALL_DEVICES
        if name in counts and (is_all or int(exact.get("count") or 1) > counts[name]):
            exact |= {"allocationMode": EXACT_COUNT, "count": counts[name]}

    return ChangedClaims(snapshot, claims, each_request(edit), with_running)

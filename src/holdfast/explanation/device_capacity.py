"""Capacity of devices that several claims can share: what is left of it, and requests that fit."""

from collections.abc import Iterator

from holdfast.api.quantity import format_amount, from_nano, parse
from holdfast.explanation.claim_details import capacity_left, devices_explained
from holdfast.explanation.claim_sizes import ChangedClaims, each_request, unallocated_claims
from holdfast.explanation.repairs import RESIZE, Repair, repair
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.search import CAPACITY
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def smaller_shares(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """Requests for the most capacity that is left on a device of the row."""
    explained = devices_explained(snapshot, pod, row)
    refused = [each for each in explained.devices if each.reason == CAPACITY] if explained else []
    left = capacity_left(snapshot, row, {each.device for each in refused})
    names = {each.request.partition("/")[0] for each in refused}
    texts: dict[str, None] = {}

    def edit(name: str, exact: Raw) -> None:
        requests = (exact.get("capacity") or {}).get("requests") or {}
        for resource, asked in requests.items() if name in names else ():
            most = max(left.get(resource, ()), default=0)
            if 0 < most < parse(asked):
                requests[resource] = format_amount(resource, from_nano(resource, most))
                texts[f"{requests[resource]} {resource} instead of {asked} for request {name}"] = None

    changed = ChangedClaims(unallocated_claims(snapshot, subject, pod), each_request(edit))
    if changed.objects:
        text = f"request at most {', '.join(texts)}{changed.where}"
        yield repair(text, "Resize", changed.objects, RESIZE)

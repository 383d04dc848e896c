"""Taints of devices that the requests of a pod's ResourceClaims do not tolerate."""

from collections.abc import Iterator

from holdfast.explanation.claim_details import devices_explained
from holdfast.explanation.claim_sizes import ChangedClaims, each_request, unallocated_claims
from holdfast.explanation.repairs import Repair, repair
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.search import TAINT
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


def device_tolerations(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> Iterator[Repair]:
    """Tolerations of the taints that keep the requests from devices of a node: of one taint if that may
    be enough, then of all."""
    explained = devices_explained(snapshot, pod, row)
    reasons = [each for each in explained.devices if each.reason == TAINT] if explained else []
    taints = dict.fromkeys(taint for each in reasons for taint in each.taints)
    names = {each.request.partition("/")[0] for each in reasons}
    claims = unallocated_claims(snapshot, subject, pod)
    sets = [[taint] for taint in taints]
    if len(taints) > 1:
        sets.append(list(taints))
    for chosen in sets:
        added = [
            {"key": key, "operator": "Equal", "value": value, "effect": effect}
            if value
            else {"key": key, "operator": "Exists", "effect": effect}
            for key, value, effect in chosen
        ]

        def edit(name: str, exact: Raw, added: list[Raw] = added) -> None:
            if name in names:
                exact["tolerations"] = [*(exact.get("tolerations") or ()), *added]

        changed = ChangedClaims(claims, each_request(edit))
        texts = " and ".join(
            f"{key}={value}:{effect}" if value else f"{key}:{effect}" for key, value, effect in chosen
        )
        if changed.objects:
            text = f"tolerate {texts}, a taint of devices,{changed.where}"
            yield repair(text, "Tolerate", changed.objects)

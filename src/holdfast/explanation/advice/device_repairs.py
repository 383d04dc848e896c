"""Changes that free devices of a node for the claims of a pod, or with which the claims need less of
them: tolerated taints, deleted DeviceTaintRules, smaller shares, unused claims, pods that end.
"""

from collections.abc import Iterator

from holdfast.api.plurals import plural
from holdfast.api.quantity import format_amount, from_nano, parse
from holdfast.explanation.advice.evictions import end_of, evictable
from holdfast.explanation.advice.unused_claims import deletion_of, unused_claims
from holdfast.explanation.facts.claim_details import capacity_left, devices_explained
from holdfast.explanation.facts.device_taint_rules import DEVICE_TAINT_RULE, rules_behind
from holdfast.explanation.repairs.changed_claims import ChangedClaims, claims_of_pod, each_request
from holdfast.explanation.repairs.repair import RESIZE, Repair, repair
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey
from holdfast.scheduler.managers.claims.search import CAPACITY, TAINT
from holdfast.snapshot.cluster_changes import delete
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
    claims = claims_of_pod(snapshot, subject, pod)
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

        changed = ChangedClaims(snapshot, claims, each_request(edit))
        texts = " and ".join(
            f"{key}={value}:{effect}" if value else f"{key}:{effect}" for key, value, effect in chosen
        )
        if changed.objects:
            kind = plural(len(chosen), "a taint", "taints")
            text = f"tolerate {texts}, {kind} of devices,{changed.where}"
            yield repair(text, "Tolerate", changed.objects)


def deleted_taint_rules(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[Repair]:
    """The DeviceTaintRules that keep the requests from devices of a node deleted: one if that may be
    enough, then all."""
    explained = devices_explained(snapshot, pod, row)
    rules = rules_behind(snapshot, row, explained.devices) if explained else []
    names = [rule.metadata.name for rule in rules]
    for chosen in [*([name] for name in names), *([names] if len(names) > 1 else ())]:
        text = f"delete {plural(len(chosen), 'DeviceTaintRule')} {' and '.join(chosen)}, once the "
        text += f"devices that {plural(len(chosen), 'it taints', 'they taint')} may be used again"
        objects = [delete(DEVICE_TAINT_RULE, name) for name in chosen]
        yield repair(text, "DeleteTaintRule", objects, RESIZE)


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

    claims = claims_of_pod(snapshot, subject, pod)
    changed = ChangedClaims(snapshot, claims, each_request(edit))
    if changed.objects:
        text = f"request at most {', '.join(texts)}{changed.where}"
        yield repair(text, "Resize", changed.objects, RESIZE)


def device_steps(
    snapshot: ClusterSnapshot, pod: PodRecord, row: int, with_evictions: bool
) -> Iterator[Repair]:
    """Changes that free devices of a row."""
    manager = snapshot.cluster.claims
    entries = manager.catalogue.visible(row).entries
    own = set(manager.pods.keys(pod.uid))
    holders = {key for entry in entries for key in manager.use.holders(entry.identity)} - own
    for raw in unused_claims(snapshot):
        metadata = raw["metadata"]
        if ResourceClaimKey(metadata.get("namespace") or "", metadata["name"]) in holders:
            yield deletion_of([raw])
    node = snapshot.cluster.nodes.name(row)
    for each in evictable(snapshot, pod, row)[1] if with_evictions else ():
        claims = (claim.metadata for claim in manager.consumed_by(each))
        if any(ResourceClaimKey(claim.namespace, claim.name) in holders for claim in claims):
            yield end_of(snapshot, [each], f" on {node}", pod=pod)

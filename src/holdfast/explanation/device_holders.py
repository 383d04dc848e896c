"""The claims that have devices of a node: deleting those that no pod uses and ending pods, one by one,
as steps of a combination."""

from collections.abc import Iterator

from holdfast.explanation.evictions import end_of, evictable
from holdfast.explanation.repairs import Repair
from holdfast.explanation.unused_claims import deletion_of, unused_claims
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot


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
            yield end_of(snapshot, [each], f" on {node}")

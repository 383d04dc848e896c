"""Compares the scheduler's cache with the API server and reports the differences.

Like kube-scheduler's cache comparer. On a busy cluster a difference may be an event that has not
arrived yet; one that persists is a bug.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.api.kinds import KINDS
from holdfast.api.meta import Object
from holdfast.api.names import RESERVATION_API
from holdfast.api.reservation import Reservation, ReservationPhase, ReservationStatus
from holdfast.kube.client import NODE, POD, Client, get, path_of
from holdfast.kube.decoding import WATCHED, Broken, decode_page
from holdfast.kube.errors import ApiError
from holdfast.scheduler.cluster.records import Phase
from holdfast.scheduler.reservations import ReservationInfo
from holdfast.scheduler.reservations.reservation_status import status_of
from holdfast.scheduler.scheduler import Scheduler
from holdfast.scheduler.state.cluster import Cluster
from holdfast.scheduler.state.recount import validate_state

_RESERVATION = KINDS[RESERVATION_API, "Reservation"]


class Difference(msgspec.Struct):
    """Object names as they appear in timelines. Empty lists mean that cache and server agree."""

    missing_pods: list[str]
    """The server has them, the cache does not."""
    redundant_pods: list[str]
    misplaced_pods: list[str]
    """In the cache, but on another node than on the server."""
    misnominated_pods: list[str]
    """Without a node, and with another nominated node in the cache than on the server."""
    missing_nodes: list[str]
    redundant_nodes: list[str]
    missing_reservations: list[str]
    redundant_reservations: list[str]
    misjudged_reservations: list[str]
    """In the cache, but with another phase, node, allocated amount or owners than in their status."""
    inconsistent: list[str]
    """Inconsistencies within the cache."""

    @property
    def is_empty(self) -> bool:
        return not any(getattr(self, field) for field in self.__struct_fields__)


async def compare(client: Client, scheduler: Scheduler) -> Difference:
    selector = next(w.field_selector for w in WATCHED if w.info is POD)
    pods = await _all(client, f"{path_of(POD)}?fieldSelector={selector.replace('!=', '%21%3D')}", POD)
    nodes = await _all(client, path_of(NODE), NODE)
    cluster = scheduler.cluster
    on_server = {pod.metadata.uid: pod for pod in pods}
    known = cluster.pods
    misplaced, misnominated = [], []
    for uid in sorted(on_server.keys() & known.keys()):
        record, node = known[uid], on_server[uid].spec.node_name
        believed = cluster.nodes.name(record.row) if record.phase is Phase.ASSIGNED else ""
        if record.phase is not Phase.ASSUMED and believed != node:
            misplaced.append(
                f"{record.ref}: {believed or 'no node'} in the cache, {node or 'no node'} on the server"
            )
        nominated = on_server[uid].status.nominated_node_name
        if record.phase is Phase.PENDING and record.nominated != nominated:
            misnominated.append(
                f"{record.ref}: {record.nominated or 'none'} in the cache, "
                f"{nominated or 'none'} on the server"
            )
    reservations = {each.metadata.uid: each for each in await _reservations(client)}
    reservation_cache = {
        uid: each for uid, each in cluster.reservations.known.items() if not each.virtual
    }
    node_names = {node.metadata.name for node in nodes}
    known_nodes = {info.name for info in cluster.nodes.info.values()}
    return Difference(
        missing_pods=sorted(_name(on_server[uid]) for uid in on_server.keys() - known.keys()),
        redundant_pods=sorted(str(known[uid].ref) for uid in known.keys() - on_server.keys()),
        misplaced_pods=sorted(misplaced),
        misnominated_pods=sorted(misnominated),
        missing_nodes=sorted(node_names - known_nodes),
        redundant_nodes=sorted(known_nodes - node_names),
        missing_reservations=sorted(
            f"Reservation/{reservations[uid].metadata.name}"
            for uid in reservations.keys() - reservation_cache.keys()
        ),
        redundant_reservations=sorted(
            str(reservation_cache[uid].ref) for uid in reservation_cache.keys() - reservations.keys()
        ),
        misjudged_reservations=sorted(
            difference
            for uid in reservations.keys() & reservation_cache.keys()
            for difference in _misjudged(cluster, reservation_cache[uid], reservations[uid])
        ),
        inconsistent=[str(problem) for problem in validate_state(cluster)],
    )


async def _reservations(client: Client) -> list[Reservation]:
    try:
        return await _all(client, path_of(_RESERVATION), _RESERVATION)
    except ApiError as error:
        if error.status != 404:
            raise
        return []  # the server does not know the kind


def _misjudged(cluster: Cluster, reservation: ReservationInfo, there: Reservation) -> Iterator[str]:
    pod = reservation.pod
    if pod is not None and pod.phase is Phase.ASSUMED:
        return
    node = cluster.nodes.name(pod.row) if pod is not None and pod.row >= 0 else ""
    ours = _facts(status_of(cluster.reservations, reservation, node, cluster.now))
    theirs = _facts(there.status)
    for fact, believed in ours.items():
        if believed != theirs[fact]:
            yield (
                f"{reservation.ref}: {fact} {believed or 'none'} in the cache, "
                f"{theirs[fact] or 'none'} on the server"
            )


def _facts(status: ReservationStatus) -> dict[str, str]:
    used = ", ".join(f"{name}={amount}" for name, amount in sorted((status.allocated or {}).items()))
    return {
        "phase": status.phase or ReservationPhase.PENDING,
        "node": status.node_name,
        "allocated": used,
        "owners": ", ".join(sorted(owner.uid for owner in status.current_owners)),
    }


async def _all(client: Client, path: str, info: Any) -> list[Any]:
    found: list[Any] = []
    more = ""
    while True:
        separator = "&" if "?" in path else "?"
        page = decode_page(
            info, await client.call(get(f"{path}{separator}limit=500{more}"), attempts=5)
        )
        found += [item for item in page.items if not isinstance(item, Broken)]
        if not page.continue_:
            return found
        more = f"&continue={page.continue_}"


def _name(pod: Object) -> str:
    return f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"

"""The kinds that can be explained. Importing it needs no scheduler: shell completion uses it."""

from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import RESERVATION_API, SIGS_PODGROUP_API, VOLCANO_API, WORKLOAD_API


class ExplainedKind(NamedTuple):
    aliases: tuple[str, ...]
    """What users may call it besides its key."""
    infos: tuple[KindInfo, ...]
    """An object of any of these is meant."""


EXPLAINED = {
    "pod": ExplainedKind(("pods", "po"), (KINDS["v1", "Pod"],)),
    "reservation": ExplainedKind(
        ("reservations", "rsv", "hold", "holds", "reservations.scheduling.koordinator.sh"),
        (KINDS[RESERVATION_API, "Reservation"],),
    ),
    "podgroup": ExplainedKind(
        ("podgroups", "pg"),
        tuple(KINDS[api, "PodGroup"] for api in (VOLCANO_API, SIGS_PODGROUP_API, WORKLOAD_API)),
    ),
    "deployment": ExplainedKind(("deployments", "deploy"), (KINDS["apps/v1", "Deployment"],)),
    "statefulset": ExplainedKind(("statefulsets", "sts"), (KINDS["apps/v1", "StatefulSet"],)),
    "daemonset": ExplainedKind(("daemonsets", "ds"), (KINDS["apps/v1", "DaemonSet"],)),
    "replicaset": ExplainedKind(("replicasets", "rs"), (KINDS["apps/v1", "ReplicaSet"],)),
    "job": ExplainedKind(("jobs",), (KINDS["batch/v1", "Job"],)),
}
"""By the name of the kind on the command line."""


def known_kinds() -> dict[str, str]:
    """The key of `EXPLAINED` for each name that a user may give."""
    return {alias: kind for kind, each in EXPLAINED.items() for alias in (kind, *each.aliases)}

"""The kinds that can be explained. Importing it needs no scheduler: shell completion uses it."""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.api.kinds import KINDS, KindInfo
from holdfast.api.names import (
    HOLDFAST_API,
    RESERVATION_API,
    SIGS_PODGROUP_API,
    VOLCANO_API,
    WORKLOAD_API,
)
from holdfast.api.similar_names import did_you_mean


class ExplainedKind(NamedTuple):
    infos: tuple[KindInfo, ...]
    """An object of any of these is meant."""
    aliases: tuple[str, ...] = ()
    """What users may call it besides what kubectl takes."""


EXPLAINED = {
    "pod": ExplainedKind((KINDS["v1", "Pod"],)),
    "reservation": ExplainedKind((KINDS[RESERVATION_API, "Reservation"],), ("hold", "holds")),
    "podgroup": ExplainedKind(
        tuple(KINDS[api, "PodGroup"] for api in (VOLCANO_API, SIGS_PODGROUP_API, WORKLOAD_API)), ("pg",)
    ),
    "deployment": ExplainedKind((KINDS["apps/v1", "Deployment"],)),
    "statefulset": ExplainedKind((KINDS["apps/v1", "StatefulSet"],)),
    "daemonset": ExplainedKind((KINDS["apps/v1", "DaemonSet"],)),
    "replicaset": ExplainedKind((KINDS["apps/v1", "ReplicaSet"],)),
    "job": ExplainedKind((KINDS["batch/v1", "Job"],)),
    "cronjob": ExplainedKind((KINDS["batch/v1", "CronJob"],)),
    "node": ExplainedKind((KINDS["v1", "Node"],)),
    "queue": ExplainedKind((KINDS[VOLCANO_API, "Queue"],)),
    "podmigrationjob": ExplainedKind(
        (KINDS[RESERVATION_API, "PodMigrationJob"],), ("migration", "migrations")
    ),
    "reservationschedule": ExplainedKind(
        (KINDS[HOLDFAST_API, "ReservationSchedule"],), ("schedule", "schedules")
    ),
}
"""By the name of the kind on the command line."""


class KnownKind(NamedTuple):
    name: str
    """The key of `EXPLAINED`."""
    infos: tuple[KindInfo, ...]
    """Those of them that are meant: of one group, if that is named."""


def known_kinds() -> dict[str, KnownKind]:
    """By each name that a user may give: as kubectl takes it, or an alias."""
    found: dict[str, KnownKind] = {}
    for name, each in EXPLAINED.items():
        found |= dict.fromkeys((name, *each.aliases), KnownKind(name, each.infos))
        for info in each.infos:
            for title in info.command_names:
                infos = found[title].infos if title in found else ()
                meant = tuple(i for i in each.infos if i in infos or i == info)
                found[title] = KnownKind(name, meant)
    return found


def unknown_kind(given: str, known: Iterable[str], listed: Iterable[str]) -> str:
    """`; did you mean pod?` for a kind that a command does not take, or the kinds that it lists. The
    name of another kind, such as svc, is no misspelling."""
    otherwise = f"known: {', '.join(listed)}"
    if any(given.lower() in info.command_names for info in KINDS.values()):
        return f"; {otherwise}"
    likely = [each for each in known if len(each) > 2 and ("." in given or "." not in each)]
    return did_you_mean(given, likely, otherwise)

"""A life from a seed."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from mixtures import actors, edits, parts, traits
from mixtures.calendars import add_calendar
from mixtures.device_claims import add_claims
from mixtures.making import Making, Raw

Part = Callable[[Making], None]


@dataclass(frozen=True)
class Theme:
    """One feature: what it needs to be there, what it makes pods like, who comes, what is edited."""

    name: str
    weight: int
    parts: tuple[Part, ...] = ()
    traits: tuple[tuple[float, Callable[[Making, Raw, Raw], None]], ...] = ()
    actors: tuple[Part, ...] = ()
    edits: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Life:
    seed: int
    themes: tuple[str, ...]
    documents: list[Raw]
    config: Raw
    until: int


def _preemption(making: Making) -> None:
    if making.chance(0.15):
        making.plugin_args("DefaultPreemption", holdRoom=False)


def _soft(making: Making) -> None:
    if making.chance(0.4):
        making.plugin_args("ReservationPreemption", eviction="Soft", softEvictor=making.chance(0.7))


def _starvation(making: Making) -> None:
    arguments = {
        "starvingJobTimeThreshold": making.pick((0, 10, 60, 200)),
        "reservedNodePercent": making.pick((20, 50, 100)),
        "hold": making.pick(("node", "amount")),
        "backfill": making.chance(0.5),
    }
    names = ["allocate", "backfill", "reserve", "preempt", "reclaim"]
    if making.chance(0.3):
        names = ["allocate", "backfill", "reserve"]
    making.config["actions"] = [
        {"name": name, "arguments": arguments} if name == "reserve" else {"name": name}
        for name in names
    ]


def _provisioning(making: Making) -> None:
    making.config["dynamicReservation"] = {
        "provisioner": making.pick(("builtin", "external")),
        "provisionTimeout": f"{making.pick((10, 30, 120))}s",
        "virtualRetention": f"{making.pick((0, 30, 600))}s",
        "onFailure": making.pick(("Requeue", "Bind")),
    }


THEMES = (
    Theme(
        "reservations",
        5,
        traits=((0.5, traits.team), (0.08, traits.reservation_affinity)),
        actors=(actors.reservations,),
        edits=(edits.edit_reservation, edits.resize_reservation, edits.delete_reservation),
    ),
    Theme(
        "reservation preemption",
        3,
        parts=(_soft,),
        traits=((0.5, traits.team),),
        actors=(actors.preempting_reservations,),
        edits=(edits.edit_reservation, edits.delete_reservation),
    ),
    Theme(
        "preemption",
        5,
        parts=(_preemption,),
        traits=((0.7, traits.priority), (0.3, traits.slow_to_stop)),
        edits=(edits.delete_pod,),
    ),
    Theme(
        "starvation",
        3,
        parts=(_starvation,),
        traits=((0.4, traits.estimate), (0.3, traits.priority)),
        edits=(edits.relabel_node,),
    ),
    Theme("gangs", 4, actors=(actors.gangs,), edits=(edits.delete_pod,)),
    Theme(
        "queues",
        3,
        parts=(parts.queues,),
        traits=((0.6, traits.queue),),
        edits=(edits.edit_queue,),
    ),
    Theme(
        "dynamic reservations",
        4,
        parts=(_provisioning,),
        traits=((0.5, traits.template), (0.3, traits.team)),
        actors=(actors.provisioned,),
        edits=(edits.relabel_pod, edits.annotate_pod),
    ),
    Theme(
        "devices",
        4,
        parts=(parts.devices,),
        traits=((0.3, traits.whole_gpu), (0.4, traits.gpu_share)),
        edits=(edits.sicken_device,),
    ),
    Theme(
        "cpus",
        4,
        parts=(parts.topologies,),
        traits=((0.6, traits.exclusive_cpus), (0.15, traits.numa_policy)),
        edits=(edits.lose_topology,),
    ),
    Theme("ports", 2, traits=((0.5, traits.host_port),)),
    Theme(
        "limits",
        2,
        parts=(parts.limit_ratios,),
        traits=((0.6, traits.limits),),
        edits=(edits.ratio,),
    ),
    Theme(
        "volumes",
        3,
        parts=(parts.storage,),
        traits=((0.6, traits.claim),),
        edits=(edits.delete_claim,),
    ),
    Theme("migrations", 2, actors=(actors.migrations,)),
    Theme(
        "affinity",
        2,
        traits=((0.3, traits.affinity), (0.2, traits.tolerations)),
        edits=(edits.relabel_node, edits.taint),
    ),
    Theme("containers", 1, traits=((0.4, traits.more_containers),)),
    Theme("workloads", 1, actors=(actors.deployments,)),
    Theme("daemons", 1, actors=(actors.daemon_pods,)),
    Theme("budgets", 1, parts=(parts.budgets,), traits=((0.4, traits.team),)),
)
_ALWAYS: tuple[Part, ...] = (
    edits.restart,
    edits.cordon,
    edits.lose_node,
    edits.resize_node,
    edits.delete_pod,
    edits.relabel_pod,
    edits.same_name_again,
)


def make_life(seed: int, *, tight: bool = False, claims: bool = False, calendar: bool = False) -> Life:
    """In a tight life there is never enough, so that pods and reservations wait and preempt. With
    `claims`, the same life with devices by claim; with `calendar`, with reservations that start
    later."""
    random = Random(f"{'tight ' if tight else ''}life {seed}")
    making = Making(random, random.choice((120, 300, 600)), tight=tight)
    chosen = _themes(random)
    parts.priority_classes(making)
    parts.nodes(making)
    for theme in chosen:
        making.traits.extend(theme.traits)
        for part in theme.parts:
            part(making)
    actors.pods(making)
    for theme in chosen:
        for actor in theme.actors:
            actor(making)
    possible = [*_ALWAYS, *(edit for theme in chosen for edit in theme.edits)]
    for _ in range(making.some(0, 7)):
        edit = making.pick(possible)
        if _has_something(making, edit):
            edit(making)
    if edits.edit_group in possible or (making.groups and making.chance(0.3)):
        edits.edit_group(making)
    until = making.horizon + random.choice((0, 300, 1500))
    names = [theme.name for theme in chosen]
    if claims:
        making.random = Random(f"claims of {'tight ' if tight else ''}life {seed}")
        add_claims(making)
        names.append("claims")
    if calendar:
        making.random = Random(f"calendar of {'tight ' if tight else ''}life {seed}")
        add_calendar(making)
        names.append("calendar")
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **making.config,
    }
    return Life(seed, tuple(names), making.documents, config, until)


def _themes(random: Random) -> list[Theme]:
    count = random.choice((2, 2, 3, 3, 4, 5))
    left, chosen = list(THEMES), []
    for _ in range(count):
        [theme] = random.choices(left, [each.weight for each in left])
        left.remove(theme)
        chosen.append(theme)
    return sorted(chosen, key=lambda theme: THEMES.index(theme))


def _has_something(making: Making, edit: Part) -> bool:
    if edit in (edits.edit_reservation, edits.resize_reservation, edits.delete_reservation):
        return bool(making.reservations)
    return True

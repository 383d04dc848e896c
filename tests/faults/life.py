"""What exists, what users do and what goes wrong, drawn from a seed.

A life is short: faults and users are at work for `TROUBLED` seconds; then everything is healed, and the
rest must come within `PATIENCE` seconds.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.audit import GROUP_NAME, PARTNERS, QUEUE_NAME, milli
from faults.model import (
    CLAIMS,
    CLASSES,
    GROUPS,
    MIGRATIONS,
    NODES,
    OTHER_GROUPS,
    PODS,
    QUEUES,
    QUOTAS,
    RESERVATIONS,
    SLICES,
    TEMPLATES,
    Raw,
)
from faults.slow_permit import QUESTIONS
from harness.claim_objects import (
    claim_template,
    device_class,
    request,
    resource_claim,
    resource_slice,
)
from harness.objects import node, own_pod, reservation
from harness.team_quotas import quota
from holdfast.api.times import format_time

START = 1_767_225_600.0
"""The time at which a life begins."""
TROUBLED = 24.0
NAMES = ("a", "b")
_TEMPLATE = "scheduling.koordinator.sh/reservation-template"


@dataclass(frozen=True)
class Trouble:
    """One thing that goes wrong, independent of all others."""

    kind: str
    """storm, watch, kill, stop, pause, partition, outage, clock, compact"""
    at: float
    lasts: float = 0.0
    who: str = ""
    """A process; "" for all."""
    what: str = ""
    """Which requests or watches; "" for all."""
    how: str = ""
    chance: float = 1.0
    amount: float = 0.0
    steps: int = 0

    def __str__(self) -> str:
        parts = [f"{self.kind} at {self.at:.2f}"]
        for name in ("lasts", "who", "what", "how", "chance", "amount", "steps"):
            value = getattr(self, name)
            if value not in ("", 0.0, 0, 1.0):
                parts.append(f"{name}={value:.3f}" if isinstance(value, float) else f"{name}={value}")
        return " ".join(parts)


@dataclass
class Life:
    seed: int
    replicas: int = 1
    starving: bool = False
    streams: bool = True
    retry_period: str = "2s"
    every_kind: bool = False
    """Whether all kinds are watched, not just those that occur here."""
    quotas: bool = False
    """Whether a plugin reads a kind of its own."""
    slow_permit: bool = False
    """Whether a plugin makes pods wait in Permit."""
    claims: bool = False
    """Whether there are devices by claim."""
    schedulers: dict[str, str] = field(default_factory=dict)
    """The scheduler name of each process, where they are not replicas of one scheduler."""
    troubled: float = TROUBLED
    """Seconds in which faults and users are at work."""
    first: list[tuple[str, Raw]] = field(default_factory=list)
    """What exists at the beginning."""
    acts: list[tuple[float, str, Any]] = field(default_factory=list)
    """What users do, and when."""
    troubles: list[Trouble] = field(default_factory=list)


def pod_of(name: str, cpu: int, priority: int = 0, **metadata: Any) -> Raw:
    """A pod for holdfast-scheduler that requests so many millicores."""
    more = {"labels": {}, "annotations": {}, **metadata}
    return own_pod(name, f"{cpu}m", priority=priority, terminationGracePeriodSeconds=5, **more)


def node_of(name: str, cpu: int) -> Raw:
    return node(name, f"{cpu}m", "32Gi")


def reservation_of(name: str, cpu: int, once: bool, app: str) -> Raw:
    return reservation(name, f"{cpu}m", app, allocateOnce=once, ttl="0s")


def group(name: str, least: int) -> Raw:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": least},
    }


def queue(name: str, cpu: int) -> Raw:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"capability": {"cpu": f"{cpu}m"}},
    }


def migration(name: str, of: str) -> Raw:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": name},
        "spec": {
            "podRef": {"namespace": "default", "name": of},
            "ttl": "30m",
            "reservationOptions": {"template": {"metadata": {"name": f"room-{name}"}}},
        },
    }


def draw(seed: int, claims: bool = False, calendar: bool = False, gangs: bool = False) -> Life:
    """The life of a seed; with `claims`, the same with devices by claim, with `calendar`, with
    reservations that start later, with `gangs`, with more gangs, whose members wait in Permit."""
    rng = random.Random(seed)
    life = Life(seed, replicas=rng.choice((1, 2, 2)), streams=rng.random() < 0.7)
    life.every_kind = seed % 10 == 0
    # A lease that is read less often makes for a faster simulation of everything else.
    life.retry_period = "2s" if seed % 4 == 0 else "5s"
    _draw_world(life, rng)
    _draw_troubles(life, random.Random(seed * 7 + 1))
    if seed % 11 in _MORE:
        _draw_more(life, random.Random(seed * 17 + 5))
    if seed % 9 == 7:
        _draw_quotas(life, random.Random(seed * 13 + 3))
    if gangs:
        _draw_gangs(life, random.Random(seed * 37 + 15))
    if seed % 5 == 3 or gangs:
        _draw_slow_permit(life, random.Random(seed * 19 + 7))
    if seed % 7 == 5:
        _draw_queues(life, random.Random(seed * 23 + 9))
    if claims:
        _draw_claims(life, random.Random(seed * 29 + 11))
    if calendar:
        _draw_calendar(life, random.Random(seed * 31 + 13))
    life.acts.sort(key=lambda act: act[0])
    return life


def _draw_world(life: Life, rng: random.Random) -> None:
    def when() -> float:
        return round(rng.uniform(0.0, TROUBLED * 0.8), 2)

    def create(path: str, raw: Raw) -> None:
        life.acts.append((when(), "create", (path, raw)))

    nodes = [f"n{i}" for i in range(rng.randint(2, 4))]
    size = rng.choice((2000, 4000))
    life.first += [(NODES, node_of(name, size)) for name in nodes]
    life.starving = rng.random() < 0.15
    for i in range(rng.randint(2, 7)):
        replica = {"annotations": {"replica": "yes"}} if rng.random() < 0.3 else {}
        raw = pod_of(f"p{i}", rng.choice((300, 500, 1000)), rng.choice((0, 0, 10)), **replica)
        if rng.random() < 0.1:
            raw["metadata"]["finalizers"] = ["example.com/kept"]
        create(PODS, raw)
        if rng.random() < 0.25:
            life.acts.append((when(), "delete", (PODS, f"p{i}", "default")))
        if rng.random() < 0.2:
            life.acts.append((when(), "end", (PODS, f"p{i}")))
    if rng.random() < 0.6:
        _draw_gang(life, rng, size)
    if rng.random() < 0.6:
        for i in range(rng.randint(1, 2)):
            once = rng.random() < 0.5
            raw = reservation_of(f"r{i}", rng.choice((500, 1000)), once, f"r{i}")
            create(RESERVATIONS, raw)
            for j in range(rng.randint(0, 3)):
                create(PODS, pod_of(f"o{i}-{j}", rng.choice((300, 500)), 0, labels={"app": f"r{i}"}))
            if rng.random() < 0.2:
                life.acts.append((when(), "delete", (RESERVATIONS, f"r{i}", "")))
    if rng.random() < 0.5:
        # Capacity is short, so these preempt others.
        for i in range(len(nodes)):
            create(PODS, pod_of(f"low{i}", size - 500, 0, annotations={"replica": "yes"}))
        for i in range(rng.randint(1, 2)):
            create(PODS, pod_of(f"high{i}", rng.choice((size // 2, size - 700)), 100))
    if rng.random() < 0.25:
        template = {
            "owners": [{"labelSelector": {"matchLabels": {"job": "drp"}}}],
            "recommendedSize": {"cpu": "1"},
        }
        asks = {_TEMPLATE: json.dumps(template)}
        create(PODS, pod_of("drp-0", 500, 0, labels={"job": "drp"}, annotations=asks))
        create(PODS, pod_of("drp-1", 500, 0, labels={"job": "drp"}))
    if rng.random() < 0.25:
        create(PODS, pod_of("moved", 500, 0, annotations={"replica": "yes"}))
        create(MIGRATIONS, migration("move", "moved"))
    if rng.random() < 0.1:
        life.acts.append((when(), "delete", (NODES, nodes[-1], "")))
    if rng.random() < 0.35:
        _draw_crowd(life, rng, size)


_MORE = (0, 2, 4, 7, 9)
"""By their remainder, the lives in which there is more of everything."""


def _draw_more(life: Life, rng: random.Random) -> None:
    """Another gang, a reservation that waits, a node that is replaced."""

    def when() -> float:
        return round(rng.uniform(0.0, TROUBLED * 0.8), 2)

    sizes = {
        raw["metadata"]["name"]: milli(raw["status"]["allocatable"]["cpu"])
        for path, raw in life.first
        if path == NODES
    }
    size = max(sizes.values())
    if rng.random() < 0.4:
        raw = reservation_of("w", rng.choice((size // 2, size - 300)), rng.random() < 0.5, "w")
        raw["spec"]["preAllocation"] = True
        life.acts.append((when(), "create", (RESERVATIONS, raw)))
        for i in range(rng.randint(0, 2)):
            owner = pod_of(f"w-{i}", rng.choice((300, 500)), 0, labels={"app": "w"})
            life.acts.append((when(), "create", (PODS, owner)))
    if rng.random() < 0.3:
        name, gone_at = rng.choice(sorted(sizes)), when()
        life.acts.append((gone_at, "delete", (NODES, name, "")))
        back_at = gone_at + rng.choice((0.0, rng.uniform(0.0, 8.0)))
        life.acts.append((back_at, "create", (NODES, node_of(name, sizes[name]))))
    if rng.random() < 0.5:
        members, at = rng.randint(2, 4), when()
        raw = group("team", rng.randint(2, members))
        raw["apiVersion"] = "scheduling.sigs.k8s.io/v1alpha1"
        life.first.append((OTHER_GROUPS, raw))
        priority, cpu = rng.choice((0, 0, 20)), rng.choice((300, 500, 1000))
        for i in range(members):
            member = pod_of(f"t{i}", cpu, priority, annotations={GROUP_NAME: "team", "replica": "yes"})
            life.acts.append((at + rng.uniform(0.0, 0.5), "create", (PODS, member)))


def _draw_crowd(life: Life, rng: random.Random, size: int) -> None:
    """Pods that want a whole node each, one after the other, while binds fail or take effect late."""
    at = rng.uniform(0.0, TROUBLED * 0.5)
    for i in range(rng.randint(3, 6)):
        raw = pod_of(f"c{i}", size - rng.choice((0, 200)), rng.choice((0, 0, 5)))
        moment = at + rng.uniform(0.0, 8.0)
        life.acts.append((moment, "create", (PODS, raw)))
        if rng.random() < 0.3:
            gone_at = moment + rng.uniform(0.0, 6.0)
            life.acts.append((gone_at, "delete", (PODS, f"c{i}", "default")))
    how = rng.choice(
        ("error late", "error late", "unanswered", "cut after", "error after", "slow", "any")
    )
    life.troubles.append(
        Trouble("storm", at, rng.uniform(2.0, 12.0), "", "bind", how, rng.choice((0.5, 0.9, 1.0)), 12.0)
    )


def _draw_quotas(life: Life, rng: random.Random) -> None:
    """Teams whose pods wait for objects that only a plugin reads; their definition comes and goes."""

    def when() -> float:
        return round(rng.uniform(0.0, TROUBLED), 2)

    def act(what: str, *args: Any) -> None:
        life.acts.append((when(), what, args))

    life.quotas = True
    life.acts.append((0.0, "define" if rng.random() < 0.6 else "undefine", (QUOTAS, "")))
    for _ in range(rng.randint(0, 3)):
        act(rng.choice(("define", "define", "undefine")), QUOTAS, "")
    for team in ("a", "b"):
        for i in range(rng.randint(1, 2)):
            create = pod_of(f"t{team}{i}", 200, rng.choice((0, 10)), labels={"team": team})
            life.acts.append((when(), "create", (PODS, create)))
        for _ in range(rng.randint(1, 4)):
            what = rng.choice(("create", "create", "open", "close", "delete"))
            if what == "create":
                closed = rng.random() < 0.3
                life.acts.append((when(), what, (QUOTAS, quota(team, maxCPU=64, closed=closed))))
            elif what == "delete":
                act(what, QUOTAS, team, "default")
            else:
                act(what, QUOTAS, team)
    if rng.random() < 0.5:
        how = rng.choice(("cut", "garble", "expire", "lag", "double", "mute", "end"))
        life.troubles.append(
            Trouble(
                "watch", when(), rng.uniform(0.5, 8.0), "", QUOTAS, how, amount=rng.uniform(0.1, 3.0)
            )
        )


def _draw_gangs(life: Life, rng: random.Random) -> None:
    """Gangs of both kinds, most of them with more members than they need, that come and go with nodes,
    other pods that preempt them, and often starvation holds."""

    def when() -> float:
        return round(rng.uniform(0.0, TROUBLED * 0.8), 2)

    life.starving = rng.random() < 0.4
    sizes = {
        raw["metadata"]["name"]: milli(raw["status"]["allocatable"]["cpu"])
        for path, raw in life.first
        if path == NODES
    }
    count = rng.randint(1, 3)
    partners = json.dumps([f"default/x{i}" for i in range(count)]) if rng.random() < 0.3 else ""
    together = when()
    for i in range(count):
        name, members = f"x{i}", rng.randint(2, 5)
        at = together if partners else when()
        raw = group(name, rng.randint(1, members))
        if partners:
            raw["metadata"]["annotations"] = {PARTNERS: partners}
        is_other = bool(partners) or rng.random() < 0.5
        if is_other:
            raw["apiVersion"] = "scheduling.sigs.k8s.io/v1alpha1"
        life.first.append((OTHER_GROUPS if is_other else GROUPS, raw))
        priority, cpu = rng.choice((0, 10, 50)), rng.choice((300, 500, 1000, 1700))
        for j in range(members):
            annotations = {GROUP_NAME: name, "replica": "yes"}
            member = pod_of(f"{name}-{j}", cpu, priority, annotations=annotations)
            moment = at + rng.choice((0.0, rng.uniform(0.0, 0.5), rng.uniform(0.0, 8.0)))
            life.acts.append((moment, "create", (PODS, member)))
            if rng.random() < 0.15:
                life.acts.append(
                    (moment + rng.uniform(0.0, 8.0), "delete", (PODS, f"{name}-{j}", "default"))
                )
    for name, size in sizes.items():
        if rng.random() < 0.3:
            gone_at = when()
            life.acts.append((gone_at, "delete", (NODES, name, "")))
            back_at = gone_at + rng.choice((0.0, rng.uniform(0.0, 8.0)))
            life.acts.append((back_at, "create", (NODES, node_of(name, size))))
    for i in range(rng.randint(0, 2)):
        urgent = pod_of(f"urgent{i}", rng.choice((500, 1000, 1700)), 100)
        life.acts.append((when(), "create", (PODS, urgent)))


def _draw_slow_permit(life: Life, rng: random.Random) -> None:
    """Some pods, or most of them, wait in Permit once they have a node, and some of these too long."""
    life.slow_permit = True
    share = rng.choice((0.3, 0.8))
    for _, what, args in life.acts:
        if what == "create" and args[0] == PODS and rng.random() < share:
            args[1]["metadata"]["labels"][QUESTIONS] = str(rng.choice((1, 2, 4, 8)))


def _draw_queues(life: Life, rng: random.Random) -> None:
    """Queues that allow less than there is, for pods of no gang."""
    names = ("qa", "qb")
    life.first += [(QUEUES, queue(name, rng.choice((500, 1000, 2500)))) for name in names]
    for _, what, args in life.acts:
        if what != "create" or args[0] != PODS:
            continue
        annotations = args[1]["metadata"]["annotations"]
        if GROUP_NAME not in annotations and _TEMPLATE not in annotations and rng.random() < 0.6:
            annotations[QUEUE_NAME] = rng.choice(names)


def _draw_calendar(life: Life, rng: random.Random) -> None:
    """Reservations that start later, all of them before users and faults rest, and estimates."""

    def start_later(at: float, raw: Raw) -> None:
        starts = min(at + rng.choice((0.0, 1.0, rng.uniform(1.0, 12.0))), TROUBLED)
        annotations = raw["metadata"].setdefault("annotations", {})
        annotations["holdfast.io/starts-at"] = format_time(START + math.ceil(starts))
        annotations["holdfast.io/lead"] = rng.choice(("0s", "2s", "6s"))
        policy = rng.choice(("Backfill", "Drain", "Preempt"))
        # A gang of which members are evicted stays half bound if there is no more capacity.
        annotations["holdfast.io/before-start"] = "Drain" if policy == "Preempt" and gangs else policy

    gangs = any(path in (GROUPS, OTHER_GROUPS) for path, _ in life.first)
    for at, what, args in life.acts:
        if what == "create" and args[0] == RESERVATIONS and rng.random() < 0.6:
            start_later(at, args[1])
        elif what == "create" and args[0] == PODS and rng.random() < 0.4:
            annotations = args[1]["metadata"]["annotations"]
            annotations["holdfast.io/run-estimate"] = f"{rng.randint(2, 30)}s"
    for i in range(rng.randint(1, 3)):
        at = round(rng.uniform(0.0, TROUBLED * 0.6), 2)
        raw = reservation_of(
            f"later{i}", rng.choice((500, 1000, 2000)), rng.random() < 0.5, f"later{i}"
        )
        start_later(at, raw)
        if rng.random() < 0.4:
            raw["spec"]["template"]["spec"]["priority"] = 50
        if rng.random() < 0.3:
            raw["spec"]["template"]["spec"]["containers"][0]["ports"] = [
                {"containerPort": 80, "hostPort": 80}
            ]
        life.acts.append((at, "create", (RESERVATIONS, raw)))
        if rng.random() < 0.2:
            gone_at = at + rng.uniform(0.0, 10.0)
            life.acts.append((gone_at, "delete", (RESERVATIONS, f"later{i}", "")))
        owner = pod_of(f"later{i}-0", 300, 0, labels={"app": f"later{i}"})
        life.acts.append((at + rng.uniform(0.0, 10.0), "create", (PODS, owner)))


def _draw_claims(life: Life, rng: random.Random) -> None:
    """Devices of each node, and claims of pods, gangs and reservations for them."""

    def when() -> float:
        return round(rng.uniform(0.0, TROUBLED * 0.8), 2)

    life.claims = True
    nodes = [raw["metadata"]["name"] for path, raw in life.first if path == NODES]
    for each in nodes:
        made = resource_slice(each, rng.randint(1, 3))
        life.first.append((SLICES, made))
        if rng.random() < 0.15:
            gone_at = when()
            life.acts.append((gone_at, "delete", (SLICES, made["metadata"]["name"], "")))
            life.acts.append((gone_at + rng.uniform(0.0, 6.0), "create", (SLICES, made)))
    life.first.append((CLASSES, device_class("gpu", 'device.driver == "gpu.example.com"')))
    for name, count in (("one", 1), ("two", 2)):
        life.first.append((TEMPLATES, claim_template(name, request("r", count))))
    named = [f"shared{i}" for i in range(rng.randint(1, 2))]
    for name in named:
        made = resource_claim(name, request("r", rng.choice((1, 1, 2))))
        del made["status"]
        life.acts.append((rng.choice((0.0, when())), "create", (CLAIMS, made)))
        if rng.random() < 0.2:
            gone_at = when()
            life.acts.append((gone_at, "delete", (CLAIMS, name, "default")))
            life.acts.append((gone_at + rng.uniform(0.0, 6.0), "create", (CLAIMS, made)))
    shared = rng.choice((*named, ""))
    for _, what, args in list(life.acts):
        if what != "create" or args[0] not in (PODS, RESERVATIONS):
            continue
        spec = args[1]["spec"]
        if args[0] == RESERVATIONS:
            if rng.random() < 0.5:
                _claim(spec["template"]["spec"], rng, ())
        elif GROUP_NAME in args[1]["metadata"]["annotations"] and shared:
            spec["resourceClaims"] = [{"name": "d", "resourceClaimName": shared}]
        elif rng.random() < 0.5:
            _claim(spec, rng, named)
    for i in range(rng.randint(1, 5)):
        made = pod_of(f"d{i}", 100, rng.choice((0, 0, 10)))
        _claim(made["spec"], rng, named)
        life.acts.append((when(), "create", (PODS, made)))
        if rng.random() < 0.4:
            what = rng.choice(("end", "delete"))
            args = (PODS, f"d{i}") if what == "end" else (PODS, f"d{i}", "default")
            life.acts.append((when(), what, args))
    whom = NAMES[: life.replicas]
    if rng.random() < 0.6:
        at, how = rng.uniform(0.0, TROUBLED), rng.choice((*_FATES, "any", "any"))
        chance, amount = rng.choice((0.3, 0.6, 1.0)), rng.uniform(0.1, 12.0)
        life.troubles.append(
            Trouble("storm", at, rng.uniform(0.5, 10.0), "", "write", how, chance, amount)
        )
    if rng.random() < 0.5:
        steps, back = rng.randint(1, 120), rng.uniform(0.2, 20.0)
        life.troubles.append(Trouble("kill", when(), back, rng.choice(whom), steps=steps))
    if rng.random() < 0.3:
        how, amount = rng.choice(("cut", "expire", "lag", "double", "mute")), rng.uniform(0.1, 3.0)
        life.troubles.append(
            Trouble("watch", when(), rng.uniform(0.5, 8.0), "", CLAIMS, how, amount=amount)
        )


def _claim(spec: Raw, rng: random.Random, named: Sequence[str]) -> None:
    if named and rng.random() < 0.4:
        spec["resourceClaims"] = [{"name": "d", "resourceClaimName": rng.choice(named)}]
    else:
        template = rng.choice(("one", "one", "two"))
        spec["resourceClaims"] = [{"name": "d", "resourceClaimTemplateName": template}]


def _draw_gang(life: Life, rng: random.Random, size: int) -> None:
    members = rng.randint(2, 3)
    priority = rng.choice((0, 0, 50))
    least = members if rng.random() < 0.8 else members - 1
    life.first.append((GROUPS, group("gang", least)))
    at = rng.uniform(0.0, TROUBLED * 0.5)
    cpu = rng.choice((500, 1000, size // 2))
    for i in range(members):
        annotations = {GROUP_NAME: "gang", "replica": "yes"}
        raw = pod_of(f"g{i}", cpu, priority, annotations=annotations)
        life.acts.append((at + rng.uniform(0.0, 0.5), "create", (PODS, raw)))


_ERRORS = ("error", "error after", "error late")
_FATES = (*_ERRORS, "lost", "cut", "unanswered", "cut after", "twice", "garbled", "slow")


def _draw_troubles(life: Life, rng: random.Random) -> None:
    whom = NAMES[: life.replicas]
    for _ in range(rng.randint(1, 5)):
        at = rng.uniform(0.0, TROUBLED)
        who = rng.choice(("", *whom))
        kind = rng.choice(
            ("storm", "storm", "storm", "watch", "watch", "kill", "kill", "stop", "pause", "partition",
             "outage", "clock", "compact")
        )  # fmt: skip
        if kind == "storm":
            life.troubles.append(
                Trouble(
                    kind,
                    at,
                    rng.uniform(0.5, TROUBLED - at),
                    who,
                    rng.choice(("", "bind", "bind", "write", "read", "lease")),
                    rng.choice((*_FATES, "any", "any")),
                    rng.choice((0.1, 0.3, 0.6, 1.0)),
                    rng.uniform(0.1, 12.0),
                )
            )
        elif kind == "watch":
            how = rng.choice(
                ("cut", "garble", "truncate", "nonsense", "expire", "lag", "double", "mute", "end")
            )
            what = rng.choice(("", PODS, PODS, RESERVATIONS, NODES, GROUPS))
            life.troubles.append(
                Trouble(kind, at, rng.uniform(0.5, 8.0), who, what, how, amount=rng.uniform(0.1, 3.0))
            )
        elif kind in ("kill", "stop"):
            life.troubles.append(
                Trouble(kind, at, rng.uniform(0.2, 20.0), rng.choice(whom), steps=rng.randint(1, 400))
            )
        elif kind in ("pause", "partition"):
            life.troubles.append(Trouble(kind, at, rng.uniform(0.5, 25.0), rng.choice(whom)))
        elif kind == "outage":
            life.troubles.append(Trouble(kind, at, rng.uniform(0.2, 15.0)))
        elif kind == "clock":
            amount = rng.choice((-3600.0, -20.0, -2.0, 2.0, 20.0, 120.0))
            life.troubles.append(Trouble(kind, at, who=rng.choice(whom), amount=amount))
        else:
            life.troubles.append(Trouble(kind, at))

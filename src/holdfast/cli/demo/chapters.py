"""The chapters of `holdfast demo`, each on nodes that have nothing of the demo on them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from holdfast.api.names import (
    HELD_FOR,
    HOLD_LABEL,
    LIMIT_TO_ALLOCATABLE,
    RESERVATION_ALLOCATED,
    RESERVATION_PRIORITY,
    RESERVATION_TEMPLATE,
    STARVATION,
)
from holdfast.api.plurals import number_of
from holdfast.cli.client import POD, RESERVATION, Raw
from holdfast.cli.demo.site import PARTS
from holdfast.cli.demo.stage import CheckFailed, Seen, Skipped, Stage
from holdfast.snapshot.reader import take_snapshot


class Chapter(NamedTuple):
    title: str
    play: Callable[[Stage], Awaitable[None]]


async def reserve_for_peak(stage: Stage) -> None:
    """Two replicas fill a node. One is running, the capacity of the others is reserved."""
    site, manifests = stage.site, stage.manifests
    half, total = PARTS // 2, 2 * len(site.nodes)
    cpu = site.cpu(half)
    stage.explain(
        f"web runs 1 replica of {cpu} CPU. The peak needs {total}: reserve for {total - 1} more now."
    )
    await stage.apply("web.yaml", manifests.deployment("web", 1, half), comment=f"1 replica, {cpu} CPU")
    await _bound(stage, "web has its first replica", 1, "web-")
    words = ["reserve", "deployment/web", "--replicas", str(total - 1), "--name", stage.name("peak")]
    await stage.holdfast(*words, "--ttl", "1h", "-n", stage.namespace)
    await _phases(stage, f"{_reservations(total - 1)} Available", total - 1, "Available")
    stage.explain("Another pod requests the same amount. The nodes are idle, but reserved.")
    await stage.apply("stranger.yaml", manifests.pod("stranger", half), comment=f"{cpu} CPU")
    await _pending(stage, "stranger", "Insufficient cpu")
    stage.explain("The peak comes.")
    await stage.scale("web", total)
    await _bound(stage, f"all {total} replicas of web have a node", total, "web-")

    async def through_reservations() -> Seen:
        pods = await stage.pods()
        users = [name for name, raw in pods.items() if _reservation_of(raw)]
        return Seen(
            len(users) == total - 1, f"pods that use a reservation: {', '.join(users) or 'none'}"
        )

    await stage.check(f"what was reserved is used by {total - 1} of them", through_reservations)
    await _pending(stage, "stranger", "Insufficient cpu")
    await stage.holdfast("get", "reservations", *sorted(await stage.reservations()))


async def starving_gang(stage: Stage, threshold: str) -> None:
    """Small pods fill the nodes. A gang needs most of every node at once."""
    if not threshold:
        raise Skipped(
            "the starvation threshold of this cluster is not known, and its default is 48h; "
            "if it is short, name it: --starvation-threshold 10s"
        )
    site, manifests = stage.site, stage.manifests
    count = len(site.nodes)
    small = [f"small-{i}" for i in range(4 * count)]
    members = 2 * count
    stage.explain(
        f"Small pods fill the nodes. A gang of {members} needs {members} x {site.cpu(3)} CPU at once."
    )
    await stage.apply(
        "small.yaml",
        *(manifests.pod(name, 2) for name in small),
        comment=f"{len(small)} pods of {site.cpu(2)} CPU",
    )
    await _bound(stage, f"{len(small)} small pods have a node", len(small), "small-")
    await stage.apply(
        "train.yaml",
        *manifests.gang("train", members, 3),
        comment=f"a PodGroup and its {members} pods",
        excerpt={"kind": "PodGroup", "spec": {"minMember": members}},
    )
    stage.explain(
        "A small pod ends, and another one takes its CPU, as it always does: the gang starves."
    )
    await stage.delete_pods(small[:1])
    await stage.apply("late.yaml", manifests.pod("small-late", 2), comment=f"{site.cpu(2)} CPU")
    await _bound(
        stage, "the late small pod has a node, the gang has none", 1, "small-late", none="train-"
    )
    stage.explain(
        f"After {threshold} (48h by default) the gang gets starvation holds, one for each pod."
    )

    async def held() -> Seen:
        holds = [raw for raw in (await stage.reservations()).values() if _is_starvation_hold(raw)]
        return Seen(len(holds) >= members, f"{len(holds)} holds")

    hint = (
        "starvingJobTimeThreshold of the cluster's scheduler may be longer than the "
        f"{threshold} of --starvation-threshold"
    )
    await stage.check(
        f"{members} holds for the gang", held, [(POD, "train-0")], "" if site.own else hint
    )
    await stage.holdfast("get", "holds", *([] if site.own else sorted(await stage.reservations())))
    await stage.delete_pods(small[1:2])
    await stage.apply("later.yaml", manifests.pod("small-later", 2), comment=f"{site.cpu(2)} CPU")
    await _pending(stage, "small-later", "node(s) resource was(were) reserved")
    stage.explain("The other small pods end, sooner or later.")
    await stage.delete_pods([*small[2:], "small-late"])
    await _bound(stage, f"the gang runs: all {members} pods have a node", members, "train-")


async def dynamic_reservation(stage: Stage) -> None:
    """The first pod of a job carries a template; the second uses the reservation made from it."""
    site, manifests = stage.site, stage.manifests
    stage.explain(
        f"job-0 needs {site.cpu(1)} CPU and knows that its siblings follow: it carries a template."
    )
    first = manifests.pod_with_template("job-0", 1, "job", 6)
    annotations = {RESERVATION_TEMPLATE: first["metadata"]["annotations"][RESERVATION_TEMPLATE]}
    await stage.apply("job-0.yaml", first, excerpt={"metadata": {"annotations": annotations}})

    async def provided() -> Seen:
        found = _reservation_of((await stage.pods())["job-0"])
        return Seen(bool(found), f"job-0 uses no reservation; {_state((await stage.pods())['job-0'])}")

    try:
        await stage.check(
            f"a reservation of {site.cpu(6)} CPU was created, job-0 uses it", provided, _JOB
        )
    except CheckFailed:
        if site.own:
            raise
        raise Skipped("no provisioner created the reservation; see `holdfast provisioner`") from None
    await stage.apply("job-1.yaml", manifests.pod("job-1", 4, {"app": "job"}), comment="no template")

    async def shared() -> Seen:
        pods = await stage.pods()
        used = [_reservation_of(pods[name]) for name in ("job-0", "job-1")]
        return Seen(
            bool(used[1]) and used[0] == used[1], f"job-0 uses {used[0]}, job-1 {used[1] or 'none'}"
        )

    await stage.check("job-1 uses the same reservation", shared, [(POD, "job-1")])
    await stage.holdfast("get", "reservations", *sorted(await stage.reservations()))


_JOB = [(POD, "job-0")]


async def limits(stage: Stage) -> None:
    """Requests are small, limits are large: the sum of limits is what may not exceed the ratio."""
    site, manifests = stage.site, stage.manifests
    if not site.own:
        raise Skipped(f"it would have to annotate a node of yours ({LIMIT_TO_ALLOCATABLE})")
    node = site.nodes[0]
    allowed = site.cpu(PARTS * 5 // 4)
    stage.explain(f"Limits on {node} may add up to 125% of its {site.cpu(PARTS)} CPU: {allowed}.")
    await stage.annotate_node(node, LIMIT_TO_ALLOCATABLE, '{"cpu": "125%"}')
    burst = [manifests.pod(f"burst-{i}", 1, limit=5, node=node) for i in range(3)]
    what = f"3 pods on {node}, each requests {site.cpu(1)} CPU with a limit of {site.cpu(5)}"
    await stage.apply("burst.yaml", *burst, comment=what)
    await _bound(stage, f"two pods are on {node}", 2, "burst-")
    await _pending(stage, "burst-2", "Insufficient cpu limit")
    stage.explain(f"By their requests all three would fit: {site.cpu(3)} of {site.cpu(PARTS)} CPU.")


async def reservation_preemption(stage: Stage) -> None:
    """Every node has a reservation of low priority; one of high priority takes the place of one."""
    site, manifests = stage.site, stage.manifests
    low, high = 100, 9000
    if not site.own:
        await _only_own_victims(stage, high)
    count = len(site.nodes)
    nightly = [stage.name(f"nightly-{i}") for i in range(count)]
    reserved = [manifests.reservation(name, 6, "nightly", low, preempts=False) for name in nightly]
    stage.explain(f"{site.cpu(6)} CPU of every node are reserved for the night, with priority {low}.")
    await stage.apply(
        "nightly.yaml", *reserved, excerpt={"metadata": {"labels": reserved[0]["metadata"]["labels"]}}
    )
    await _phases(stage, f"{_reservations(count)} Available", count, "Available")
    urgent = manifests.reservation(stage.name("urgent"), 6, "urgent", high, preempts=True)
    await stage.apply(
        "urgent.yaml", urgent, excerpt={"metadata": {"labels": urgent["metadata"]["labels"]}}
    )

    async def preempted() -> Seen:
        found = await stage.reservations()
        phase = (found.get(stage.name("urgent"), {}).get("status") or {}).get("phase") or "Pending"
        left = [name for name in nightly if name in found]
        fits = phase == "Available" and len(left) == count - 1
        return Seen(fits, f"urgent is {phase}, and {len(left)} of {count} others are left")

    about = [(RESERVATION, stage.name("urgent"))]
    await stage.check("urgent is Available in the place of one of them", preempted, about)
    await stage.holdfast("get", "reservations", *sorted(await stage.reservations()))


async def explain_pending(stage: Stage) -> None:
    """A pod is pending because of reservations, and `explain` names them."""
    site, manifests = stage.site, stage.manifests
    count, half = len(site.nodes), PARTS // 2
    words = ["reserve", "--cpu", site.cpu(6), "--replicas", str(count), "--owner", "app=web"]
    selectors = [f"--node-selector={key}={value}" for key, value in site.selector.items()]
    named = ["--name", stage.name("web"), "--ttl", "1h", "-n", stage.namespace]
    await stage.holdfast(*words, *named, *selectors)
    await _phases(stage, f"{_reservations(count)} Available", count, "Available")
    await stage.apply("batch.yaml", manifests.pod("batch", half), comment=f"{site.cpu(half)} CPU")
    await _pending(stage, "batch", "Insufficient cpu")
    text = await stage.holdfast("explain", "pod", "batch", "-n", stage.namespace)
    names = [name for name in await stage.reservations() if name in text]

    async def explained() -> Seen:
        return Seen(bool(names), "no reservation is named")

    await stage.check(f"it names the reservation in the way: {', '.join(names)}", explained)


def chapters(threshold: str) -> Sequence[Chapter]:
    """`threshold` is the starvation threshold of the cluster's scheduler, empty if not known."""

    async def starving(stage: Stage) -> None:
        await starving_gang(stage, threshold)

    return (
        Chapter("Reserve capacity before a peak", reserve_for_peak),
        Chapter("A starving gang gets the capacity it needs", starving),
        Chapter("A pod brings its own reservation", dynamic_reservation),
        Chapter("Limits do not oversubscribe a node", limits),
        Chapter("A reservation of high priority preempts one of low priority", reservation_preemption),
        Chapter("Why is my pod pending?", explain_pending),
    )


# Looks at the cluster


async def _bound(stage: Stage, expected: str, count: int, prefix: str, none: str = "") -> None:
    """`count` pods whose names start with `prefix` have a node, and none of those with `none`."""

    async def look() -> Seen:
        pods = await stage.pods()
        bound = {name for name, raw in pods.items() if raw["spec"].get("nodeName")}
        fits = sum(name.startswith(prefix) for name in bound) >= count
        if none:
            fits = fits and not any(name.startswith(none) for name in bound)
        states = [f"{name}: {_state(raw)}" for name, raw in pods.items() if name not in bound]
        return Seen(fits, f"{len(bound)} of {len(pods)} pods have a node; {'; '.join(states)}")

    await stage.check(expected, look)


async def _pending(stage: Stage, name: str, reason: str) -> None:
    async def look() -> Seen:
        raw = (await stage.pods())[name]
        return Seen(not raw["spec"].get("nodeName") and reason in _state(raw), f"{name}: {_state(raw)}")

    await stage.check(f"{name} is pending: {reason}", look, [(POD, name)])


async def _phases(stage: Stage, expected: str, count: int, phase: str) -> None:
    async def look() -> Seen:
        phases = {
            name: (raw.get("status") or {}).get("phase") or "Pending"
            for name, raw in (await stage.reservations()).items()
        }
        fits = sum(each == phase for each in phases.values()) >= count
        return Seen(fits, ", ".join(f"{name} is {each}" for name, each in phases.items()) or "none")

    about = [(RESERVATION, name) for name in sorted(await stage.reservations())[:1]]
    await stage.check(expected, look, about)


async def _only_own_victims(stage: Stage, priority: int) -> None:
    """Raises Skipped if reservations that are not the demo's could be preempted."""
    own = await stage.reservations()
    for raw in (await take_snapshot(stage.server, only=(RESERVATION,))).all(RESERVATION):
        labels = raw["metadata"].get("labels") or {}
        given = str(labels.get(RESERVATION_PRIORITY) or "")
        name = raw["metadata"]["name"]
        if name not in own and given.lstrip("-").isdigit() and int(given) < priority:
            raise Skipped(f"it could preempt the reservation {name}, which has the priority {given}")


def _reservations(count: int) -> str:
    return number_of(count, "reservation is", "reservations are")


def _state(pod: Raw) -> str:
    if node := pod["spec"].get("nodeName"):
        return f"on {node}"
    conditions = (pod.get("status") or {}).get("conditions") or ()
    messages = [each.get("message", "") for each in conditions if each.get("type") == "PodScheduled"]
    return (
        messages and messages[0]
    ) or "no scheduler has looked at it; does Holdfast run on this cluster?"


def _reservation_of(pod: Raw) -> str:
    """The name of the reservation that the pod uses, or nothing."""
    text = (pod["metadata"].get("annotations") or {}).get(RESERVATION_ALLOCATED)
    return str(json.loads(text)["name"]) if text else ""


def _is_starvation_hold(reservation: Raw) -> bool:
    metadata = reservation["metadata"]
    labels = metadata.get("labels") or {}
    return labels.get(HOLD_LABEL) == STARVATION or HELD_FOR in (metadata.get("annotations") or {})

"""Audits every write of a run and reports scheduler writes that violate a capacity or lifecycle rule.

Others may overcommit a node: a user shrinks it, creates a pod with a nodeName, resizes a pod in place.
So the audit judges the difference that a scheduler write makes: a rule that is violated more than
before. Rules about statuses apply once nothing more follows at a moment.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from holdfast.sim.audit import constraints, lifecycle
from holdfast.sim.audit import lifecycle as liveness
from holdfast.sim.audit.capacity import (
    CLAIMED,
    CLAIMED_BUT_HOLDS,
    LIMITS,
    OVER_WAITING,
    OVER_WAITING_BUT_HOLDS,
    PLUGIN_OF,
    RESERVED_VOLUMES,
    RESTRICTED,
    SLOTS,
    SLOTS_BUT_HOLDS,
    VOLUMES,
    Excess,
    Key,
    excesses,
    over_capability,
    queue_of,
    queue_path,
    unreachable_volumes,
)
from holdfast.sim.audit.claims import ClaimAudit
from holdfast.sim.audit.cluster import ClusterState, Gang, owns
from holdfast.sim.audit.facts import CORE_GROUPS, PodFacts, Raw, ReservationFacts, core_gang, gang_of
from holdfast.sim.audit.plans import PlanAudit

_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_WITH_HOLDS = (CLAIMED, OVER_WAITING, SLOTS)
_BUT_HOLDS = (CLAIMED_BUT_HOLDS, OVER_WAITING_BUT_HOLDS, SLOTS_BUT_HOLDS)
"""Pods with a run-time estimate may use starvation holds: rules for those leave holds out."""
_DEVICE_KINDS = ("ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule")
_ABOUT_NODES = ("Node", "Device", "NodeResourceTopology", "CSINode")
"""Kinds of objects with the name of their node."""
_WRITES = 200
_WRITES_PER_OBJECT = 30
"""The most writes per object at one moment by a scheduler that converges."""

Plugins = Callable[[str], frozenset[str]]
"""The plugins of the profile that pods of a scheduler name fall under."""
Counts = Callable[[str, str], bool]
"""Whether a rule about resources binds pods of a scheduler name for this resource."""


class Audit:
    def __init__(
        self,
        plugins: Plugins,
        counts: Counts,
        restricts: Counts,
        obstacles: Plugins,
        bounds_limits: Callable[[str], bool],
    ) -> None:
        """`counts` is about going only where there is enough, `restricts` about taking no more of a
        Restricted reservation than it reserves; `obstacles` are all plugins that can keep a pod from
        being bound, for any reason; `bounds_limits` says whether the configuration bounds the limits of
        pods of a scheduler name on every node."""
        self._plugins = lru_cache(plugins)
        self._counts = lru_cache(counts)
        self._restricts = lru_cache(restricts)
        self._obstacles = lru_cache(obstacles)
        self._bounds_limits = lru_cache(bounds_limits)
        self._cluster = ClusterState()
        self._devices = ClaimAudit(self._cluster.existing)
        self._plans = PlanAudit(self._cluster)
        self._known: dict[str, dict[Key, Excess]] = {}
        """The violations of each node at the last check."""
        self._stale: dict[str, None] = {}
        """Nodes that changed since."""
        self._in_write = False
        self._moved, self._moved_at = False, 0.0
        """Whether an object changed at this moment, and when one last did."""
        self._writes = 0
        self._bound: list[PodFacts] = []
        self._reserved: list[ReservationFacts] = []
        self._given_volumes = False
        """Whether claims got volumes in this write that were there already: of which driver those are,
        a scheduler that goes by storage classes, as kube-scheduler does, does not know before."""
        self._problems: list[str] = []
        self._to_settle: dict[str, None] = {}
        """Uids of reservations to look at when everything has settled."""
        self._placed: set[str] = set()
        """Uids of reservations that got their node at this moment."""
        self._gangs: dict[Gang, None] = {}
        """Gangs of which members were bound at this moment."""
        self._disturbed: set[str] = set()
        """Nodes that others changed or put pods on: capacity that was set aside there for a pod that
        asked for a reservation may be oversold since, before any object shows it."""
        self._has_new_daemon: set[str] = set()
        """Nodes that got a pod of a DaemonSet, whose limits no rule bounds: the limits of a pod that
        waits there for a reservation may be too high since."""
        self._disturbed_queues: set[str | None] = set()
        """Queues that others changed, or whose pods others bound or changed: a pod that was admitted
        before may be bound after it."""
        self._satisfied: set[Gang] = set()
        """Gangs that had all they need once, or of which someone else bound or removed members."""
        self._scattered: set[Gang] = set()
        """Gangs of which someone else bound members."""

    def begin(self) -> None:
        """The scheduler is about to write: all that is wrong now, it did not do."""
        self._in_write = True
        for name in self._stale:
            self._known[name] = excesses(self._cluster, self._cluster.node(name))
        self._stale.clear()

    def end(self) -> list[str]:
        """The write is done. Every rule that it broke."""
        self._in_write = False
        problems, self._problems = self._problems, []
        if self._bound or self._reserved:
            problems.extend(self._judge())
            self._bound.clear()
            self._reserved.clear()
        self._given_volumes = False
        if self._writes > _WRITES + _WRITES_PER_OBJECT * self._cluster.objects:
            problems.append(f"no progress: {self._writes} writes at one moment")
        return problems

    def at_rest(self, now: float) -> list[str]:
        """The violations found once nothing more happens at this moment."""
        self._writes = 0
        problems = list(self._plans.at_rest(now))
        if self._moved:
            self._moved, self._moved_at = False, now
            problems.extend(self._devices.at_rest())
        elif now - self._moved_at >= liveness.QUIET:
            self._moved_at = now
            problems.extend(
                liveness.waiting_for_nothing(
                    self._cluster,
                    self._places_plain_pods,
                    self._devices,
                )
            )
        for uid in self._to_settle:
            reservation = self._cluster.reservations.get(uid)
            if reservation is not None:
                problems.extend(lifecycle.status_at_rest(self._cluster, reservation, now))
        self._to_settle.clear()
        for gang in self._gangs:
            problems.extend(self._judge_gang(gang))
        self._gangs.clear()
        self._placed.clear()
        return problems

    def changed(
        self, kind: str, namespace: str, name: str, before: Raw | None, after: Raw | None
    ) -> None:
        """One object is another than before: None is one that is not there."""
        if self._in_write:
            self._writes += 1
        if kind == "Event":
            if after is not None:
                self._plans.event(after)
            return
        self._moved = True
        if not self._in_write and kind in _ABOUT_NODES:
            self._plans.disturbed(name)
        self._cluster.objects += (after is not None) - (before is not None)
        cluster = self._cluster
        if kind == "Pod":
            self._pod(before, after)
        elif kind == "Reservation":
            self._reservation(before, after)
            self._problems += self._devices.changed(kind, (namespace, name), before, after)
        elif kind == "Node":
            cluster.put_node(name, after)
            self._stale[name] = None
            if before is not None and not self._in_write:
                self._disturbed.add(name)
            for uid in cluster.node(name).reservations:
                self._to_settle[uid] = None
        elif kind == "Device":
            cluster.put_device(name, after)
            self._stale[name] = None
        elif kind == "NodeResourceTopology":
            cluster.put_topology(name, after)
            self._stale[name] = None
        elif kind == "CSINode":
            cluster.put_csi_node(name, after)
            self._stale[name] = None
        elif kind == "PodGroup":
            queues = {((each or {}).get("spec") or {}).get("queue") for each in (before, after)}
            if before is not None and len(queues) > 1:
                self._disturbed_queues |= queues
            is_core = ((after or before) or {}).get("apiVersion", "").startswith(f"{CORE_GROUPS}/")
            key = core_gang(namespace, name) if is_core else (namespace, name)
            _put(cluster.groups, key, after)
        elif kind == "PersistentVolumeClaim":
            _put(cluster.claims, (namespace, name), after)
            self._claim(before, after)
        elif kind == "PersistentVolume":
            _put(cluster.volumes, name, after)
        elif kind in _DEVICE_KINDS:
            problems = list(self._devices.changed(kind, (namespace, name), before, after))
            self._problems += problems if self._in_write else ()
        elif kind == "Queue":
            _put(cluster.queues, name, after)
            if before is not None and before.get("spec") != (after or {}).get("spec"):
                self._disturbed_queues.add(name)

    def _pod(self, before: Raw | None, after: Raw | None) -> None:
        cluster = self._cluster
        raw = after if after is not None else before
        assert raw is not None
        uid = raw["metadata"]["uid"]
        was = cluster.pods.get(uid)
        node = (before or {"spec": {}})["spec"].get("nodeName") or ""
        if after is None:
            cluster.drop_pod(raw)
            if gang := gang_of(raw):
                self._satisfied.add(gang[:2])
            pod = None
        else:
            pod = cluster.put_pod(after)
            now = after["spec"].get("nodeName") or ""
            if node and now != node:
                self._problems.append(
                    f"pod moved: {_named(after)}: from Node/{node} to {now or 'none'}"
                )
            if now and not node:
                self._arrived(after, pod)
        if was is not None and pod is not None and not self._in_write:
            queue, requests = queue_of(cluster, pod), pod.usage.requests
            if (queue_of(cluster, was), was.usage.requests) != (queue, requests):
                self._disturbed_queues |= {queue_of(cluster, was), queue}
        for each in (was, pod):
            if each is not None:
                self._stale[each.node] = None
                if each.reservation:
                    self._to_settle[each.reservation] = None

    def _arrived(self, raw: Raw, pod: PodFacts | None) -> None:
        gang = gang_of(raw)
        if not self._in_write:
            self._disturbed.add(raw["spec"]["nodeName"])
            self._plans.disturbed(raw["spec"]["nodeName"])
            if pod is not None:
                self._disturbed_queues.add(queue_of(self._cluster, pod))
            if gang is not None:
                self._satisfied.add(gang[:2])
                self._scattered.add(gang[:2])
            return
        scheduler = raw["spec"].get("schedulerName") or ""
        if gang is not None and "Coscheduling" in self._plugins(scheduler):
            self._gangs[gang[:2]] = None
        if pod is not None:
            self._bound.append(pod)
            if pod.is_daemon:
                self._has_new_daemon.add(pod.node)

    def _reservation(self, before: Raw | None, after: Raw | None) -> None:
        cluster = self._cluster
        raw = after if after is not None else before
        assert raw is not None
        uid = raw["metadata"]["uid"]
        was = cluster.reservations.get(uid)
        now: ReservationFacts | None = None
        if after is None:
            cluster.drop_reservation(uid)
        else:
            now = cluster.put_reservation(after, self._in_write)
            if now.is_live and (was is None or not was.is_live):
                self._placed.add(now.uid)
            self._to_settle[uid] = None
            if not self._in_write:
                self._plans.disturbed(uid)
            if self._in_write and was is not None:
                self._problems.extend(lifecycle.phase_change(was, now))
                self._reserved.append(now)
        for each in (was, now):
            if each is not None and each.node:
                self._stale[each.node] = None

    def _claim(self, before: Raw | None, claim: Raw | None) -> None:
        """A volume is one claim's only."""
        volume = ((claim or {}).get("spec") or {}).get("volumeName")
        if not self._in_write or claim is None or not volume:
            return
        if not ((before or {}).get("spec") or {}).get("volumeName"):
            metadata = (self._cluster.volumes.get(volume) or {}).get("metadata") or {}
            made_for_it = _PROVISIONED_BY in (metadata.get("annotations") or {})
            self._given_volumes = self._given_volumes or not made_for_it
        having = [
            key
            for key, each in self._cluster.claims.items()
            if (each.get("spec") or {}).get("volumeName") == volume
        ]
        if len(having) > 1:
            names = " and ".join("/".join(("PersistentVolumeClaim", *key)) for key in having)
            self._problems.append(f"a volume has two claims: PersistentVolume/{volume}: {names}")

    def _places_plain_pods(self, scheduler: str) -> bool:
        return not self._bounds_limits(scheduler) and liveness.places_plain_pods(
            self._obstacles(scheduler)
        )

    def _judge(self) -> Iterator[str]:
        """The violations that the write caused or increased on the nodes it changed."""
        cluster = self._cluster
        for pod in self._bound:
            yield from lifecycle.bind(cluster, pod)
            if "DynamicResources" in self._plugins(pod.scheduler):
                raw = cluster.node(pod.node).raw or {"metadata": {}}
                labels = raw["metadata"].get("labels") or {}
                yield from self._devices.bound(cluster.existing[pod.uid], labels)
            yield from self._queue(pod)
            if not self._was_decided_before():
                yield from constraints.violated(cluster, pod, self._plugins(pod.scheduler))
            yield from self._volumes(pod)
            yield from self._unhealthy(pod)
            yield from self._no_partition(pod)
        actors: list[PodFacts | ReservationFacts] = [*self._bound, *self._reserved]
        plugins = frozenset[str]().union(*(self._plugins(each.scheduler) for each in actors))
        for name in self._stale:
            node = cluster.node(name)
            before, after = self._known.get(name, {}), excesses(cluster, node)
            self._known[name] = after
            for key, excess in after.items():
                known = before.get(key)
                if known is not None and excess.amount <= known.amount:
                    continue
                rule, about = key
                if not node.allocatable.get(about) and self._devices.serves(about):
                    continue  # devices are allocated by a claim instead
                if cluster.asking and name in self._disturbed:
                    continue
                if rule == LIMITS and name in self._has_new_daemon and self._was_decided_before():
                    continue
                if PLUGIN_OF[rule] in plugins and self._binds(rule, about, actors):
                    by = ", ".join(map(str, actors))
                    yield f"{rule}: Node/{name}: {excess.figures} (by {by})"
        self._stale.clear()

    def _binds(self, rule: str, about: str, actors: list[PodFacts | ReservationFacts]) -> bool:
        """Whether the rule is about the objects that were written."""
        if PLUGIN_OF[rule] == "NodeResourcesFit" and not any(
            self._counts(each.scheduler, about) for each in actors
        ):
            return False
        if rule == RESTRICTED:
            # A reservation that its user makes smaller than what its owners have is so at once.
            resource = about.rpartition(" ")[2]
            return any(self._restricts(pod.scheduler, resource) for pod in self._bound)
        # What waits on the node since the bind was decided came after it.
        is_over_waiting = rule in (OVER_WAITING, OVER_WAITING_BUT_HOLDS)
        if is_over_waiting and (not self._bound or self._was_decided_before()):
            return False
        if is_over_waiting and all(map(self._joins_others, self._bound)):
            return False  # the rest of a gang comes first: it had its place when the others were bound
        if rule in _WITH_HOLDS or rule in _BUT_HOLDS:
            return (rule in _BUT_HOLDS) == any(map(self._is_lent_a_hold, self._bound))
        if rule in (VOLUMES, RESERVED_VOLUMES) and self._given_volumes:
            return False
        if PLUGIN_OF[rule] == "LimitAware":
            return not all(isinstance(each, PodFacts) and each.is_daemon for each in actors)
        return True

    def _was_decided_before(self) -> bool:
        """Whether the bind may have been decided before other writes of this moment: of a pod that
        asked for a reservation, or whose reservation just got its node."""
        asking = bool(self._cluster.asking)
        return asking or any(pod.reservation in self._placed for pod in self._bound)

    def _joins_others(self, pod: PodFacts) -> bool:
        """Whether other members of the pod's gang were bound before."""
        gang, now = gang_of(self._cluster.existing[pod.uid]), {each.uid for each in self._bound}
        members = self._cluster.gangs.get(gang[:2], {}) if gang is not None else {}
        return any(raw["spec"].get("nodeName") for uid, raw in members.items() if uid not in now)

    def _is_lent_a_hold(self, pod: PodFacts) -> bool:
        """Whether the pod may use what starvation holds keep for others."""
        own = self._cluster.reservations.get(pod.reservation)
        return pod.has_run_estimate and not (own is not None and own.is_starvation_hold)

    def _queue(self, pod: PodFacts) -> Iterator[str]:
        """A pod is bound only if its queue and the queue's ancestors have no more than their capability
        with it."""
        for name in queue_path(self._cluster, pod):
            if name not in self._disturbed_queues:
                yield from over_capability(self._cluster, name, pod)

    def _volumes(self, pod: PodFacts) -> Iterator[str]:
        cluster, plugins = self._cluster, self._plugins(pod.scheduler)
        if not pod.usage.claims:
            return
        if "VolumeBinding" in plugins:
            for volume in unreachable_volumes(cluster, cluster.node(pod.node), pod):
                yield f"volume out of reach: {pod} on Node/{pod.node}: PersistentVolume/{volume}"
        if "VolumeRestrictions" not in plugins:
            return
        for claim in pod.usage.claims:
            modes = ((cluster.claims.get(claim) or {}).get("spec") or {}).get("accessModes") or ()
            if "ReadWriteOncePod" not in modes:
                continue
            others = [
                other
                for other in cluster.pods.values()
                if other.uid != pod.uid
                and claim in other.usage.claims
                and cluster.node(other.node).raw is not None
            ]
            if others:
                named = f"PersistentVolumeClaim/{claim[0]}/{claim[1]}"
                yield f"claim for one pod used twice: {named}: {others[0]} and {pod}"
            for each in cluster.reservations.values():
                if (
                    each.phase == "Available"
                    and claim in each.usage.claims
                    and not owns(cluster, pod, each)
                ):
                    named = f"PersistentVolumeClaim/{claim[0]}/{claim[1]}"
                    yield f"claim for one pod is reserved: {named}: {pod} is not an owner of {each}"

    def _unhealthy(self, pod: PodFacts) -> Iterator[str]:
        devices = self._cluster.node(pod.node).devices
        if devices is None or "DeviceShare" not in self._plugins(pod.scheduler):
            return
        for share in pod.usage.devices:
            key = (share.type, share.minor)
            if key in devices.unhealthy or key not in devices.totals:
                yield (
                    f"unhealthy device allocated: {pod} on Node/{pod.node}: {share.type} {share.minor}"
                )

    def _no_partition(self, pod: PodFacts) -> Iterator[str]:
        """Whole GPUs are given in the sets that a node keeps to, or the pod."""
        devices = self._cluster.node(pod.node).devices
        if devices is None or "DeviceShare" not in self._plugins(pod.scheduler):
            return
        gpus = [share for share in pod.usage.devices if share.type == "gpu"]
        kept_to = devices.keeps_partitions or pod.wants_partition
        if not gpus or not devices.partitions or not kept_to or not all(each.is_whole for each in gpus):
            return
        minors = frozenset(each.minor for each in gpus)
        if minors not in devices.partitions:
            given = ", ".join(map(str, sorted(minors)))
            yield f"allocated GPUs that are not a partition: {pod} on Node/{pod.node}: {given}"

    def _judge_gang(self, gang: Gang) -> Iterator[str]:
        domains = lifecycle.domains_of(self._cluster, gang)
        if len(domains) > 1 and gang not in self._scattered:
            listed = ", ".join(domains)
            yield f"gang in several topology domains: PodGroup/{gang[0]}/{gang[1]}: {listed}"
        if gang in self._satisfied:
            return
        found = lifecycle.gang_at_rest(self._cluster, gang)
        if found is None:
            return
        placed, needs = found
        if placed >= needs:
            self._satisfied.add(gang)
        elif placed:
            yield f"gang placed in part: PodGroup/{gang[0]}/{gang[1]}: {placed} placed, {needs} needed"


def _put(into: dict[Any, Raw], key: Any, raw: Raw | None) -> None:
    if raw is None:
        into.pop(key, None)
    else:
        into[key] = raw


def _named(raw: Raw) -> str:
    metadata = raw["metadata"]
    return f"Pod/{metadata.get('namespace', '')}/{metadata['name']}"

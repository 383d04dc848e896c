"""Pods whose end would make a node eligible: the fewest, the least important ones first.

Pods of daemons, of the system and of the pod's own controller, and pods that a disruption budget
protects, are left alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from holdfast.api.plurals import plural
from holdfast.api.resource_claims import ResourceClaim
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.advice.overdue_pods import is_overdue, removal_text
from holdfast.explanation.advice.waits import available_reservations
from holdfast.explanation.facts.capacity import missing_on, requested
from holdfast.explanation.facts.expected_ends import ended_pod
from holdfast.explanation.facts.own_reservations import waiting_for
from holdfast.explanation.facts.pod_owners import same_workload
from holdfast.explanation.facts.preemption_limits import CRITICAL
from holdfast.explanation.phrases import named_pods, pods_text
from holdfast.explanation.repairs.details import users_of_claims
from holdfast.explanation.repairs.repair import EVICT, Repair, repair
from holdfast.explanation.repairs.smaller_workloads import (
    SmallerWorkloads,
    is_created_again,
    smaller_workloads,
)
from holdfast.explanation.report import END_PODS, few
from holdfast.explanation.verdicts import profile_for, rejection_on, starts_on
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudgets
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.cluster.slots import PODS, Amounts
from holdfast.scheduler.framework.dry_run import DryRun
from holdfast.scheduler.managers.claims.pod_claims import ResourceClaimKey
from holdfast.snapshot.cluster_changes import ObjectChange, applied, awaited
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_NODES = 3
_DAEMONS = ("DaemonSet", "Node")


def consider_evictions(advisor: Advisor, pod: PodRecord, rows: list[int]) -> None:
    """Ending the fewest pods on one of the rows, or the users of claims that the pod shares."""
    snapshot = advisor.snapshot
    for users in users_of_claims(snapshot, pod).values():
        if advisor.propose(end_of(snapshot, users, "", pod=pod)):
            return
    found: list[tuple[int, int, str, list[PodRecord]]] = []
    for row in rows:
        victims = _fewest(snapshot, pod, row)
        for those in (not_preempted(victims, pod), victims):
            if those:
                highest = max(each.cls.priority for each in those)
                found.append((len(those), highest, snapshot.cluster.nodes.name(row), those))
    for _, _, node, victims in sorted(found, key=lambda each: each[:3]):
        if advisor.propose(end_of(snapshot, victims, f" on {node}", pod=pod)):
            return
    users = _users_of_allocated(snapshot, pod)
    if users:
        nodes = sorted({snapshot.cluster.nodes.name(each.row) for each in users})
        advisor.propose(end_of(snapshot, users, f" on {few(nodes, _NODES)}", pod=pod))


def consider_evictions_for_own(advisor: Advisor, pod: PodRecord) -> None:
    """Pods that must end before the pod's own waiting reservation, or those of its job, have their
    capacity: the fewest on each node."""
    snapshot = advisor.snapshot
    job = snapshot.cluster.jobs.of(pod)
    members = job.waiting() if job is not None and not job.is_ready else [pod]
    victims: dict[str, PodRecord] = {}
    nodes: set[str] = set()
    for member in members:
        for reservation in waiting_for(snapshot, member):
            entry = reservation.entry
            assert entry is not None
            found = _enough(snapshot, member, entry.row)
            if found:
                victims |= {each.uid: each for each in found}
                nodes.add(snapshot.cluster.nodes.name(entry.row))
    if not victims:
        return
    pods = list(victims.values())
    with applied(snapshot, [change for each in pods for change in ended_pod(snapshot, each)]):
        then = available_reservations(snapshot)
    advisor.propose(end_of(snapshot, pods, f" on {few(sorted(nodes), _NODES)}", then))


def eviction_steps(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Iterator[Repair]:
    """Ending the fewest pods with which the node is eligible, or rejected for another reason."""
    node = snapshot.cluster.nodes.name(row)
    victims = _fewest(snapshot, pod, row) or _fewest_for_another_reason(snapshot, pod, row)
    rest = not_preempted(victims, pod)
    if rest:
        yield end_of(snapshot, rest, f" on {node}", pod=pod)
    if victims:
        yield end_of(snapshot, victims, f" on {node}", pod=pod)


def not_preempted(victims: list[PodRecord], pod: PodRecord) -> list[PodRecord]:
    """Those that the pod cannot preempt itself; empty if it can preempt none."""
    rest = [each for each in victims if not is_preemptible(each, pod)]
    return rest if len(rest) < len(victims) else []


def is_preemptible(victim: PodRecord, pod: PodRecord) -> bool:
    """Whether the pod may preempt the other one, by their priorities."""
    may = pod.cls.pod.spec.preemption_policy != "Never" and pod.reservation is None
    return may and victim.cls.priority < pod.cls.priority and not victim.cls.non_preemptible


def freed_by_preemption(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """What the pods on a row that it may preempt have, by slot; for a reservation, what reservations
    of lower priority there have."""
    freed: Counter[int] = Counter()
    if pod.reservation is not None:
        for entry in snapshot.cluster.ledger.reservations.on(row):
            if entry.pod.cls.priority < pod.cls.priority:
                freed.update(entry.amounts)
        return freed
    for each in snapshot.cluster.ledger.pods.get(row, {}).values():
        if is_preemptible(each, pod):
            freed.update(dict(each.cls.usage))
    return freed


def freed_by_eviction(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> Amounts:
    """What the pods on a row that may be advised to end have, by slot."""
    freed: Counter[int] = Counter()
    for each in evictable(snapshot, pod, row)[1]:
        freed.update(dict(each.cls.usage))
    return freed


def end_of(
    snapshot: ClusterSnapshot,
    victims: list[PodRecord],
    where: str,
    then: Iterable[ObjectChange] = (),
    pod: PodRecord | None = None,
) -> Repair:
    """The pods are gone. Those that are being deleted already need no one to end them, unless they are
    overdue. Several that their workload creates again need a smaller workload, and so does one whose
    replacement would be tried before the pod for which it ends."""
    overdue = [each for each in victims if is_overdue(snapshot, each)]
    ending = [each for each in victims if each.cls.terminating and each not in overdue]
    others = [each for each in victims if not each.cls.terminating]
    texts, smaller = [], SmallerWorkloads()
    if others:
        highest = max(each.cls.priority for each in others)
        is_first = pod is not None and highest > pod.cls.priority
        many = len(others) > 1 or is_first
        smaller = smaller_workloads(snapshot, others) if many else smaller
        others.sort(key=lambda each: each.uid not in smaller.pods)
        texts.append(f"end {named_pods(others)} (priority {highest}){where}{smaller.text}")
    if overdue:
        texts.append(f"{removal_text(snapshot, overdue)}{where}")
    if ending:
        texts.append(
            f"wait until {named_pods(ending)} {plural(len(ending), 'has', 'have')} terminated{where}"
        )
    ended = list[ObjectChange]()
    for each in victims:
        changes = ended_pod(snapshot, each)
        if each.uid in smaller.pods:
            changes = [change._replace(follows=True) for change in changes]
        ended += awaited(changes) if each in ending else changes
    return repair(" and ".join(texts), END_PODS, [*smaller.changes, *ended, *then], EVICT)


def budget_facts(advisor: Advisor, pod: PodRecord, rows: list[int]) -> list[str]:
    """The disruption budgets that keep pods on these rows from being advised to end, if that is what
    would help."""
    snapshot = advisor.snapshot
    found, budgets = [], DisruptionBudgets(snapshot.cluster)
    for row in rows:
        protected, others = evictable(snapshot, pod, row)
        if not protected:
            continue
        ended = [c for each in (*protected, *others) for c in ended_pod(snapshot, each)]
        with applied(snapshot, ended):
            helps = starts_on(snapshot, advisor.goal)
        node = snapshot.cluster.nodes.name(row)
        for budget in budgets.violated_by(protected) if helps else ():
            pods = pods_text([each for each in protected if budget.protects(each)])
            found.append(f"{budget.text}: ending {pods} on {node} is not advised")
    return found


# Victims


def evictable(
    snapshot: ClusterSnapshot, pod: PodRecord, row: int
) -> tuple[list[PodRecord], list[PodRecord]]:
    """The pods on a row that disruption budgets protect, and those that may be advised to end, the
    least important ones first. Not those of higher priority whose controller, which cannot be scaled
    down, would create them again before the pod is tried."""
    controller = same_workload(snapshot, pod)
    pods = [
        each
        for each in snapshot.cluster.ledger.pods.get(row, {}).values()
        if each.reservation is None
        and (pod.job is None or each.job != pod.job)
        and not each.cls.is_daemon
        and each.cls.priority < CRITICAL
        and not controller.intersection(owner.uid for owner in each.cls.owners)
        and not any(owner.kind in _DAEMONS for owner in each.cls.owners)
        and not (each.cls.priority > pod.cls.priority and is_created_again(each))
    ]
    pods.sort(key=lambda each: (each.cls.priority, each.name))
    return DisruptionBudgets(snapshot.cluster).split(pods)


def _enough(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[PodRecord]:
    """The fewest evictable pods on a row that have what the pod lacks there; empty if all of them have
    too little."""
    missing = missing_on(snapshot, pod, row)
    _, pods = evictable(snapshot, pod, row)
    single = [each for each in pods if _covers([each], missing)]
    if single:
        return single[:1]
    largest = sorted(pods, key=lambda each: -sum(dict(each.cls.usage).get(s, 0) for s in missing))
    for count in range(2, len(largest) + 1):
        if _covers(largest[:count], missing):
            return largest[:count]
    return []


def _covers(pods: list[PodRecord], missing: Amounts) -> bool:
    freed: Counter[int] = Counter()
    for each in pods:
        freed.update(dict(each.cls.usage))
    return all(freed[slot] >= lack for slot, lack in missing.items() if slot != PODS)


def _fewest(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[PodRecord]:
    """The fewest evictable pods on a row without which it is feasible."""
    scheduler = snapshot.scheduler
    _, pods = evictable(snapshot, pod, row)
    profile = profile_for(scheduler, pod)
    column = scheduler.columns.column(profile, pod.cls)
    if not pods or column.rejected is not None:
        return []
    dry_run = DryRun(snapshot.cluster, column, pod, profile.pins(pod))
    orders = (
        lambda those: sorted(
            those, key=lambda each: (-each.cls.priority, _share(each, pod), each.name)
        ),
        lambda those: sorted(
            those, key=lambda each: (_share(each, pod), -each.cls.priority, each.name)
        ),
    )
    found = [dry_run.victims(row, pods, order) for order in orders]
    sets = [each for each in found if isinstance(each, list) and each]
    return min(sets, key=lambda each: (len(each), max(p.cls.priority for p in each)), default=[])


def _share(other: PodRecord, pod: PodRecord) -> float:
    """How much of what the pod requests another one has."""
    asked, amounts = requested(pod), dict(other.cls.usage)
    return sum(amounts.get(slot, 0) / asked[slot] for slot in asked if slot != PODS)


def _fewest_for_another_reason(snapshot: ClusterSnapshot, pod: PodRecord, row: int) -> list[PodRecord]:
    """The fewest evictable pods on a row without which another plugin rejects it."""
    ledger = snapshot.cluster.ledger
    before = rejection_on(snapshot, pod, row)
    _, pods = evictable(snapshot, pod, row)
    victims: list[PodRecord] = []
    if not pods or not before.resolvable:
        return victims
    with ledger.transaction():
        for each in pods:
            ledger.remove(each)
        if rejection_on(snapshot, pod, row).plugin == before.plugin:
            return victims
        for each in sorted(pods, key=lambda each: (-each.cls.priority, _share(each, pod), each.name)):
            ledger.place(each, row)
            if rejection_on(snapshot, pod, row).plugin == before.plugin:
                ledger.remove(each)
                victims.append(each)
    return victims


def _users_of_allocated(snapshot: ClusterSnapshot, pod: PodRecord) -> list[PodRecord]:
    """The pods that share allocated claims with the pod, if all of them may end: then the claims can be
    allocated elsewhere."""
    cluster = snapshot.cluster
    needs = cluster.claims.of_class(pod.cls).claims
    claims = {each.key for each in needs if each.allocation is not None}
    if not claims:
        return []
    users = [
        each
        for each in cluster.pods.values()
        if each.row >= 0
        and each is not pod
        and any(_key(claim) in claims for claim in cluster.claims.reserved_for(each))
    ]
    may_end = {
        each.uid for row in {user.row for user in users} for each in evictable(snapshot, pod, row)[1]
    }
    return users if all(each.uid in may_end for each in users) else []


def _key(claim: ResourceClaim) -> ResourceClaimKey:
    return ResourceClaimKey(claim.metadata.namespace, claim.metadata.name)

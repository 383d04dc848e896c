"""PodDisruptionBudgets that forbid the eviction of a pod, and changes with which they allow it."""

from collections.abc import Iterator

from holdfast.api.kinds import KINDS
from holdfast.api.plurals import number_of
from holdfast.explanation.advice.advisor import Advisor
from holdfast.explanation.facts.pod_owners import controller_of
from holdfast.explanation.phrases import pods_text
from holdfast.explanation.repairs.repair import Repair, repair
from holdfast.explanation.report import Advice
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.disruption_budgets import DisruptionBudget, DisruptionBudgets
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.snapshot.cluster_changes import applied, create, patch
from holdfast.snapshot.cluster_snapshot import POD, ClusterSnapshot

_BUDGET = KINDS["policy/v1", "PodDisruptionBudget"]
_SCALABLE = {kind: KINDS["apps/v1", kind] for kind in ("ReplicaSet", "StatefulSet", "Deployment")}


def forbidding_budgets(snapshot: ClusterSnapshot, pod: PodRecord) -> list[DisruptionBudget]:
    """The budgets that would be violated if the pod were evicted now."""
    return DisruptionBudgets(snapshot.cluster).violated_by([pod])


def budget_details(snapshot: ClusterSnapshot, budgets: list[DisruptionBudget]) -> Iterator[str]:
    """How many pods of each budget are healthy and how many must be, and which are pending."""
    for budget in budgets:
        raw = snapshot.find(_BUDGET, budget.name, budget.namespace) or {}
        status, bound = raw.get("status") or {}, _bound(raw)
        healthy, desired = status.get("currentHealthy"), status.get("desiredHealthy")
        figures = ""
        if isinstance(healthy, int) and isinstance(desired, int):
            pods_are = number_of(healthy, "pod is", "pods are")
            figures = f": {pods_are} healthy, and {desired} must be{bound}"
        yield f"{budget.text}{figures}"
        pods = snapshot.cluster.pods.values()
        if pending := [each for each in pods if each.row < 0 and budget.protects(each)]:
            first = pending[0]
            yield (
                f"pods of the budget that are pending, and would count once they run: "
                f"{pods_text(pending)}. See: holdfast explain pod {first.name} -n {first.namespace}"
            )


def _bound(budget: Raw) -> str:
    spec = budget.get("spec") or {}
    given = [f"{name}: {spec[name]}" for name in ("minAvailable", "maxUnavailable") if name in spec]
    return f" ({given[0]})" if given else ""


def consider_budgets(
    snapshot: ClusterSnapshot, pod: PodRecord, budgets: list[DisruptionBudget], is_reserved: bool
) -> list[Advice]:
    """One more replica, or a budget that allows one eviction more. Several budgets for one pod always
    forbid its eviction. A new replica would use what is reserved for the pod's replacement, so none is
    advised then."""
    if len(budgets) != 1:
        return []
    found = [] if is_reserved else _more_replicas(snapshot, pod, budgets[0])
    for each in allowing_budgets(snapshot, pod, budgets):
        found.append(Advice(f"{each.text}; then the pod can be evicted", each.change.data(), []))
    return found


def allowing_budgets(
    snapshot: ClusterSnapshot, pod: PodRecord, budgets: list[DisruptionBudget]
) -> Iterator[Repair]:
    """Changes of the budget that forbids the eviction with which it is allowed."""
    for each in wider_budget(snapshot, budgets[0]) if len(budgets) == 1 else ():
        with applied(snapshot, each.change.objects):
            helps = not forbidding_budgets(snapshot, pod)
        if helps:
            yield each


def wider_budget(
    snapshot: ClusterSnapshot, budget: DisruptionBudget, evictions: int = 1
) -> Iterator[Repair]:
    """The budget with which so many pods may be evicted, and its status as the controller would write
    it."""
    raw = snapshot.find(_BUDGET, budget.name, budget.namespace) or {}
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    healthy, expected = status.get("currentHealthy"), status.get("expectedPods")
    if not isinstance(healthy, int) or healthy < evictions:
        return
    allowed = patch(_BUDGET, raw, {"status": {"disruptionsAllowed": evictions}}, follows=True)
    of = f"PodDisruptionBudget {budget.namespace}/{budget.name}"
    if "maxUnavailable" not in spec:
        text = f"lower minAvailable of {of} from {spec.get('minAvailable', 1)} to {healthy - evictions}"
        body: Raw = {"spec": {"minAvailable": healthy - evictions}}
    elif isinstance(expected, int):
        more = expected - healthy + evictions
        text = f"raise maxUnavailable of {of} from {spec['maxUnavailable']} to {more}"
        body = {"spec": {"maxUnavailable": more}}
    else:
        return
    yield repair(text, "ChangeBudget", [patch(_BUDGET, raw, body), allowed])


def _more_replicas(snapshot: ClusterSnapshot, pod: PodRecord, budget: DisruptionBudget) -> list[Advice]:
    """One more replica of the pod's workload, if it fits. With a percentage or maxUnavailable, more
    pods would have to be healthy too."""
    raw = snapshot.find(POD, pod.name, pod.namespace) or {"metadata": {}}
    limits = snapshot.find(_BUDGET, budget.name, budget.namespace) or {}
    status = limits.get("status") or {}
    healthy, desired = status.get("currentHealthy"), status.get("desiredHealthy")
    least = (limits.get("spec") or {}).get("minAvailable")
    if not isinstance(least, int) or healthy is None or healthy + 1 <= (desired or 0):
        return []
    owner = controller_of(raw)
    info = _SCALABLE.get(owner.get("kind") or "")
    workload = snapshot.find(info, owner["name"], pod.namespace) if info is not None else None
    if info is None or workload is None:
        return []
    replicas = int((workload.get("spec") or {}).get("replicas") or 0) + 1
    above = controller_of(workload)
    if above.get("kind") in _SCALABLE:
        info, workload = _SCALABLE[above["kind"]], {"metadata": {**raw["metadata"], **above}}
    name = workload["metadata"]["name"]
    added = _like(raw)
    where = "" if pod.namespace == "default" else f" -n {pod.namespace}"
    command = f"kubectl scale {info.kind.lower()} {name}{where} --replicas={replicas}"
    text = (
        f"scale {info.kind} {name} to {replicas} replicas, so that the budget allows an eviction once "
    )
    text += f"the new pod is ready ({command})"
    advisor = Advisor(snapshot, Subject(POD, added["metadata"]["name"], pod.namespace))
    scaled = patch(info, workload, {"spec": {"replicas": replicas}})
    advisor.propose(repair(text, "ScaleUp", [scaled, create(POD, added, follows=True)]))
    return advisor.advice


def _like(pod: Raw) -> Raw:
    """Another pod of the same workload, without a node."""
    metadata = pod["metadata"]
    name = f"{metadata['name']}-new"
    kept = {key: metadata[key] for key in ("namespace", "labels", "ownerReferences") if key in metadata}
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key != "nodeName"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**kept, "name": name, "uid": f"{metadata.get('uid')}-new"},
        "spec": spec,
        "status": {"phase": "Pending"},
    }

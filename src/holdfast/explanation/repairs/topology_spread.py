"""Topology spread constraints that keep a pod off nodes: the pods in each domain, which nodes count,
and constraints that count fewer nodes or demand less."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.api.affinity import TopologySpreadConstraint
from holdfast.api.plurals import number_of, plural
from holdfast.api.similar_names import did_you_mean
from holdfast.explanation.facts.capacity import row_of
from holdfast.explanation.facts.node_labels import labels_of_nodes, similar_keys, unmet_labels
from holdfast.explanation.repairs.label_repairs import are_misspelt, lacking_keys, with_keys
from holdfast.explanation.repairs.repair import Repair, repair, spec_changes
from holdfast.explanation.repairs.taints import untolerated
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import Subject
from holdfast.kube.object_client import Raw
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.plugins.pod_topology_spread import compiled_constraint
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_NODES = 3
_DOMAINS = 6
_HARD = "DoNotSchedule"
_TAINTS, _AFFINITY = "nodeTaintsPolicy", "nodeAffinityPolicy"
_WHY_CLOSED = {
    _TAINTS: "have taints that the pod does not tolerate",
    _AFFINITY: "do not meet the pod's node affinity or selector",
}
"""By policy, why the pod cannot be on nodes that count unless the policy is Honor."""


def spread_repairs(
    snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord, row: int
) -> list[Repair]:
    """The node with the topology keys that it lacks; or constraints that do not count nodes on which
    the pod cannot be; or constraints that are only preferences."""
    hard = _hard_constraints(pod)
    lacking = lacking_keys(snapshot, row, (each.topology_key for each in hard))
    if are_misspelt(snapshot, lacking):
        return []
    if labelled := with_keys(snapshot, row, lacking):
        return labelled
    found = list(_honoring(snapshot, subject, pod))
    if constraints := pod.cls.pod.spec.topology_spread_constraints:
        text = "set whenUnsatisfiable: ScheduleAnyway in its topology spread constraints"
        if any(each.min_domains for each in constraints):
            text += ", without minDomains"
        found.append(repair(text, "RelaxSpread", spec_changes(snapshot, subject, _softened)))
    return found


def _softened(spec: Raw) -> Raw:
    constraints = [
        {name: value for name, value in each.items() if name != "minDomains"}
        for each in spec.get("topologySpreadConstraints") or ()
    ]
    soft = [{**each, "whenUnsatisfiable": "ScheduleAnyway"} for each in constraints]
    return {"topologySpreadConstraints": soft}


def _honoring(snapshot: ClusterSnapshot, subject: Subject, pod: PodRecord) -> Iterator[Repair]:
    """The constraints with a policy that does not count nodes on which the pod cannot be; with both
    policies, if each leaves some."""
    domains = [closed for each in _hard_constraints(pod) for closed in _closed(snapshot, pod, each)]
    policies = list(dict.fromkeys(each.policy for each in domains))
    for chosen in (*([each] for each in policies), *([policies] if len(policies) > 1 else [])):

        def edit(spec: Raw, chosen: list[str] = chosen) -> Raw:
            constraints = spec.get("topologySpreadConstraints") or ()
            honoring = dict.fromkeys(chosen, "Honor")
            return {
                "topologySpreadConstraints": [
                    {**each, **honoring} if each.get("whenUnsatisfiable") == _HARD else each
                    for each in constraints
                ]
            }

        policy = " and ".join(f"{each}: Honor" for each in chosen)
        left_out = list(dict.fromkeys(each.text for each in domains if each.policy in chosen))
        where = f"{few(left_out, _NODES)} {plural(len(left_out), 'does', 'do')} not count"
        text = f"set {policy} in its topology spread constraints, so that {where}"
        yield repair(text, "HonorPolicy", spec_changes(snapshot, subject, edit))


# Domains


class _ClosedDomain(NamedTuple):
    """A domain that counts, though the pod cannot be on any of its nodes."""

    text: str
    """`zone=b`"""
    policy: str
    """With which the domain does not count."""


def _hard_constraints(pod: PodRecord) -> list[TopologySpreadConstraint]:
    constraints = pod.cls.pod.spec.topology_spread_constraints
    return [each for each in constraints if each.when_unsatisfiable == _HARD]


def _counted_rows(
    snapshot: ClusterSnapshot, pod: PodRecord, constraint: TopologySpreadConstraint
) -> list[int]:
    """The nodes that count: those with the keys of all constraints, that the policies admit."""
    table, compiled = snapshot.cluster.nodes, compiled_constraint(constraint, pod.cls)
    keys = [each.topology_key for each in _hard_constraints(pod)]
    return [
        row
        for row, info in table.info.items()
        if table.alive[row]
        and all(key in info.labels for key in keys)
        and not (compiled.honours_affinity and any(unmet_labels(snapshot, pod, row)))
        and not (compiled.honours_taints and untolerated(snapshot, pod, row))
    ]


def _closed(
    snapshot: ClusterSnapshot, pod: PodRecord, constraint: TopologySpreadConstraint
) -> Iterator[_ClosedDomain]:
    """The domains with the fewest pods of which a policy counts nodes on which the pod cannot be."""
    key, infos = constraint.topology_key, snapshot.cluster.nodes.info
    rows = _counted_rows(snapshot, pod, constraint)
    counts = _pods_by_domain(snapshot, pod, constraint, rows)
    lowest = min(counts.values(), default=0)
    for value in sorted(each for each, count in counts.items() if count == lowest):
        there = [row for row in rows if infos[row].labels[key] == value]
        tainted = {row for row in there if untolerated(snapshot, pod, row)}
        unmet = {row for row in there if any(unmet_labels(snapshot, pod, row))}
        policies: tuple[str, ...] = ()
        if tainted == {*there}:
            policies = (_TAINTS,)
        elif unmet == {*there}:
            policies = (_AFFINITY,)
        elif tainted | unmet == {*there}:
            policies = (_TAINTS, _AFFINITY)
        yield from (_ClosedDomain(f"{key}={value}", policy) for policy in policies)


def _pods_by_domain(
    snapshot: ClusterSnapshot, pod: PodRecord, constraint: TopologySpreadConstraint, rows: list[int]
) -> Counter[str]:
    """The pods that the constraint selects, by the value of its key."""
    cluster, counts = snapshot.cluster, Counter[str]()
    selector = compiled_constraint(constraint, pod.cls).selector
    for row in rows:
        counts[cluster.nodes.info[row].labels[constraint.topology_key]] += sum(
            other.namespace == pod.namespace
            and not other.cls.terminating
            and selector.matches(other.cls.labels)
            for other in cluster.ledger.pods.get(row, {}).values()
        )
    return counts


# Facts


def spread_details(snapshot: ClusterSnapshot, pod: PodRecord, nodes: list[str]) -> Iterator[str]:
    infos = {name: snapshot.cluster.nodes.info[row_of(snapshot, name)] for name in nodes}
    for each in _hard_constraints(pod):
        key = each.topology_key
        lacking = [name for name in nodes if key not in infos[name].labels]
        if lacking:
            labels = labels_of_nodes(snapshot)
            hint = "" if key in labels else did_you_mean(key, similar_keys(key, labels))
            on = few(lacking, _NODES)
            yield f"spread over {key}: the label {key} is missing on {on}{hint}"
        if len(lacking) == len(nodes):
            continue
        counts = _pods_by_domain(snapshot, pod, each, _counted_rows(snapshot, pod, each))
        texts = few([f"{value}: {count}" for value, count in counts.most_common()], _DOMAINS)
        yield f"spread over {key} with maxSkew {each.max_skew}: pods by {key} are {texts}"
        for closed in _closed(snapshot, pod, each):
            why = f"{_WHY_CLOSED[closed.policy]} ({closed.policy}: Ignore)"
            yield f"{closed.text} counts, though nodes there {why}"
        if each.min_domains and len(counts) < each.min_domains:
            yield (
                f"spread over {key}: its minDomains is {each.min_domains}, and {key} has "
                f"{number_of(len(counts), 'value')}, so that each may have {each.max_skew} such "
                f"{plural(each.max_skew, 'pod')} at most"
            )

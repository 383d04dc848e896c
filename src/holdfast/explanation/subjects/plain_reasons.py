"""Why no node is feasible, in one sentence and in plain words."""

import re
from collections import Counter
from collections.abc import Iterator

from holdfast.api.plurals import number_of, plural
from holdfast.explanation.facts.capacity import missing_node
from holdfast.explanation.facts.hardware import NO_GPU_LEFT, too_few_gpus_text
from holdfast.explanation.facts.own_reservations import own_entries
from holdfast.explanation.report import few
from holdfast.explanation.verdicts import NodeVerdicts
from holdfast.scheduler.cluster.records import PodRecord
from holdfast.scheduler.framework.config.plugin_sets import NODE_RESOURCES_FIT
from holdfast.scheduler.framework.feasibility.compiled_class import PLANNED, RESERVED
from holdfast.scheduler.managers.devices.device_allocator import TOO_FEW_GPUS
from holdfast.scheduler.managers.numa.numa_filter import POLICY_CONFLICT
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

_SELECTOR_ERROR = re.compile(r"claim (\S+): selector #\d+ on device \S+: CEL runtime error: ([^.]+)")
_RESERVATION_SHORT = re.compile(r"Reservation\(s\) Insufficient ([^\s,]+)(, requested: .*)?$")
_BY_NODE = re.compile(r"Insufficient (\S+) by node$")
_LOOKED_AT = 50
"""Of how many nodes all reasons are looked up."""
_CLOSEST = 3
_OF_PARTS = ("DeviceShare", "NodeNUMAResource")
"""Filters by single devices and NUMA nodes, of which NodeResourcesFit counts the sums."""
NODE_NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
"""Of a node that is not among those that the pod's node affinity names."""
_PLAIN = {
    "node(s) had untolerated taint(s)": "untolerated taint",
    "node(s) were unschedulable": "cordoned",
    "node(s) didn't match Pod's node affinity/selector": "node affinity or selector not met",
    "node(s) didn't have free ports for the requested pod ports": "host port in use",
    "node(s) didn't match pod affinity rules": "pod affinity not met",
    "node(s) didn't match pod anti-affinity rules": "pod anti-affinity",
    "node(s) didn't satisfy existing pods anti-affinity rules": "anti-affinity of other pods",
    "node(s) didn't match pod topology spread constraints": "topology spread constraint not met",
    NODE_NOT_NAMED: "not a node that it names",
    RESERVED: "held for a starving job",
    PLANNED: "planned for reservations that start later",
}
"""Reasons in a few words, for summaries; others are shortened."""
_PLAIN_PREFIXES = {
    TOO_FEW_GPUS: NO_GPU_LEFT,
    "not enough cpus available to satisfy request": "too few CPUs for exclusive use",
    "node(s) requested cpus not multiple cpus per core": "exclusive CPUs are not whole cores",
    "node(s) exceed max volume count": "too many volumes attached",
    POLICY_CONFLICT: "another NUMA policy than its own",
    "Insufficient NUMA ": "too little on one NUMA node",
    "Unaligned NUMA Hint": "does not fit the NUMA nodes by their policy",
    "Unsatisfied NUMA ": "does not fit the NUMA nodes by their policy",
}


def no_node_summary(snapshot: ClusterSnapshot, placing: NodeVerdicts, pod: PodRecord) -> str:
    count = snapshot.cluster.nodes.count
    if not count:
        return "No suitable node: the cluster has no nodes."
    if placing.column.rejected is not None:
        message = placing.column.rejected.message
        return f"No suitable node: {message}{'' if message.endswith('?') else '.'}"
    wanted = pod.cls.wants_node
    if wanted and (near := missing_node(snapshot, wanted)) is not None:
        return f"It names the node {wanted}, which does not exist{near or '.'}"
    if pod.pinned_node is not None:
        there = placing.rejections.get(pod.pinned_node)
        why = "that node does not exist"
        if there is not None:
            why = ", ".join(plain_on(snapshot, pod, pod.pinned_node, text) for text in there.texts)
        return f"It can only run on {pod.pinned_node}: {why}."
    on = Counter[str]()
    for each in placing.reasons:
        on.update(plain_on(snapshot, pod, node, each.reason) for node in each.nodes)
    counts = [f"{text} ({number})" for text, number in on.items()]
    more = f", and {len(counts) - 4} more reasons" if len(counts) > 4 else ""
    return f"No suitable node among {number_of(count, 'node')}: {', '.join(counts[:4])}{more}."


def further_reasons(snapshot: ClusterSnapshot, pod: PodRecord, placing: NodeVerdicts) -> Iterator[str]:
    """All reasons where several filters reject a node: the scheduler names the first only. Of many
    nodes, only the first by name are looked at. Left out where the pod has a reservation, which filters
    do not count by themselves."""
    table, found = snapshot.cluster.nodes, dict[tuple[str, ...], list[str]]()
    if placing.column.rejected is not None or pod.pinned_node is not None:
        return
    rejections = sorted(placing.rejections.items())
    looked_at = f"of the first {_LOOKED_AT} nodes by name, " if len(rejections) > _LOOKED_AT else ""
    for name, rejection in rejections[:_LOOKED_AT]:
        row = table.row(name)
        if row is None or not rejection.texts or any(own_entries(snapshot, pod, row)):
            continue
        every = placing.column.diagnosis.all_rejections(row)
        if any(each.plugin == NODE_RESOURCES_FIT for each in every):  # these sum up the others
            every = [each for each in every if each.plugin not in _OF_PARTS]
        texts = dict.fromkeys(plain_on(snapshot, pod, name, t) for each in every for t in each.texts)
        if len(every) > 1 and rejection.plugin in {each.plugin for each in every}:
            found.setdefault(tuple(texts), []).append(name)
    for reasons, nodes in sorted(found.items(), key=lambda each: len(each[0]))[:_CLOSEST]:
        are = plural(len(nodes), "is", "are")
        which = f"{looked_at}{few(nodes, _CLOSEST)}"
        yield f"{which} {are} rejected for several reasons: {', '.join(reasons)}"


def plain_on(snapshot: ClusterSnapshot, pod: PodRecord, node: str, reason: str) -> str:
    """Why a node rejects a pod, in a few words; which of several causes it is, where the reason leaves
    that open."""
    if reason.startswith(TOO_FEW_GPUS):
        return too_few_gpus_text(snapshot, pod, node)
    return plain(reason)


def plain(reason: str) -> str:
    """A reason in a few words."""
    if reason in _PLAIN:
        return _PLAIN[reason]
    if (failed := _SELECTOR_ERROR.match(reason)) is not None:
        return f"a device selector of claim {failed[1]} fails ({failed[2]})"
    if (short := _RESERVATION_SHORT.match(reason)) is not None:
        return f"its reservation has too little {short[1]}"
    if (short := _BY_NODE.match(reason)) is not None:
        return f"too little {short[1]} beside its reservation"
    for prefix, text in _PLAIN_PREFIXES.items():
        if reason.startswith(prefix):
            return text
    if reason.startswith("Insufficient "):
        return f"too little {reason.removeprefix('Insufficient ')}"
    return reason.removeprefix("node(s) ")

"""The plugin contract: all that a plugin imports, and nothing else.

    from holdfast.plugin import Filter, Handle, Plugin, PodClass, Reason, Scope, View

`Plugin` is what to subclass; the manual is in `holdfast.scheduler.framework.interface`, what a plugin
may read of the cluster in `Handle`, and docs/plugins.md has worked examples. `holdfast.plugin.testing`
tries a plugin in a small cluster.

What is listed in `__all__` is stable: within a version of the contract (`API_VERSION`) names and
meanings are only ever added. A plugin may declare which version it was written for (`api_version =
"v1"`); one that this Holdfast does not know is refused by name when it is loaded. Of `PodClass`,
`PodRecord` and `NodeInfo` the attributes described in docs/plugins.md are part of the contract, the
others are Holdfast's own.
"""

from holdfast.api.affinity import NodeSelectorTerm, Taint
from holdfast.api.raw_objects import ObjectKind
from holdfast.scheduler.cluster.decisions import AnnotatePod, Bind, Decision, Emit, ObjectRef, Preempt
from holdfast.scheduler.cluster.events import Change
from holdfast.scheduler.cluster.node_table import NodeInfo
from holdfast.scheduler.cluster.pod_classes import PodClass
from holdfast.scheduler.cluster.records import Phase, PodRecord
from holdfast.scheduler.cluster.view import Cells, View
from holdfast.scheduler.framework.handle import Handle, Nodes
from holdfast.scheduler.framework.interface import (
    API_VERSION,
    FINE,
    MAX_SCORE,
    ByMaximum,
    ByRange,
    Filter,
    Need,
    Nomination,
    Normalize,
    ObjectWarning,
    Offer,
    Outcome,
    Plugin,
    Range,
    Reason,
    Rejected,
    Scope,
    Score,
    Settled,
    Trial,
    Version,
)
from holdfast.scheduler.framework.node_columns import (
    NodeColumn,
    NodeImage,
    NodeLabel,
    OwnColumn,
    PodCounts,
    PodCountsOfOwner,
    TaintColumn,
    TakenPorts,
)
from holdfast.scheduler.framework.registry import PluginError

__all__ = [
    "API_VERSION",
    "FINE",
    "MAX_SCORE",
    "AnnotatePod",
    "Bind",
    "ByMaximum",
    "ByRange",
    "Cells",
    "Change",
    "Decision",
    "Emit",
    "Filter",
    "Handle",
    "Need",
    "NodeColumn",
    "NodeImage",
    "NodeInfo",
    "NodeLabel",
    "NodeSelectorTerm",
    "Nodes",
    "Nomination",
    "Normalize",
    "ObjectKind",
    "ObjectRef",
    "ObjectWarning",
    "Offer",
    "Outcome",
    "OwnColumn",
    "Phase",
    "Plugin",
    "PluginError",
    "PodClass",
    "PodCounts",
    "PodCountsOfOwner",
    "PodRecord",
    "Preempt",
    "Range",
    "Reason",
    "Rejected",
    "Scope",
    "Score",
    "Settled",
    "Taint",
    "TaintColumn",
    "TakenPorts",
    "Trial",
    "Version",
    "View",
]

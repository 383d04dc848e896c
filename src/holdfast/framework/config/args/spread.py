"""Arguments of PodTopologySpread: the constraints of pods that have none of their own."""

from typing import Annotated, Any, Literal

import msgspec

from holdfast.framework.config.names import qualified_name_fault
from holdfast.framework.config.problems import Problems, child, item
from holdfast.framework.config.reading import Section

_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]


class SpreadConstraint(Section, frozen=True):
    """A v1 TopologySpreadConstraint; its selector is deduced for each pod, so it may have none."""

    max_skew: _AtLeastOne
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: dict[str, Any] | None = None
    min_domains: _AtLeastOne | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: tuple[str, ...] = ()


class PodTopologySpreadArgs(Section, frozen=True):
    """`System` means kube-scheduler's own constraints; `List` those given here."""

    default_constraints: tuple[SpreadConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"


def checked_spread(args: PodTopologySpreadArgs, path: str, problems: Problems) -> PodTopologySpreadArgs:
    if args.defaulting_type == "System" and args.default_constraints:
        problems.add(child(path, "defaultingType"), "must be List when defaultConstraints are given")
    first: dict[tuple[str, str], str] = {}
    for i, constraint in enumerate(args.default_constraints):
        at = item(child(path, "defaultConstraints"), i)
        if fault := qualified_name_fault(constraint.topology_key):
            problems.add(child(at, "topologyKey"), fault)
        if constraint.label_selector is not None:
            problems.add(child(at, "labelSelector"), "must not be given, as it is deduced for each pod")
        what = (constraint.topology_key, constraint.when_unsatisfiable)
        if what in first:
            problems.add(at, f"has the topologyKey and whenUnsatisfiable of {first[what]}")
        first.setdefault(what, at)
    return args

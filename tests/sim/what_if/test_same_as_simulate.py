"""What-if predicts what happens: the same pods get the same nodes when the manifest is really added,
in `simulate`, after the cluster has come to rest."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.documents import Document
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation
from sim.what_if.clusters import SETUP, ask, cluster, documents, node, pod, priority, workload

Raw = dict[str, Any]
ZONES = ("a", "b")
SPREAD: Raw = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "new"}},
        }
    ]
}
TOLERATION: Raw = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}
HIGH: Raw = {"priorityClassName": "high"}

nodes = st.lists(
    st.tuples(st.sampled_from(["2", "4", "8"]), st.sampled_from(ZONES), st.booleans()),
    min_size=1,
    max_size=6,
)
workloads = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sampled_from(["250m", "1", "1500m", "3"]),
        st.sampled_from(["Deployment", "StatefulSet", "Job", "DaemonSet"]),
    ),
    max_size=4,
)
added = st.tuples(
    st.integers(1, 6),
    st.sampled_from(["500m", "1", "2500m"]),
    st.lists(st.sampled_from(["spread", "toleration", "high"]), unique=True),
    st.sampled_from(["Deployment", "Job", "Pod"]),
)


def _node(i: int, cpu: str, zone: str, tainted: bool) -> Raw:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}] if tainted else []
    return node(f"n{i}", cpu, labels={"zone": zone}, taints=taints)


def _manifest(count: int, cpu: str, traits: list[str], kind: str) -> Raw:
    spec: Raw = {}
    for trait in traits:
        spec |= {"spread": SPREAD, "toleration": TOLERATION, "high": HIGH}[trait]
    return pod("new", cpu, **spec) if kind == "Pod" else workload("new", count, cpu, kind, **spec)


@settings(max_examples=40, deadline=None)
@given(nodes, workloads, added)
def test_the_same_nodes_as_when_it_is_really_added(
    sizes: list[tuple[str, str, bool]],
    existing: list[tuple[int, str, str]],
    new: tuple[int, str, list[str], str],
) -> None:
    objects = [
        priority("high", 1000),
        *(_node(i, *size) for i, size in enumerate(sizes)),
        *(workload(f"w{i}", count, cpu, kind) for i, (count, cpu, kind) in enumerate(existing)),
    ]
    manifest = _manifest(*new)
    # Time has to pass, so that the added pods come after the others have come to rest.
    step = {
        "apiVersion": "sim.holdfast.io/v1alpha1",
        "kind": "Step",
        "at": "600s",
        "apply": manifest,
    }
    scenario = read_scenario([*documents(objects), Document("steps.yaml", 1, 1, step)])
    result = Simulation(scenario, SETUP, audit=False).run(until=700.0)
    really = sorted(
        (_where(raw), raw["spec"].get("nodeName") or "")
        for raw in result.objects
        if raw["kind"] == "Pod" and raw["metadata"]["labels"]["app"] == "new"
    )
    answer = ask(cluster(*objects), manifests=[manifest])
    predicted = sorted(
        [(_owner(each), each.node) for each in answer.placed if "/new" in each.object]
        + [(_owner(each), "") for each in answer.pending if "/new" in each.object]
    )
    assert predicted == really


def _where(raw: Raw) -> str:
    owned = bool(raw["metadata"].get("ownerReferences"))
    return "workload" if owned else "pod"


def _owner(each: Any) -> str:
    return "workload" if each.workload else "pod"

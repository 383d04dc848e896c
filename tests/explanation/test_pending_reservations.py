"""What `explain` says of reservations that have no node, and that its advice is true.

Each advised change is applied to the objects; a scheduler that knows nothing of explanations must then
give the reservation a node.
"""

from __future__ import annotations

from typing import Any

import pytest

from explanation.test_situations import (
    ESTIMATE,
    N1,
    Row,
    annotated,
    changed,
    explained,
    full,
    on_n1,
    world_of,
)
from harness.objects import Raw, node, reservation
from harness.world import World

NOT_N1 = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}
            ]
        }
    }
}
N2 = node("n2", cpu="4")


def ending(name: str, cpu: str, on: str, after: str) -> Raw:
    return full(name, cpu, on, metadata=annotated(**{ESTIMATE: after}))


def migration(cpu: str, **more: Any) -> Raw:
    raw = reservation("r", cpu, app="web", **more)
    raw["metadata"]["labels"] = {"holdfast.io/migration-job": "move"}
    return raw


SITUATIONS: dict[str, Row] = {
    "too small a node": Row([N2, reservation("r", "6")], ["large enough"], ["Resize"]),
    "migration to too small a node": Row(
        [
            N1,
            N2,
            full("web", "6", "n1"),
            full("x", "1", "n2"),
            migration("4", pod={"affinity": NOT_N1}),
        ],
        [
            "node affinity metadata.name NotIn (n1) allows all but this node name",
            "closest: n2, short of 1 cpu",
        ],
        ["EndPods"],
    ),
    "migration to a tainted node": Row(
        [
            N1,
            node("n2", cpu="8", taints=[{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]),
            full("web", "6", "n1"),
            migration("6", pod={"affinity": NOT_N1}),
        ],
        ["taint dedicated=db:NoSchedule is not tolerated: n2"],
        [],
    ),
    "pod that ends before it expires": Row(
        [N1, ending("x", "8", "n1", "1h"), reservation("r", "4", ttl="2h")],
        ["closest: n1, short of 4 cpu"],
        ["Wait"],
    ),
    "pod that ends after it expires": Row(
        [N1, ending("x", "8", "n1", "5h"), reservation("r", "4", ttl="2h")],
        ["capacity is expected to be free in 5h, but it expires before"],
        ["EndPods"],
    ),
    "pod that ends seconds before it expires": Row(
        [N1, ending("x", "8", "n1", "2h"), reservation("r", "4", ttl="2h5s")],
        ["capacity is expected to be free in 2h, but it expires 5s later"],
        ["EndPods"],
    ),
    "nodeName of a full node": Row(
        [N1, N2, full("x", "6", "n1"), reservation("r", "4", pod={"nodeName": "n1"})],
        ["closest: n1, short of 2 cpu"],
        ["RemoveNodeName", "Resize"],
    ),
    "nodeName of no node": Row(
        [N1, reservation("r", "4", pod={"nodeName": "worker"})],
        ["It names the node worker, which does not exist"],
        ["RemoveNodeName"],
    ),
    "misspelt nodeName": Row(
        [node("node-1", cpu="8"), reservation("r", "4", pod={"nodeName": "node1"})],
        ["It names the node node1, which does not exist; did you mean node-1?"],
        ["SetNodeName"],
    ),
    "reservation that expires after it": Row(
        [N1, on_n1(reservation("low", "8", app="b", ttl="72h")), reservation("r", "4")],
        ["capacity is expected to be free in 3d, but it expires before"],
        ["DeleteReservation"],
    ),
}


def node_of(world: World) -> str:
    status = world.objects["Reservation", "r"].get("status") or {}
    return str(status.get("nodeName") or "")


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    row = SITUATIONS[name]
    world = world_of(row.objects)
    assert not node_of(world)
    report = explained(world, Row([], [], [], name="r", kind="Reservation"))
    said = "\n".join([report.summary, *report.details])
    for text in row.says:
        assert text in said
    told = [(each.change["actions"][0], each.text) for each in report.advice]
    assert [action for action, _ in told] == row.advises, told
    for advice in report.advice:
        after = world_of(changed(list(world.objects.values()), advice.change))
        assert node_of(after), advice.text

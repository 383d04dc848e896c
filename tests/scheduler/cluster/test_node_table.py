"""A row is given back when nobody claims anything of it for good."""

from harness.builders import make_node, make_pod
from holdfast.api.meta import LabelSelector, ObjectMeta
from holdfast.api.reservation import Reservation, ReservationOwner, ReservationSpec, ReservationStatus
from holdfast.scheduler.cluster.events import Added, Deleted
from holdfast.scheduler.state.cluster import Cluster
from holdfast.scheduler.state.recount import validate_state


def with_a_pod_on_a_lost_node() -> Cluster:
    cluster = Cluster()
    node = make_node("n").allocatable(cpu="1").obj()
    for event in (Added(node), Added(make_pod("p").cpu("1").on("n").obj()), Deleted(node)):
        cluster.feed(event, 0.0)
    return cluster


def test_what_a_transaction_puts_back_keeps_its_row() -> None:
    cluster = with_a_pod_on_a_lost_node()
    with cluster.ledger.transaction():
        cluster.ledger.remove(cluster.pods["uid-p"])
    assert (cluster.nodes.row("n"), validate_state(cluster)) == (0, [])


def test_a_committed_transaction_gives_the_row_back() -> None:
    cluster = with_a_pod_on_a_lost_node()
    with cluster.ledger.transaction() as transaction:
        cluster.ledger.remove(cluster.pods["uid-p"])
        transaction.commit()
    assert cluster.nodes.row("n") is None


def test_a_hold_keeps_its_row() -> None:
    cluster = with_a_pod_on_a_lost_node()
    held = Reservation(
        kind="Reservation",
        metadata=ObjectMeta(name="h", uid="h"),
        spec=ReservationSpec(
            template={"spec": {"containers": [{"name": "c"}]}},
            owners=[ReservationOwner(label_selector=LabelSelector())],
        ),
        status=ReservationStatus(phase="Available", node_name="n"),
    )
    cluster.feed(Added(held), 0.0)
    cluster.feed(Deleted(make_pod("p").obj()), 0.0)
    assert (cluster.nodes.row("n"), validate_state(cluster)) == (0, [])
    cluster.feed(Deleted(held), 0.0)
    assert (cluster.nodes.row("n"), validate_state(cluster)) == (None, [])

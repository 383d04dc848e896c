"""A refused write concerns what the decision was about, and nothing that happens to have its name."""

from harness.builders import make_node, make_pod
from holdfast.api.meta import ObjectMeta
from holdfast.api.reservation import Reservation
from holdfast.scheduler.cluster.decisions import AnnotatePod, CreateReservation, Emit, Evict
from holdfast.scheduler.cluster.events import Added, write_refused
from holdfast.scheduler.state.cluster import Cluster


def cluster_with(uid: str) -> Cluster:
    cluster = Cluster()
    cluster.feed(Added(make_node("n1").allocatable(cpu="4").obj()), 0.0)
    cluster.feed(Added(make_pod("p").uid(uid).cpu("1").node("n1").obj()), 0.0)
    cluster.pods[uid].being_preempted = True
    return cluster


def test_a_pod_that_could_not_be_evicted_stays() -> None:
    cluster = cluster_with("a")
    for _ in range(3):
        cluster.pods["a"].being_preempted = True
        cluster.feed(write_refused(Evict(cluster.pods["a"].ref, "why"), "no", "by b"), 1.0)
        assert not cluster.pods["a"].being_preempted
    (report,) = cluster.take_reports()
    assert report == Emit(
        cluster.pods["a"].ref, "Warning", "EvictionRefused", "why: no by b", "Evicting"
    )


def test_a_reservation_of_a_pods_uid_that_could_not_be_created_is_no_matter_of_the_pod() -> None:
    cluster = cluster_with("a")
    made = Reservation(metadata=ObjectMeta(name="a"))
    cluster.feed(write_refused(CreateReservation(made), "no"), 1.0)
    assert cluster.pods["a"].being_preempted


def test_annotations_that_could_not_be_written_keep_no_victim() -> None:
    cluster = cluster_with("a")
    cluster.feed(write_refused(AnnotatePod(cluster.pods["a"].ref, {}), "no"), 1.0)
    assert cluster.pods["a"].being_preempted

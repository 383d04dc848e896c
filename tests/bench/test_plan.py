"""Pods as the API server would show them at each stage."""

from holdfast.api.pod import Pod
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.bench.plan import PodMaker, make_object, shapes
from holdfast.bench.workload import CreatePods, rows, templates
from holdfast.scheduler.cluster.class_key import class_key


def test_pods_are_objects_of_their_own_and_of_one_class() -> None:
    maker = PodMaker("p", [templates()["pod"]])
    first, second = maker.pending(0), maker.pending(1)
    assert first.metadata.name != second.metadata.name
    assert first.metadata.uid != second.metadata.uid
    assert first.spec.containers[0] is not second.spec.containers[0]
    assert class_key(first) == class_key(second)


def test_a_bound_pod_is_the_same_pod_on_a_node() -> None:
    maker = PodMaker("p", [templates()["pod"]])
    before, after = maker.raw(7), maker.raw(7, "n1")
    assert (before["spec"]["nodeName"], after["spec"]["nodeName"]) == ("", "n1")
    assert before["metadata"] == after["metadata"]
    assert after["status"]["conditions"][0]["status"] == "True"


def test_shapes_are_every_combination_of_values() -> None:
    made = shapes(templates()["shaped-pod"], {"app": ["a", "b"], "cpu": ["1", "2"], "memory": ["1Gi"]})
    maker = PodMaker("p", made)
    assert len({class_key(maker.pending(number)) for number in range(12)}) == 4


def test_mixed160_has_160_classes() -> None:
    op = next(op for op in rows()["Mixed160"].workload.ops if isinstance(op, CreatePods))
    maker = PodMaker("p", shapes(templates()[op.template], op.vary))
    assert len({class_key(maker.pending(number)) for number in range(500)}) == 160


def test_a_name_in_the_template_is_kept() -> None:
    assert make_object(templates()["daemon-node"], "n", 0).metadata.name == "the-one-node"


def test_namespaces_are_assigned_round_robin() -> None:
    maker = PodMaker("p", [templates()["pod"]], namespaces=["a", "b"])
    assert [maker.pending(number).metadata.namespace for number in range(3)] == ["a", "b", "a"]


def test_a_pod_comes_after_its_claim_and_its_volume() -> None:
    along = [templates()["bound-claim"], templates()["csi-volume"]]
    maker = PodMaker("p", [templates()["claiming-pod"]], namespaces=["a", "b"], along=along)
    claim, volume, pod = maker.arriving(1)
    assert isinstance(claim, PersistentVolumeClaim)
    assert isinstance(volume, PersistentVolume)
    assert isinstance(pod, Pod)
    source = pod.spec.volumes[0].persistent_volume_claim
    reference = volume.spec.claim_ref
    assert source is not None
    assert reference is not None
    assert source.claim_name == claim.metadata.name == reference.name == pod.metadata.name
    assert claim.metadata.namespace == reference.namespace == pod.metadata.namespace == "b"
    assert claim.spec.volume_name == volume.metadata.name


def test_a_pod_has_its_number_in_its_name() -> None:
    maker = PodMaker("p", [templates()["pod"]])
    assert maker.number_of(maker.pending(12345).metadata.name) == 12345

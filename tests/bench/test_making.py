"""Pods as the API server would show them at each stage."""

from holdfast.bench.making import PodMaker, make_object, shapes
from holdfast.bench.workload import CreatePods, rows, templates
from holdfast.core.classes import class_key
from holdfast.core.decisions import ObjectRef, SetPodScheduled


def test_pods_are_objects_of_their_own_and_of_one_class() -> None:
    maker = PodMaker("p", [templates()["pod"]])
    first, second = maker.pending(0), maker.pending(1)
    assert first.metadata.name != second.metadata.name
    assert first.metadata.uid != second.metadata.uid
    assert first.spec.containers[0] is not second.spec.containers[0]
    assert class_key(first) == class_key(second)


def test_a_bound_pod_is_the_same_pod_on_a_node() -> None:
    maker = PodMaker("p", [templates()["pod"]])
    before, after = maker.pending(7), maker.bound(7, "n1")
    assert (before.spec.node_name, after.spec.node_name) == ("", "n1")
    assert before.metadata.uid == after.metadata.uid
    assert after.status.conditions[0].status == "True"


def test_a_pod_without_a_node_carries_the_reason() -> None:
    maker = PodMaker("p", [templates()["pod"]])
    why = SetPodScheduled(ObjectRef("Pod", "default", "p", "u"), "Unschedulable", 'said "no"')
    assert maker.told(0, why).status.conditions[0].message == 'said "no"'


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

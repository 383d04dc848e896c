from __future__ import annotations

import pytest

from harness.builders import NodeBuilder, PodBuilder, make_node, make_pod
from harness.driver import cluster_of, only, scores

MB = 2**20


def pod(*images: str) -> PodBuilder:
    made = make_pod("p").image(images[0])
    for image in images[1:]:
        made.container(image=image)
    return made


def node(name: str, **images: int) -> NodeBuilder:
    made = make_node(name)
    for image, size in images.items():
        made.image(image.replace("_", ":"), size)
    return made


@pytest.mark.parametrize(
    ("pod", "nodes", "expected"),
    [
        # An image on one of two nodes counts half its size: (125 - 23) / (1000 - 23).
        (pod("a:1"), [node("n1", a_1=250 * MB), node("n2")], {"n1": 10, "n2": 0}),
        (pod("a:1"), [node("n1", a_1=250 * MB), node("n2", a_1=250 * MB)], {"n1": 23, "n2": 23}),
        (pod("a:1"), [node("n1", a_1=23 * MB)], {"n1": 0}),
        (pod("a:1"), [node("n1", a_1=22 * MB)], {"n1": 0}),
        (pod("a:1"), [node("n1", a_1=33 * MB)], {"n1": 1}),
        (pod("a:1"), [node("n1", a_1=1000 * MB)], {"n1": 100}),
        (pod("a:1"), [node("n1", a_1=5000 * MB)], {"n1": 100}),
        (pod("a:1", "b:1"), [node("n1", a_1=1000 * MB)], {"n1": 49}),
        (pod("a:1", "b:1"), [node("n1", a_1=1500 * MB, b_1=1500 * MB)], {"n1": 100}),
        (pod("a:1", "a:1"), [node("n1", a_1=500 * MB)], {"n1": 49}),
        (pod("a"), [node("n1", a_latest=1000 * MB)], {"n1": 100}),
        (pod("a"), [node("n1", a=1000 * MB)], {"n1": 0}),
        (pod("absent"), [node("n1", a_1=1000 * MB)], {"n1": 0}),
    ],
)
def test_images_present_score_by_size_and_spread(
    pod: PodBuilder, nodes: list[NodeBuilder], expected: dict[str, int]
) -> None:
    made = [n.obj() for n in nodes]
    assert scores(pod.obj(), *made, setup=only("ImageLocality")) == expected


def test_a_registry_port_is_no_tag() -> None:
    there = make_node("n").image("reg.io:5000/app:latest", 1000 * MB).obj()
    assert scores(pod("reg.io:5000/app").obj(), there, setup=only("ImageLocality")) == {"n": 100}


def test_images_that_are_mounted_count_too() -> None:
    there = make_node("n").image("data:latest", 1000 * MB).obj()
    wants = make_pod("p").image("other").volume("v", image={"reference": "data"})
    assert scores(wants.obj(), there, setup=only("ImageLocality")) == {"n": 49}
    two = wants.volume("w", image={"reference": "absent"}).obj()
    assert scores(two, there, setup=only("ImageLocality")) == {"n": 32}


def test_init_containers_count_too() -> None:
    there = make_node("n").image("pause:latest", 1000 * MB).obj()
    wants = make_pod("p").image("other").init_container().obj()
    assert scores(wants, there, setup=only("ImageLocality")) == {"n": 49}


def test_all_names_of_an_image_count() -> None:
    there = make_node("n")
    there.status(images=[{"names": ["x@sha256:0", "a:1"], "sizeBytes": 1000 * MB}])
    assert scores(pod("a:1").obj(), there.obj(), setup=only("ImageLocality")) == {"n": 100}


def test_an_image_has_the_size_first_seen() -> None:
    first, second = node("n1", a_1=500 * MB).obj(), node("n2", a_1=1000 * MB).obj()
    assert scores(pod("a:1").obj(), first, second, setup=only("ImageLocality")) == {
        "n1": 48,
        "n2": 48,
    }


def test_an_image_only_one_node_has_is_as_large_as_that_node_says() -> None:
    wants = pod("a:1").obj()
    driver = cluster_of(node("n1", a_1=500 * MB).obj(), setup=only("ImageLocality")).add(wants)
    assert driver.answer(wants).totals == {"n1": 48}
    driver.update(node("n1", a_1=1000 * MB).obj())
    assert driver.answer(wants).totals == {"n1": 100}


def test_scores_follow_nodes_and_images() -> None:
    wants = pod("a:1").obj()
    driver = cluster_of(node("n1", a_1=1000 * MB).obj(), setup=only("ImageLocality")).add(wants)
    assert driver.answer(wants).totals == {"n1": 100}
    driver.add(node("n2").obj())
    assert driver.answer(wants).totals == {"n1": 48, "n2": 0}
    driver.update(node("n2", a_1=1000 * MB).obj())
    assert driver.answer(wants).totals == {"n1": 100, "n2": 100}
    driver.delete(node("n1").obj())
    assert driver.answer(wants).totals == {"n2": 100}

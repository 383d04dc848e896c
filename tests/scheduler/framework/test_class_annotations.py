"""Annotations that a plugin reads: those it declares, by name or by domain, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.plugin import Filter, Plugin, PodClass, Reason, Rejected, Scope
from holdfast.plugin.testing import Cluster, ContractBroken, node, pod

ZONE = "example.com/zone"


class Zoned(Plugin):
    """A pod goes only to the node its annotation names."""

    name = "Zoned"
    reads_annotations = frozenset({ZONE})

    def filter(self, cls: PodClass) -> Filter | Rejected | None:
        wanted = self.handle.nodes.row(cls.annotations.get(ZONE, "a"))
        return Filter(
            lambda view: view.rows == wanted,
            lambda view: [Reason("node(s) were elsewhere", view.full(True))],
            Scope.NODE,
        )


def variant(**attributes: Any) -> type[Plugin]:
    return type("Variant", (Zoned,), {"name": "Variant", **attributes})


def placed(plugin: type[Plugin], *annotations: str) -> list[str | None]:
    cluster = Cluster(plugin).add(node("a"), node("b"))
    return [cluster.where(pod("p", annotations={ZONE: each})) for each in annotations]


@pytest.mark.parametrize("declared", [ZONE, "example.com/"])
def test_declared_annotations_tell_classes_apart(declared: str) -> None:
    assert placed(variant(reads_annotations=frozenset({declared})), "b", "a", "b") == ["b", "a", "b"]


@pytest.mark.parametrize("declared", [set(), {"example.com/other"}, {"other.com/"}, {"example.com/zo"}])
def test_to_read_an_undeclared_one_is_an_error_that_names_it(declared: set[str]) -> None:
    with pytest.raises(
        ContractBroken, match=f"plugin Variant: filter: .*{ZONE} is not part of the class"
    ):
        placed(variant(reads_annotations=frozenset(declared)), "b")


@pytest.mark.parametrize(
    "read", [lambda found: found[ZONE], lambda found: ZONE in found, lambda found: found.get(ZONE)]
)
def test_however_it_is_read(read: Any) -> None:
    def asks(self: Any, cls: PodClass) -> None:
        read(cls.annotations)

    with pytest.raises(ContractBroken, match="name it in reads_annotations"):
        placed(variant(reads_annotations=frozenset(), filter=asks), "b")


def test_pods_are_rejected_with_the_error_and_others_go_on() -> None:
    """Rather than all of them getting the answer of the first."""
    undeclared = variant(reads_annotations=frozenset())
    cluster = Cluster(undeclared, keep_errors=True).add(node("a"), pod("p"))
    assert cluster.schedule() == {}
    assert f"annotation {ZONE} is not part of the class of a pod" in cluster.messages()["p"]

"""Whom a class minds: pods that by topology bear on where its own can be."""

from collections.abc import Collection

from holdfast.core.classes import PodClass, PodClasses
from holdfast.core.view import Facet


class Minding:
    def __init__(self, classes: PodClasses, facets: Collection[Facet]) -> None:
        """`facets` are those that filters go by."""
        self._classes = classes
        self._facets = facets
        self._known: dict[int, bool] = {}
        self._all: tuple[int, list[PodClass]] = (-1, [])

    def minds(self, cls: PodClass) -> bool:
        minded = self._known.get(cls.id)
        if minded is None:
            minded = self._known[cls.id] = any(facet.counts(cls) for facet in self._facets)
        return minded

    def all(self, stamp: int) -> list[PodClass]:
        """The classes it minds, as of the cluster's stamp, which moves when classes come or go."""
        then, found = self._all
        if then != stamp:
            found = [cls for cls in self._classes if self.minds(cls)]
            self._all = stamp, found
        return found

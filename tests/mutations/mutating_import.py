"""Imports one module of the package with a mistake in it.

The module is compiled from its changed text in memory; every other module is the one on disk.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

from mutations.catalogue import BY_NAME, Mutation


class MutatingLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutation: Mutation) -> None:
        super().__init__(fullname, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        return compile(self._mutation.applied(source), self.path, "exec", dont_inherit=True)


class MutatingFinder(MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutation.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = MutatingLoader(fullname, spec.origin, self._mutation)
        return spec


def install(name: str) -> None:
    """From here on that module has the mistake of this name in the catalogue."""
    mutation = BY_NAME[name]
    assert mutation.module not in sys.modules, f"{mutation.module} was imported before it was changed"
    sys.meta_path.insert(0, MutatingFinder(mutation))

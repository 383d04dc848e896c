"""An expression of CEL, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.machinery.schema.cel.checker import Checker
from holdfast.machinery.schema.cel.evaluation import State, evaluator
from holdfast.machinery.schema.cel.overloads import Type
from holdfast.machinery.schema.cel.syntax import CelSyntaxError, parse

Fields = Mapping[str, Type]


class CelProgram:
    """Raises CelSyntaxError if the text is no expression, or has a wrong type."""

    def __init__(
        self, text: str, variables: Fields, objects: Mapping[str, Fields] | None = None
    ) -> None:
        """`variables` by name with their types; `objects` are the types that have fields."""
        self.text = text
        try:
            self.tree = parse(text)
            self.type = Checker(text, variables, objects or {}).type_of(self.tree)
            self._run = evaluator(self.tree)
        except RecursionError:
            raise CelSyntaxError(text, 0, "expression recursion limit exceeded") from None

    def run(self, variables: dict[str, Any]) -> Any:
        """The value of the expression; raises CelRuntimeError."""
        return self._run(State(variables))

    def evaluate(self, state: State) -> Any:
        """The same, with a state that has the variables and afterwards what it cost."""
        return self._run(state)

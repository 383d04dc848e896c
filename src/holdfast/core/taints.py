"""Taints interned by whole sets: a toleration is judged once per distinct set, not per node."""

from holdfast.api.affinity import Taint

TaintSet = tuple[Taint, ...]
EMPTY = 0


class TaintSets:
    """Set 0 is the empty one. A set keeps its code for ever; there are few."""

    def __init__(self) -> None:
        self._sets: list[TaintSet] = [()]
        self._code: dict[tuple[tuple[str, str, str], ...], int] = {(): EMPTY}
        self.soft = False
        """Whether any set seen so far has a PreferNoSchedule taint."""

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, code: int) -> TaintSet:
        return self._sets[code]

    def intern(self, taints: list[Taint]) -> int:
        key = tuple((taint.key, taint.value, taint.effect) for taint in taints)
        code = self._code.get(key)
        if code is None:
            code = self._code[key] = len(self._sets)
            self._sets.append(tuple(taints))
            self.soft = self.soft or any(t.effect == "PreferNoSchedule" for t in taints)
        return code

"""Taints interned by whole sets: a toleration is judged once per distinct set, not per node."""

import heapq
from collections.abc import Sequence

from holdfast.api.affinity import Taint

TaintSet = tuple[Taint, ...]
Key = tuple[tuple[str, str, str], ...]
EMPTY = 0


class TaintSets:
    """Set 0 is the empty one. A set keeps its code for as long as a node has it; then the code may be
    given to another set, which `reused` counts."""

    def __init__(self) -> None:
        self._sets: list[TaintSet] = [()]
        self._code: dict[Key, int] = {(): EMPTY}
        self._users: list[int] = [1]
        self._free: list[int] = []
        self.reused = 0
        self.soft = False
        """Whether any set seen so far has a PreferNoSchedule taint."""

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, code: int) -> TaintSet:
        return self._sets[code]

    def hold(self, taints: list[Taint]) -> int:
        """The code of a set, which one node more has."""
        key = _key(taints)
        code = self._code.get(key)
        if code is None:
            if self._free:
                code = heapq.heappop(self._free)
                self._sets[code] = tuple(taints)
                self.reused += 1
            else:
                code = len(self._sets)
                self._sets.append(tuple(taints))
                self._users.append(0)
            self._code[key] = code
            self.soft = self.soft or any(t.effect == "PreferNoSchedule" for t in taints)
        self._users[code] += 1
        return code

    def let_go(self, code: int) -> None:
        """One node less has the set."""
        self._users[code] -= 1
        if not self._users[code]:
            del self._code[_key(self._sets[code])]
            self._sets[code] = ()
            heapq.heappush(self._free, code)

    def in_use(self) -> int:
        return len(self._code)


def _key(taints: Sequence[Taint]) -> Key:
    return tuple((taint.key, taint.value, taint.effect) for taint in taints)

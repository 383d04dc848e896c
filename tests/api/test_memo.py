"""A memo has at most as many entries as it is made for."""

from holdfast.api.memo import Memo


def test_a_full_memo_is_emptied_for_another_key() -> None:
    memo: Memo[str, int] = Memo(2)
    memo["a"], memo["b"] = 1, 2
    assert memo == {"a": 1, "b": 2}
    memo["c"] = 3
    assert memo == {"c": 3} and memo.get("a") is None

"""`-o` of `holdfast get`: templates and columns over objects."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.options import Failure
from holdfast.cli.output_format import columns, read_format, sort_key, template

LIST: dict[str, Any] = {
    "items": [
        {"metadata": {"name": "a", "labels": {"app.io/x": "1"}}, "spec": {"cpu": "500m", "n": 2}},
        {"metadata": {"name": "b"}, "spec": {"cpu": "2"}},
    ]
}


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("{.items[*].metadata.name}", "a b"),
        ("{items[0].spec.n}", "2"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.spec.cpu}{"\\n"}{end}', "a\t500m\nb\t2\n"),
        ("{.items[?(@.spec.n==2)].metadata.name}", "a"),
        ("{.items[0].metadata.labels.app\\.io/x}", "1"),
        ("names: {.items[1].metadata.name}!", "names: b!"),
        ("{.items[0].metadata.labels}", '{"app.io/x":"1"}'),
        ("{.nothing}", ""),
    ],
)
def test_templates(text: str, printed: str) -> None:
    assert template(text)(LIST) == printed


def test_columns() -> None:
    found = columns("NAME:.metadata.name,N:.spec.n")
    cells = [[column.cell(raw) for column in found] for raw in LIST["items"]]
    assert ([column.header for column in found], cells) == (
        ["NAME", "N"],
        [["a", "2"], ["b", "<none>"]],
    )


@pytest.mark.parametrize(
    ("path", "names"), [(".spec.cpu", "ab"), ("{.spec.n}", "ab"), (".metadata.name", "ab")]
)
def test_order(path: str, names: str) -> None:
    last_first = [*LIST["items"]]
    last_first.reverse()
    ordered = sorted(last_first, key=sort_key(path))
    assert "".join(raw["metadata"]["name"] for raw in ordered) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jsonpth={.a}", "unknown format 'jsonpth'; did you mean jsonpath?"),
        ("xml", "unknown format 'xml'; known: table, wide"),
        ("jsonpath", "jsonpath needs a value"),
        ("json=x", "json takes no value"),
        ("jsonpath={.a", "unclosed action"),
        ("jsonpath={range .a}", "{range} without {end}"),
        ("jsonpath={end}", "{end} without {range}"),
        ("custom-columns=NAME", "expected HEADER:PATH, got 'NAME'"),
        ("jsonpath-file=/nonexistent", "/nonexistent: No such file or directory"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(Failure) as caught:
        read_format(text)
    assert message in str(caught.value)

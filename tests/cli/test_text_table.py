"""Tables of any size, for terminals and files."""

import time

import pytest

from holdfast.cli.text_table import PIPED_WIDTH, Column, Screen, TextTable


def printed(capsys: pytest.CaptureFixture[str], table: TextTable) -> list[str]:
    Screen().show(table)
    return capsys.readouterr().out.splitlines()


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable("Things", [Column("name"), Column("count", right=True)])
    table.add("a", "1")
    table.add("longer", "10")
    assert printed(capsys, table) == [
        "Things",
        "",
        "  name     count",
        " ────────────────",
        "  a            1",
        "  longer      10",
        "",
    ]


def test_what_is_too_long_is_wrapped_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(f"word{i}" for i in range(60))
    table = TextTable("T", [Column("key", wraps=False), Column("text"), Column("name")])
    table.add("k" * 30, words, "x" * 300)
    lines = printed(capsys, table)
    assert max(map(len, lines)) <= PIPED_WIDTH
    assert "".join(lines).count("x") == 300 + len("text") - 3
    assert all(f"word{i}" in " ".join(lines) for i in range(60))


def test_control_characters_are_not_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable("T", [Column("a"), Column("b")])
    table.add("x\x1b[31mred\ry", "two\nlines")
    lines = printed(capsys, table)
    assert "\x1b" not in "".join(lines)
    assert lines[-3:] == ["  x [31mred y   two", "                lines", ""]


def test_wide_characters_count_twice(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable("T", [Column("a"), Column("b")])
    table.add("世界", "x")
    table.add("abcd", "y")
    assert printed(capsys, table)[-3:] == ["  世界   x", "  abcd   y", ""]


def test_colours_only_where_they_are_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TextTable("T", [Column("a"), Column("b")])
    table.add("x", "y", styled=1, style="green")
    assert "\x1b" not in "\n".join(printed(capsys, table))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "  x   \x1b[32my\x1b[0m" in printed(capsys, table)


def test_many_rows_take_little_time(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable("T", [Column(name) for name in "abcd"])
    for i in range(20_000):
        table.add("1h0m0s", f"Pod/default/pod-{i}", "Bound", "on node-17")
    began = time.process_time()
    assert len(printed(capsys, table)) == 20_005
    assert time.process_time() - began < 5

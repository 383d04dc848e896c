"""Whoever tries the README's commands in a clone keeps a clean working tree."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_files_that_the_commands_of_the_readme_write_are_ignored() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    written = re.findall(r"^\$ holdfast .* > ([\w.-]+)", text, re.MULTILINE)
    written += re.findall(r"\$PWD/([\w.-]+)", text)
    assert len(written) >= 4
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert [name for name in written if f"/{name}" not in ignored] == []

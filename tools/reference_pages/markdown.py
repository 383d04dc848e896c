"""Markdown: tables, code spans, and the line that says that a page is made by a tool."""

from collections.abc import Iterable, Sequence

MADE = "This page is generated from the code by `make reference`."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return (
        "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)
        .replace("| --- ", "|---")
        .replace("|--- |", "|---|")
    )


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """A code span; empty if there is no text."""
    return f"`{text}`" if str(text) else ""


def page(title: str, *parts: str) -> str:
    return "\n".join([f"# {title}\n", f"{MADE}\n", *parts]).rstrip("\n") + "\n"

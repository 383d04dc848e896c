"""Writes the pages under docs/reference: `python tools/write_reference.py`, or `make reference`."""

from pathlib import Path

from reference_pages import (
    commands,
    configuration,
    definitions,
    messages,
    metrics,
    names_on_objects,
    output_schemas,
)

TARGET = Path(__file__).parent.parent / "docs" / "reference"

_PAGES = {
    "cli.md": commands,
    "configuration.md": configuration,
    "custom-resources.md": definitions,
    "labels-and-annotations.md": names_on_objects,
    "metrics.md": metrics,
    "messages.md": messages,
}


def contents() -> dict[str, str]:
    """File name to text."""
    pages = {name: module.text() for name, module in _PAGES.items()}
    return pages | output_schemas.files()


if __name__ == "__main__":
    for name, text in contents().items():
        (TARGET / name).write_text(text, encoding="utf-8")

"""Writes the definitions under deploy/crds, a file each: `python tools/write_crds.py`."""

from pathlib import Path

from holdfast.api.crds import as_yaml, definitions

TARGET = Path(__file__).parent.parent / "deploy" / "crds"


def contents() -> dict[str, str]:
    """File name to text."""
    return {f"{each['metadata']['name']}.yaml": as_yaml([each]) for each in definitions()}


if __name__ == "__main__":
    for name, text in contents().items():
        (TARGET / name).write_text(text, encoding="utf-8")

"""Objects as YAML."""

from typing import Any

import yaml


class _Plain(yaml.CSafeDumper):
    """Writes what is shared out in full: not everyone who reads YAML knows anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_yaml(raw: Any, sort_keys: bool = False) -> str:
    """Keys as they were written, or in order of the alphabet; long lines as they are."""
    text: str = yaml.dump(raw, Dumper=_Plain, sort_keys=sort_keys, allow_unicode=True, width=1000)
    return text

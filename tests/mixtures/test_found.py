"""Lives that broke a rule once, made small: they keep all of them now."""

import re
from pathlib import Path

import pytest
import yaml

from mixtures.playing import play_documents

FOUND = Path(__file__).parent / "found"
FILES = sorted(file for file in FOUND.glob("*.yaml") if not file.name.endswith(".config.yaml"))
NO_CONFIG = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_life_found_before_keeps_all_rules(file: Path) -> None:
    text, config = file.read_text(), file.with_suffix(".config.yaml")
    until = re.search(r"^# Until (\d+)s\.$", text, re.MULTILINE)
    assert until is not None, "a scenario says until when it is played"
    played = play_documents(
        list(yaml.safe_load_all(text)),
        yaml.safe_load(config.read_text() if config.exists() else NO_CONFIG),
        int(until[1]),
    )
    assert played.problems == []

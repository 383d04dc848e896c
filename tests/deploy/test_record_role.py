"""The role of `holdfast record` is that of `holdfast snapshot`, with watch."""

from typing import Any

import yaml

from house.source import REPOSITORY


def role(folder: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPOSITORY / "deploy" / folder / "rbac.yaml").read_text())
    return loaded


def test_a_recorder_may_watch_what_a_snapshot_lists_and_nothing_more() -> None:
    reads, watches = role("snapshot"), role("record")
    expected = [
        {**rule, "verbs": [*rule["verbs"], "watch"]} if "resources" in rule else rule
        for rule in reads["rules"]
    ]
    assert watches["rules"] == expected
    verbs = {verb for rule in watches["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    assert not any("secrets" in (rule.get("resources") or ()) for rule in watches["rules"])

"""The ClusterRole of `holdfast snapshot`: exactly what it lists, and only for reading."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import yaml

from deploy.chart import ROOT
from holdfast.snapshot.reader import SNAPSHOT_KINDS

Raw = dict[str, Any]
FILE = ROOT / "deploy" / "snapshot" / "rbac.yaml"
PRIVATE = {"secrets", "configmaps", "events", "serviceaccounts"}


def _role() -> Raw:
    role: Raw = yaml.safe_load(FILE.read_text())
    return role


def test_kubernetes_accepts_it() -> None:
    kubernetes_validate.validate(_role(), "1.35", strict=True)


def test_it_reads_the_kinds_of_a_snapshot_and_no_others() -> None:
    granted = {
        (group, resource)
        for rule in _role()["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == {(each.info.group, each.info.plural) for each in SNAPSHOT_KINDS}
    assert not {resource for _, resource in granted} & PRIVATE


def test_it_writes_nothing() -> None:
    assert {verb for rule in _role()["rules"] for verb in rule["verbs"]} == {"get", "list"}

"""The functions for rules of Holdfast's own definitions give the errors of CEL, without loading it."""

from __future__ import annotations

import itertools
from copy import deepcopy
from typing import Any

import pytest

from holdfast.api.crds import definitions
from holdfast.machinery.schema.catalogue import Catalogue, crd_warnings
from holdfast.machinery.schema.custom import cel as rules
from holdfast.machinery.schema.custom.cel import own_rule, own_rules_in
from holdfast.machinery.validation.kinds import check_values

Raw = dict[str, Any]
GROUP = "scheduling.koordinator.sh"


def _check(raw: Raw, old: Raw | None = None) -> list[str]:
    catalogue = Catalogue()
    for definition in definitions():
        catalogue.add_crd(definition)
    kind = catalogue.kind(GROUP, "v1alpha1", "Reservation")
    assert kind is not None
    return [problem.text for problem in check_values(kind, raw, old)]


def _reservation(node: str = "", **spec: Any) -> Raw:
    template = {"spec": {"containers": [{"name": "c"}], **spec.pop("pod", {})}}
    raw: Raw = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r"},
        "spec": {"owners": [{"object": {"name": "p"}}], "template": template, **spec},
    }
    if node:
        raw["status"] = {"nodeName": node}
    return raw


def _without_containers() -> Raw:
    raw = _reservation()
    raw["spec"]["template"]["spec"] = {"nodeName": "n"}
    return raw


CASES: dict[str, tuple[Raw, Raw | None]] = {
    "fine": (_reservation(), None),
    "two ends": (_reservation(ttl="1h", expires="2027-01-01T00:00:00Z"), None),
    "a ttl of parts": (_reservation(ttl="+1h.5m30.s"), None),
    "no ttl": (_reservation(ttl="0"), None),
    "ttl without a unit": (_reservation(ttl="5"), None),
    "negative ttl": (_reservation(ttl="-5m"), None),
    "ttl on two lines": (_reservation(ttl="5m\n"), None),
    "no containers": (_without_containers(), None),
    "resources of the pod as a whole": (_reservation(pod={"resources": {}}), None),
    "moved": (_reservation("n", pod={"nodeName": "m"}), _reservation("n", pod={"nodeName": "n"})),
    "moved before it was placed": (_reservation(pod={"nodeName": "m"}), _reservation()),
    "tolerates more": (
        _reservation("n", pod={"tolerations": [{"operator": "Exists"}]}),
        _reservation("n"),
    ),
    "pre-allocates after all": (_reservation("n", preAllocation=True), _reservation("n")),
    "no longer once": (_reservation("n", allocateOnce=False), _reservation("n", allocateOnce=True)),
    "policy given up": (_reservation("n"), _reservation("n", allocatePolicy="Aligned")),
    "owners changed": (_reservation("n", owners=[{"object": {"name": "q"}}]), _reservation("n")),
}


def test_every_rule_of_our_definitions_has_its_function() -> None:
    for definition in definitions():
        for version in definition["spec"]["versions"]:
            for rule in own_rules_in(version["schema"]["openAPIV3Schema"]):
                assert own_rule(rule["rule"]) is not None, rule


@pytest.mark.parametrize("case", CASES)
def test_errors_are_those_of_the_library(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, old = CASES[case]
    by_function = _check(deepcopy(raw), deepcopy(old))
    monkeypatch.setattr(rules, "own_rule", lambda text: None)
    assert _check(deepcopy(raw), deepcopy(old)) == by_function


def test_what_is_fixed_and_contradictory_is_refused() -> None:
    refused = {case: _check(raw, old) for case, (raw, old) in CASES.items()}
    assert {case for case, errors in refused.items() if errors} == {
        "two ends",
        "ttl without a unit",
        "negative ttl",
        "ttl on two lines",
        "no containers",
        "moved",
        "tolerates more",
        "pre-allocates after all",
        "no longer once",
        "policy given up",
    }
    assert "expires cannot be given together with ttl; keep one of them" in refused["two ends"][0]
    assert refused["negative ttl"] == [
        'spec.ttl: Invalid value: "-5m": must be a duration such as 90s, 5m or 1h30m'
    ]


def test_no_rule_of_our_definitions_gives_a_warning() -> None:
    assert [*itertools.chain.from_iterable(map(crd_warnings, definitions()))] == []

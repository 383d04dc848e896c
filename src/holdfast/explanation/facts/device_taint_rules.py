"""DeviceTaintRules, with which administrators taint devices: which of them keep claims from devices."""

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.api.kinds import KINDS
from holdfast.api.names import RESOURCE_API
from holdfast.api.resource_slices import DeviceTaintRule
from holdfast.kube.object_client import Raw
from holdfast.scheduler.managers.claims.device_table import taints_of
from holdfast.scheduler.managers.claims.explanation import DeviceReason
from holdfast.scheduler.managers.claims.search import TAINT
from holdfast.snapshot.cluster_snapshot import ClusterSnapshot

DEVICE_TAINT_RULE = KINDS[RESOURCE_API, "DeviceTaintRule"]


def rules_behind(
    snapshot: ClusterSnapshot, row: int, reasons: Iterable[DeviceReason]
) -> list[DeviceTaintRule]:
    """The rules that taint devices of a row because of which these are not used. A taint that the
    driver has published too does not come from the rule."""
    tainted = [each for each in reasons if each.reason == TAINT]
    raws = snapshot.all(DEVICE_TAINT_RULE) if tainted else []
    if not raws:
        return []
    entries = snapshot.cluster.claims.catalogue.visible(row).entries
    published = {entry.id: taints_of(entry.device.taints) for entry in entries}
    added = [(each.device, {*each.taints} - {*published.get(each.device, ())}) for each in tainted]
    return [
        rule
        for rule in _rules(raws)
        if any(
            taints.intersection(taints_of([rule.spec.taint]))
            and (rule.spec.device_selector is None or rule.spec.device_selector.selects(device))
            for device, taints in added
        )
    ]


def _rules(raws: Iterable[Raw]) -> Iterator[DeviceTaintRule]:
    for raw in sorted(raws, key=lambda each: str(each["metadata"]["name"])):
        try:
            yield msgspec.convert(raw, DeviceTaintRule)
        except msgspec.ValidationError:
            continue


def rule_text(rule: DeviceTaintRule) -> str:
    """`the taint broken=yes:NoSchedule of devices comes from DeviceTaintRule maintenance, which selects
    driver gpu.example.com`"""
    taint, selector = rule.spec.taint, rule.spec.device_selector
    value = f"={taint.value}" if taint.value else ""
    parts = (
        [("driver", selector.driver), ("pool", selector.pool), ("device", selector.device)]
        if selector is not None
        else []
    )
    selected = ", ".join(f"{what} {name}" for what, name in parts if name is not None)
    return (
        f"the taint {taint.key}{value}:{taint.effect} of devices comes from DeviceTaintRule "
        f"{rule.metadata.name}, which selects {selected or 'all devices'}"
    )

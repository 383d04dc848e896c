"""Matching claims with volumes in bulk, against doing it node by node."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.builders import make_pod
from harness.builders.storage import ClaimBuilder, VolumeBuilder, make_claim, make_class, make_volume
from harness.driver import big_node, default_driver, without
from holdfast.api.selectors import match_node_selector
from holdfast.api.storage import PersistentVolume, PersistentVolumeClaim
from holdfast.scheduler.managers.volumes.volume_objects import references_claim, storage_of

ZONES = ("a", "b", "c")


def node(rng: random.Random, name: str) -> Any:
    builder = big_node(name)
    if rng.random() < 0.9:
        builder.label("zone", rng.choice(ZONES))
    if rng.random() < 0.5:
        builder.label("disk", rng.choice(("ssd", "hdd")))
    return builder


def offer(rng: random.Random, name: str, claims: int) -> VolumeBuilder:
    builder = make_volume(name).size(f"{rng.randint(1, 6)}Gi").storage_class("wait")
    kind = rng.random()
    if kind < 0.3:
        builder.on_nodes("zone", *rng.sample(ZONES, rng.randint(1, 2)))
    elif kind < 0.5:
        builder.on_nodes("kubernetes.io/hostname", f"n{rng.randrange(8)}")
    elif kind < 0.7:
        builder.affinity(
            [
                {"key": "zone", "operator": "NotIn", "values": [rng.choice(ZONES)]},
                {"key": "disk", "operator": "Exists"},
            ],
            [{"key": "disk", "operator": "In", "values": ["hdd"]}],
        )
    if rng.random() < 0.3:
        builder.modes("ReadWriteOnce", "ReadWriteMany")
    if rng.random() < 0.3:
        builder.label("tier", rng.choice(("1", "2")))
    if rng.random() < 0.15:
        builder.claimed_by(f"c{rng.randrange(claims)}", phase="Available")
    if rng.random() < 0.1:
        builder.status(phase="Released")
    return builder


def wish(rng: random.Random, name: str) -> ClaimBuilder:
    builder = make_claim(name).size(f"{rng.randint(1, 6)}Gi").storage_class("wait")
    if rng.random() < 0.2:
        builder.modes("ReadWriteMany")
    if rng.random() < 0.2:
        builder.spec(selector={"matchLabels": {"tier": rng.choice(("1", "2"))}})
    return builder


def usable(volume: PersistentVolume, labels: dict[str, str]) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return match_node_selector(affinity.required, labels, "")


def served(
    claim: PersistentVolumeClaim,
    volumes: list[PersistentVolume],
    labels: dict[str, str],
    taken: set[str],
) -> PersistentVolume | None:
    """As the PV controller and kube-scheduler look for a volume, one node at a time."""
    best: PersistentVolume | None = None
    for volume in sorted(volumes, key=lambda v: v.metadata.name):
        spec = volume.spec
        meant = references_claim(spec.claim_ref, claim)
        if volume.metadata.name in taken or (spec.claim_ref is not None and not meant):
            continue
        if storage_of(spec.capacity) < storage_of(claim.spec.resources.requests):
            continue
        if meant:
            return volume if usable(volume, labels) else None
        selector = claim.spec.selector
        if (
            volume.status.phase != "Available"
            or not set(claim.spec.access_modes) <= set(spec.access_modes)
            or (selector and not selector.match_labels.items() <= volume.metadata.labels.items())
            or not usable(volume, labels)
        ):
            continue
        if best is None or storage_of(spec.capacity) < storage_of(best.spec.capacity):
            best = volume
    return best


@pytest.mark.parametrize("seed", range(150))
def test_the_same_volumes_as_node_by_node(seed: int) -> None:
    rng = random.Random(seed)
    driver = default_driver(
        make_class("wait").obj(),
        *(node(rng, f"n{i}").obj() for i in range(8)),
        config=without("NodeResourcesFit", "NodeResourcesBalancedAllocation"),
    )
    count = rng.randint(1, 3)
    for step in range(12):
        for _ in range(rng.randint(0, 3)):
            driver.add(offer(rng, f"v{rng.randrange(12)}", count).obj())
        if rng.random() < 0.3:
            driver.update(node(rng, f"n{rng.randrange(8)}").obj())
        known = driver.cluster.objects.get("PersistentVolume", {})
        if known and rng.random() < 0.3:
            driver.delete(rng.choice(list(known.values())))
        claims = [wish(rng, f"c{i}").obj() for i in range(count)]
        driver.update(*claims)
        builder = make_pod(f"p{step}").namespace("default")
        for claim in claims:
            builder.claim(claim.metadata.name)
        pod = builder.obj()
        driver.add(pod)
        record = driver.cluster.pods[pod.metadata.uid]
        column = driver.scheduler.columns.column(driver.scheduler.profiles[0], record.cls)
        volumes = list(known.values())
        nodes = driver.cluster.nodes
        expected = {}
        for row, info in nodes.info.items():
            taken: set[str] = set()
            for claim in sorted(claims, key=lambda c: storage_of(c.spec.resources.requests)):
                found = served(claim, volumes, dict(info.labels), taken)
                if found is None:
                    break
                taken.add(found.metadata.name)
            expected[info.name] = taken if len(taken) == count else None
            assert column.fits_row(row) == (len(taken) == count), f"{info.name}: {driver.now}"
        driver.later()
        if record.row >= 0:
            assumed_volumes = set(driver.cluster.volumes.assumed.of(record.uid)[0])
            meant = {
                v.metadata.name
                for v in volumes
                if any(references_claim(v.spec.claim_ref, c) for c in claims)
            }
            assert (
                assumed_volumes | meant
                >= (expected[nodes.name(record.row)] or set())
                >= assumed_volumes
            )
        driver.delete(pod)
        driver.later()

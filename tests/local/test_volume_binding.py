"""Which volume a claim gets, by the volume controller's rules."""

from __future__ import annotations

import pytest

from harness.builders import make_node
from harness.builders.storage import (
    ClaimBuilder,
    ClassBuilder,
    VolumeBuilder,
    make_claim,
    make_class,
    make_csi_node,
    make_volume,
)
from holdfast.api.names import DEFAULT_STORAGE_CLASS_ANNOTATION
from holdfast.local.volume_binding import reach_of_new, volume_for
from holdfast.scheduler.managers.volumes.volume_objects import default_class


def claim(size: str = "5Gi") -> ClaimBuilder:
    return make_claim("c").size(size).storage_class("fast")


def volume(name: str, size: str = "5Gi") -> VolumeBuilder:
    return make_volume(name).size(size).storage_class("fast")


@pytest.mark.parametrize(
    ("claim", "volumes", "chosen"),
    [
        (claim(), [], None),
        (claim(), [volume("big", "9Gi"), volume("small", "6Gi")], "small"),
        (claim(), [volume("b"), volume("a")], "a"),
        (claim(), [volume("less", "4Gi")], None),
        (claim(), [volume("v").storage_class("slow")], None),
        (claim().modes("ReadWriteMany"), [volume("v")], None),
        (claim().spec(volumeMode="Block"), [volume("v")], None),
        (claim().spec(volumeAttributesClassName="gold"), [volume("v")], None),
        (claim().spec(selector={"matchLabels": {"a": "b"}}), [volume("v")], None),
        (claim().spec(selector={"matchLabels": {"a": "b"}}), [volume("v").label("a", "b")], "v"),
        (claim(), [volume("v").deleted()], None),
        (claim(), [volume("v").status(phase="Released")], None),
        (claim(), [volume("v").claimed_by("other")], None),
        # A volume that names the claim comes before a smaller one, and need not be of its class.
        (claim(), [volume("v"), volume("w", "9Gi").claimed_by("c", phase="Available")], "w"),
        (claim(), [volume("w").storage_class("slow").claimed_by("c")], "w"),
        (claim(), [volume("w", "1Gi").claimed_by("c")], None),
        (claim(), [volume("w").claimed_by("c", uid="another")], None),
        # A claim that names a volume gets that one or none.
        (claim().spec(volumeName="v"), [volume("a"), volume("v", "9Gi")], "v"),
        (claim().spec(volumeName="v"), [volume("a")], None),
        (claim().spec(volumeName="v"), [volume("v").claimed_by("other")], None),
        (claim().spec(volumeName="v"), [volume("v", "1Gi")], None),
        (claim().spec(volumeName="v"), [volume("v").storage_class("slow")], None),
        (claim().spec(volumeName="v"), [volume("v", "1Gi").claimed_by("c")], "v"),
        (
            claim().spec(volumeName="v", selector={"matchLabels": {"a": "b"}}),
            [volume("v")],
            "v",
        ),
    ],
)
def test_the_volume_of_a_claim(
    claim: ClaimBuilder, volumes: list[VolumeBuilder], chosen: str | None
) -> None:
    found = volume_for(claim.obj(), [v.obj() for v in volumes])
    assert (found.metadata.name if found is not None else None) == chosen


@pytest.mark.parametrize(
    ("claim", "volume", "taken"),
    [
        (claim(), volume("v"), False),
        (claim(), volume("v").claimed_by("c"), True),
        (claim().spec(volumeName="v"), volume("v"), True),
    ],
)
def test_what_a_claim_that_waits_for_its_pod_takes_at_once(
    claim: ClaimBuilder, volume: VolumeBuilder, taken: bool
) -> None:
    assert (volume_for(claim.obj(), [volume.obj()], waits=True) is not None) == taken


def test_a_volume_must_be_within_reach_of_the_pods_node() -> None:
    here, there = volume("here", "9Gi").on_nodes("zone", "a"), volume("there").on_nodes("zone", "b")
    node = make_node("n").label("zone", "a").obj()
    volumes = [here.obj(), there.obj()]
    found = volume_for(claim().obj(), volumes, node)
    assert found is not None and found.metadata.name == "here"
    meant = there.claimed_by("c").obj()
    assert volume_for(claim().obj(), [here.obj(), meant], node) is None


@pytest.mark.parametrize(
    ("classes", "chosen"),
    [
        ([], ""),
        ([("plain", "2026-01-01T00:00:00Z", "")], ""),
        ([("plain", "2026-01-02T00:00:00Z", ""), ("one", "2026-01-01T00:00:00Z", "true")], "one"),
        ([("no", "2026-01-02T00:00:00Z", "false"), ("one", "2026-01-01T00:00:00Z", "true")], "one"),
        ([("new", "2026-01-02T00:00:00Z", "true"), ("old", "2026-01-01T00:00:00Z", "true")], "new"),
        ([("b", "2026-01-01T00:00:00Z", "true"), ("a", "2026-01-01T00:00:00Z", "true")], "a"),
    ],
)
def test_the_default_class(classes: list[tuple[str, str, str]], chosen: str) -> None:
    made = []
    for name, created, default in classes:
        cls = make_class(name).created(created)
        made.append(cls.annotation(DEFAULT_STORAGE_CLASS_ANNOTATION, default).obj())
    assert default_class(made) == chosen


@pytest.mark.parametrize(
    ("cls", "with_node", "topology_keys", "terms"),
    [
        (make_class("c", "driver"), True, [], []),
        (make_class("c", "driver"), True, ["zone"], [{"zone": ["a"]}]),
        (make_class("c", "driver"), True, ["zone", "rack"], [{"zone": ["a"]}]),
        (make_class("c", "other"), True, ["zone"], []),
        (make_class("c", "driver").allowed("zone", "a", "b"), True, [], [{"zone": ["a"]}]),
        (make_class("c", "driver").allowed("zone", "a", "b"), False, [], [{"zone": ["a", "b"]}]),
    ],
)
def test_where_a_new_volume_can_be_used(
    cls: ClassBuilder, with_node: bool, topology_keys: list[str], terms: list[dict[str, list[str]]]
) -> None:
    node = make_node("n").label("zone", "a").obj() if with_node else None
    csi_node = make_csi_node("n").driver("driver")
    csi_node.raw_spec["drivers"][0]["topologyKeys"] = topology_keys
    found = reach_of_new(cls.obj(), node, csi_node.obj())
    assert [{e.key: e.values for e in term.match_expressions} for term in found] == terms

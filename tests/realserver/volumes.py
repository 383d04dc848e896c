"""Clusters where claims wait for their pods: volumes that will do or not, a driver that makes more."""

from __future__ import annotations

from harness.builders import PodBuilder, Raw, make_node, make_pod
from harness.builders.storage import (
    make_capacity,
    make_claim,
    make_class,
    make_csi_driver,
    make_csi_node,
    make_volume,
)
from harness.choices import NODE_NAMES, Chooser, rarely, sometimes
from harness.storage_choices import fill_capacity
from harness.strategies import ZONES

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
DRIVER = "disks.example.com"
_CLAIMS = tuple(f"c{i}" for i in range(10))
_SIZES = ("500Mi", "1Gi", "2Gi", "3Gi", "5Gi")
_CLASSES = ("wait", "wait", "wait", "make", "make", "make", "")
_MODES = (
    ("ReadWriteOnce",),
    ("ReadWriteOnce",),
    ("ReadWriteOnce", "ReadOnlyMany"),
    ("ReadWriteOnce", "ReadWriteMany"),
    ("ReadWriteOncePod",),
)
_SEGMENTS: tuple[Raw | None, ...] = (
    None,
    {},
    {"matchLabels": {ZONE: "z1"}},
    {"matchLabels": {HOST: "n1"}},
    {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]},
)


def cluster(choose: Chooser) -> list[Raw]:
    made = []
    for name in NODE_NAMES[: choose((2, 3, 4))]:
        node = make_node(name).allocatable(cpu="16", memory="64Gi", pods=110)
        made.append((node if rarely(choose) else node.zone(choose(ZONES))).raw())
        if sometimes(choose):
            csi_node = make_csi_node(name).driver(DRIVER, choose((2, 4, 8)))
            csi_node.raw_spec["drivers"][0]["topologyKeys"] = None
            made.append(csi_node.raw())
    made += [make_class("wait").raw(), _making_class(choose)]
    if choose((True, False)):
        made.append(make_csi_driver(DRIVER).tracks_capacity(choose((True, True, False))).raw())
        made += [_capacity(choose, f"k{i}") for i in range(choose((0, 1, 2)))]
    made += [_volume(choose, f"v{i}") for i in range(choose((4, 8, 12)))]
    return made + [_claim(choose, name) for name in _CLAIMS]


def random_pod(choose: Chooser, name: str) -> PodBuilder:
    made = make_pod(name).cpu("100m").spec(schedulerName="default-scheduler")
    for claim in dict.fromkeys(choose(_CLAIMS) for _ in range(choose((1, 1, 1, 2)))):
        made.claim(claim)
    if choose((True, False)):
        made.node_selector({HOST: choose(NODE_NAMES[:3])})
    return made


def made_for(claim: Raw, node: str) -> Raw:
    """The volume a driver makes for a claim whose pod goes to a node."""
    name, spec = claim["metadata"]["name"], claim["spec"]
    made = make_volume(f"made-{name}").size(spec["resources"]["requests"]["storage"])
    made.modes(*spec["accessModes"]).storage_class(spec["storageClassName"]).csi(DRIVER, f"made-{name}")
    made.claimed_by(name, uid=claim["metadata"]["uid"]).on_nodes(HOST, node)
    return made.spec(volumeMode=spec["volumeMode"]).raw()


def _making_class(choose: Chooser) -> Raw:
    made = make_class("make", DRIVER)
    if sometimes(choose):
        made.allowed(ZONE, *sorted({choose(ZONES), choose(ZONES)}))
    return made.raw()


def _capacity(choose: Chooser, name: str) -> Raw:
    made = make_capacity(name, "make")
    fill_capacity(choose, made, _SEGMENTS, _SIZES)
    return made.raw()


def _volume(choose: Chooser, name: str) -> Raw:
    made = make_volume(name).size(choose(_SIZES)).modes(*choose(_MODES)).storage_class(choose(_CLASSES))
    made.csi(choose((DRIVER, "other.example.com")), name).status(phase="Available")
    if choose((True, False)):
        key, values = choose(((ZONE, ZONES), (HOST, NODE_NAMES)))
        made.on_nodes(key, *sorted({choose(values), choose(values)}))
    if rarely(choose):
        made.label(ZONE, choose(("z1", "z1__z2")))
    if sometimes(choose):
        made.label("kind", choose(("a", "b")))
    if rarely(choose):
        made.spec(volumeMode="Block")
    return made.raw()


def _claim(choose: Chooser, name: str) -> Raw:
    mode = choose(("ReadWriteOnce",) * 5 + ("ReadWriteOncePod", "ReadOnlyMany"))
    made = make_claim(name).size(choose(_SIZES)).modes(mode).storage_class(choose(_CLASSES))
    if rarely(choose):
        made.spec(selector={"matchLabels": {"kind": "a"}})
    if rarely(choose):
        made.spec(volumeMode="Block")
    return made.raw()

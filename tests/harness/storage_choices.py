"""Random claims, volumes and what drivers say, by choosing from short lists, as `choices` does for the
rest. The names are few, so that much happens to the same claim."""

from __future__ import annotations

from collections.abc import Sequence

from harness.builders import PodBuilder, Raw
from harness.builders.storage import (
    CapacityBuilder,
    make_attachment,
    make_capacity,
    make_claim,
    make_class,
    make_csi_driver,
    make_csi_node,
    make_volume,
)
from harness.choices import NODE_NAMES, Chooser, rarely, sometimes
from harness.strategies import NAMESPACES, ZONES
from holdfast.api.meta import Object

DRIVER, OTHER = "disks.example.com", "files.example.com"
CLAIMS = ("c0", "c1", "c2", "c3")
VOLUMES = ("v0", "v1", "v2", "v3", "v4")
_CLASSES = ("wait",) * 6 + ("make",) * 5 + ("now", "")
_SIZES = ("1Gi", "2Gi", "5Gi", "500Mi", "2G")
_MODES = (
    ("ReadWriteOnce",),
    ("ReadWriteOnce",),
    ("ReadWriteOncePod",),
    ("ReadWriteOnce", "ReadOnlyMany"),
    ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"),
)
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_ZONE_LABELS = (_ZONE, _ZONE, "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone")
_TOPOLOGIES: tuple[Raw | None, ...] = (
    None,
    {},
    {"matchLabels": {_ZONE: "z1"}},
    {"matchLabels": {_HOST: "n1"}},
    {"matchExpressions": [{"key": _ZONE, "operator": "Exists"}]},
    {"matchExpressions": [{"key": _ZONE, "operator": "NotIn", "values": ["z1", "z2"]}]},
)


def base(choose: Chooser) -> list[Object]:
    """What most clusters have: classes, claims with and without volumes, volumes without claims."""
    return [
        *(_class(choose, name) for name in ("wait", "make", "now")),
        *(_volume(choose, name) for name in VOLUMES if not sometimes(choose)),
        *(
            _claim(choose, name, "default")
            for name in CLAIMS
            if not (rarely(choose) and rarely(choose))
        ),
        *(storage_object(choose) for _ in range(choose((0, 3, 6, 10)))),
    ]


def servable(choose: Chooser) -> list[Object]:
    """A claim that waits for its pod, a volume that will do, and a class that could make one."""
    claim = make_claim(choose(CLAIMS)).size("1Gi").storage_class(choose(("wait", "make")))
    volume = make_volume(choose(VOLUMES)).size(choose(_SIZES)).storage_class(choose(("wait", "make")))
    classes = (make_class("wait"), make_class("make", DRIVER))
    return [*(cls.obj() for cls in classes), claim.obj(), volume.csi(DRIVER, "new").obj()]


def storage_object(choose: Chooser) -> Object:
    kinds = ("claim",) * 3 + ("volume",) * 3 + ("csinode",) * 3 + ("class", "driver", "attachment")
    match choose((*kinds, "capacity")):
        case "claim":
            return _claim(choose, choose(CLAIMS), choose(NAMESPACES))
        case "volume":
            return _volume(choose, choose(VOLUMES))
        case "class":
            return _class(choose, choose(("wait", "make", "now")))
        case "csinode":
            made = make_csi_node(choose(NODE_NAMES))
            for driver in (DRIVER, OTHER, "ebs.csi.aws.com", "pd.csi.storage.gke.io"):
                if choose((True, False)):
                    made.driver(driver, choose((None, 0, 1, 1, 2)))
            return made.obj()
        case "driver":
            csi_driver = make_csi_driver(choose((DRIVER, OTHER))).tracks_capacity(choose((True, False)))
            return csi_driver.demanded(choose((False, False, True))).obj()
        case "attachment":
            attachment = make_attachment(choose(("a0", "a1")))
            driver = choose((DRIVER, OTHER))
            return attachment.of(driver, choose((*VOLUMES, "v9")), choose(NODE_NAMES)).obj()
        case _:
            capacity = make_capacity(choose(("k0", "k1")), choose(("make", "make", "wait")))
            fill_capacity(choose, capacity, _TOPOLOGIES, _SIZES)
            return capacity.obj()


def fill_capacity(
    choose: Chooser, made: CapacityBuilder, topologies: Sequence[Raw | None], sizes: Sequence[str]
) -> None:
    topology = topologies[choose(range(len(topologies)))]
    if topology is not None:
        made.topology(**topology)
    if not rarely(choose):
        made.capacity(choose(sizes))
    if rarely(choose):
        made.largest(choose(sizes))


def _class(choose: Chooser, name: str) -> Object:
    if name == "wait":
        return make_class(name).obj()
    made = make_class(name, choose((DRIVER, DRIVER, OTHER)))
    if name == "now":
        made.immediate()
    while rarely(choose):
        key = choose((_ZONE, _ZONE, _HOST))
        made.allowed(key, *(choose(ZONES if key == _ZONE else NODE_NAMES) for _ in range(2)))
    return made.obj()


def _volume(choose: Chooser, name: str) -> Object:
    made = make_volume(name).size(choose(_SIZES)).modes(*choose(_MODES))
    made.storage_class(choose(_CLASSES))
    if not rarely(choose):
        made.csi(choose((DRIVER, DRIVER, OTHER)), choose((name, name, name, "shared")))
    if choose((True, False)):
        key = choose((_ZONE, _HOST))
        made.on_nodes(key, *(choose(ZONES if key == _ZONE else NODE_NAMES) for _ in range(2)))
    if rarely(choose):
        made.label(choose(_ZONE_LABELS), choose((*ZONES, "z1__z2", "z1__")))
    if rarely(choose):
        made.label("kind", choose(("a", "b")))
    if rarely(choose):
        made.spec(volumeMode="Block")
    if rarely(choose):
        made.status(phase=choose(("Released", "Pending")))
    if rarely(choose):
        made.deleted()
    if sometimes(choose):
        claim = choose(CLAIMS)
        phase = choose(("Bound", "Available"))
        made.claimed_by(claim, uid=choose(("", f"uid-{claim}", "old")), phase=phase)
    return made.obj()


def _claim(choose: Chooser, name: str, namespace: str) -> Object:
    made = make_claim(name).namespace(namespace).size(choose(_SIZES)).modes(*choose(_MODES))
    if not rarely(choose):
        made.storage_class(choose((*_CLASSES, "gone")))
    match choose(("bound",) * 6 + ("named", "selected", "selected") + ("open",) * 8):
        case "bound":
            made.bound_to(choose((*VOLUMES, "v9") if rarely(choose) else VOLUMES))
        case "named":
            made.spec(volumeName=choose(VOLUMES))
        case "selected":
            made.selected_node(choose((*NODE_NAMES, "gone")))
    if rarely(choose):
        made.spec(selector={"matchLabels": {"kind": "a"}} if choose((True, False)) else {})
    if rarely(choose):
        made.spec(volumeMode="Block")
    if rarely(choose) and rarely(choose):
        made.lost()
    if rarely(choose) and rarely(choose):
        made.deleted()
    return made.obj()


def use_volumes(choose: Chooser, pod: PodBuilder) -> None:
    """A claim, two of them, a disk of the pod's own, or a volume made for it."""
    match choose(("claim",) * 6 + ("claims",) * 4 + ("gce", "aws", "rbd", "iscsi", "ephemeral")):
        case "claim":
            pod.claim(choose((*CLAIMS, "c9") if rarely(choose) else CLAIMS))
        case "claims":
            for name in dict.fromkeys((choose(CLAIMS), choose(CLAIMS))):
                pod.claim(name)
        case "gce":
            read_only = choose((True, False))
            pod.volume("d", gcePersistentDisk={"pdName": choose(("d1", "d2")), "readOnly": read_only})
        case "aws":
            pod.volume("d", awsElasticBlockStore={"volumeID": choose(("vol-1", "vol-2"))})
        case "rbd":
            disk = {"monitors": [choose(("m1", "m2")), "m3"], "pool": "p", "image": choose(("i", "j"))}
            pod.volume("d", rbd={**disk, "readOnly": choose((True, False))})
        case "iscsi":
            name = choose(("iqn.a", "iqn.b"))
            pod.volume("d", iscsi={"iqn": name, "readOnly": choose((True, False))})
        case _:
            template = make_claim("x").size("1Gi").storage_class("wait").raw()
            pod.volume("e", ephemeral={"volumeClaimTemplate": {"spec": template["spec"]}})


def ephemeral_claim(choose: Chooser, pod: str) -> Object:
    """The claim of a pod's ephemeral volume, which may be somebody else's after all."""
    made = make_claim(f"{pod}-e").size("1Gi").storage_class(choose(("wait", "make")))
    owner = f"uid-{pod}" if not rarely(choose) else "another"
    return made.owned_by("Pod", pod, api_version="v1", uid=owner).obj()

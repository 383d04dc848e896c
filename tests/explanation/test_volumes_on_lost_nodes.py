"""Claims without a volume that can be used: it is on a node that is gone, or nothing has made one."""

import pytest

from explanation.test_situations import N1, Row, check, claim, storage_class, using, volume
from harness.objects import Raw, node, pod

P = pod("p", volumes=using("data"))


def local(name: str, *nodes: str) -> Raw:
    """A volume on these nodes."""
    made = volume(name, "data")
    required = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [required]}]}
    made["spec"] |= {"nodeAffinity": {"required": terms}, "storageClassName": "lp"}
    return made


def without_class(raw: Raw) -> Raw:
    del raw["spec"]["storageClassName"]
    return raw


def made_at_once(name: str, provisioner: str) -> Raw:
    return storage_class(name) | {"volumeBindingMode": "Immediate", "provisioner": provisioner}


def test_a_local_volume_of_a_node_that_is_gone() -> None:
    objects = [N1, claim("data", volume="l1", kind="lp"), local("l1", "n9"), P]
    says = "claim data is bound to l1, which needs kubernetes.io/hostname In (n9); n9 does not exist"
    report = check(Row(objects, [says], ["ReplaceClaim"]))
    assert "what l1 stored is lost" in report.advice[0].text


def test_a_local_volume_of_a_node_that_is_full() -> None:
    data = [claim("data", volume="l1", kind="lp"), local("l1", "n2", "n9")]
    full = node("n2", cpu="1")
    report = check(Row([N1, full, *data, pod("p", "2", volumes=using("data"))], ["l1"], ["Resize"]))
    assert not any("does not exist" in each for each in report.details)


@pytest.mark.parametrize(
    ("objects", "advice"),
    [
        (
            [claim("data", kind="std"), made_at_once("std", "csi.example.com")],
            "wait until csi.example.com has made a volume for claim data",
        ),
        (
            [claim("data", kind="std"), made_at_once("std", "kubernetes.io/no-provisioner")],
            "create a volume of storage class std for claim data",
        ),
        ([claim("data", kind="fast")], "create StorageClass fast, or a volume of this class"),
        ([claim("data")], "create a volume without a storage class for claim data"),
        ([without_class(claim("data"))], "name a storage class in claim data or set a default one"),
    ],
)
def test_how_a_claim_gets_a_volume(objects: list[Raw], advice: str) -> None:
    report = check(Row([N1, *objects, P], ["claim data is not bound yet"], ["BindClaims"]))
    assert report.advice[0].text.startswith(advice), report.advice[0].text

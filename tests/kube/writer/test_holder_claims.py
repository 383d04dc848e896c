"""The claims with which reservations hold devices: written before the reservation has its node."""

from __future__ import annotations

from typing import Any

import pytest

from harness.builders import make_pod
from harness.claim_objects import allocation, claim_spec, devices_of, resource_claim
from harness.fake_api import Fault, Raw
from harness.virtual_time import run
from holdfast.api.decode import convert
from holdfast.api.resource_claims import AllocationResult, ResourceClaimSpec
from holdfast.scheduler.cluster.decisions import (
    Bind,
    CreateHolder,
    Decision,
    DeleteClaim,
    HoldDevices,
)
from holdfast.scheduler.managers.claims.held_devices import holder_key, new_holder_claim
from kube.writer.test_reservation_writes import RESERVATIONS, bare_reservation, status
from kube.writer.writer_fixture import Desk, desk, ref

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
BOTH = convert(allocation("n", "gpu-0", "gpu-1"), AllocationResult)
ONE = convert(allocation("n", "gpu-1"), AllocationResult)
SPEC = convert(claim_spec(), ResourceClaimSpec)


def creation(
    r: Raw, rest: AllocationResult | None = BOTH, before_bind: bool = True, **more: Any
) -> CreateHolder:
    key = holder_key(ref(r), "default", "gpu")
    made = new_holder_claim(ref(r), key, SPEC, more.get("held", BOTH))
    return CreateHolder(made, rest, ref(r), before_bind)


def written(d: Desk, r: Raw) -> Raw | None:
    name = holder_key(ref(r), "default", "gpu").name
    found = [raw for raw in d.api.all(CLAIMS) if raw["metadata"]["name"] == name]
    return found[0] if found else None


def phase(d: Desk) -> str:
    return str((d.api.get(RESERVATIONS, "r", "").get("status") or {}).get("phase", ""))


@pytest.mark.parametrize(
    ("faults", "refusal"),
    [
        ([], ""),
        ([Fault("POST", status=503, times=3)], ""),
        ([Fault("POST", cut="after")], ""),
        ([Fault("PATCH", path="resourceclaims", cut="after")], ""),
        ([Fault("PATCH", path="resourceclaims", status=409)], ""),
        ([Fault("POST", status=403, message="exceeded quota")], "403: exceeded quota"),
        ([Fault("POST", status=404, message="namespace not found")], "404: namespace not found"),
        ([Fault("PATCH", path="resourceclaims", status=403, message="no")], "403: no"),
    ],
)
def test_a_reservation_has_its_node_when_its_claim_is_written(
    faults: list[Fault], refusal: str
) -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            d.api.faults += faults
            await d.do(creation(r), status(r, "Available", "n", binds=True))
            outcome = [each for each in d.fed_events() if not each.startswith("Updated")]
            if refusal:
                assert (outcome, phase(d)) == ([f"BindRefused: {refusal}"], "")
                return
            assert (outcome, phase(d)) == (["BindConfirmed"], "Available")
            claim = written(d, r)
            assert claim is not None and devices_of(claim) == ["n/gpu-0", "n/gpu-1"]
            assert len(d.api.all(CLAIMS)) == 1

    run(story())


def test_a_claim_left_from_an_earlier_attempt_is_brought_in_line() -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            await d.do(creation(r, ONE, held=ONE), status(r, "Available", "n", binds=True))
            before = written(d, r)
            await d.do(creation(r), status(r, "Available", "n", binds=True))
            after = written(d, r)
            assert before is not None and after is not None
            assert before["metadata"]["uid"] == after["metadata"]["uid"]
            assert devices_of(after) == ["n/gpu-0", "n/gpu-1"]
            assert before["metadata"]["annotations"] != after["metadata"]["annotations"]

    run(story())


@pytest.mark.parametrize("what", ["foreign", "spec", "deleting"])
def test_a_claim_that_cannot_be_the_reservations_is_refused(what: str) -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            name = holder_key(ref(r), "default", "gpu").name
            owner = {"kind": "Reservation", "name": "r", "uid": r["metadata"]["uid"]}
            metadata: Raw = {} if what == "foreign" else {"ownerReferences": [owner]}
            if what == "deleting":
                metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            there = resource_claim(name, metadata=metadata)
            if what == "spec":
                there["spec"]["devices"]["requests"][0]["exactly"]["count"] = 7
            d.api.create(there)
            await d.do(creation(r), status(r, "Available", "n", binds=True))
            (refused,) = [each for each in d.fed_events() if "BindRefused" in each]
            texts = {
                "foreign": "exists and does not belong to",
                "spec": "exists with other requests",
                "deleting": "is being deleted",
            }
            assert texts[what] in refused
            assert phase(d) == ""

    run(story())


@pytest.mark.parametrize("fault", [None, Fault("PATCH", path="resourceclaims", status=409)])
def test_owners_bound_at_the_same_time_put_back_nothing(fault: Fault | None) -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            await d.do(creation(r, before_bind=False))
            claim = written(d, r)
            assert claim is not None
            pods = [d.api.create(make_pod(name).raw()) for name in ("a", "b")]
            d.api.faults += [fault] if fault is not None else []
            first, second = (Bind(ref(each), "n") for each in pods)
            of = ref(claim)
            await d.do(HoldDevices(of, ONE, True), first, HoldDevices(of, None, True), second)
            after = written(d, r)
            assert after is not None and devices_of(after) == []

    run(story())


@pytest.mark.parametrize("kind", ["create", "hold", "delete"])
def test_refused_writes_apart_from_a_bind_are_fed(kind: str) -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            await d.do(creation(r, before_bind=False))
            claim = written(d, r)
            assert claim is not None
            d.fed.clear()
            d.api.faults.append(Fault(path="resourceclaims", status=403, times=99))
            decisions: dict[str, Decision] = {
                "create": creation(r, before_bind=False),
                "hold": HoldDevices(ref(claim), ONE),
                "delete": DeleteClaim(ref(claim), r["metadata"]["uid"]),
            }
            await d.do(decisions[kind])
            assert d.fed_events() == ["ClaimWriteRefused: 403: scripted"]

    run(story())


def test_a_claim_that_is_gone_needs_no_further_write() -> None:
    async def story() -> None:
        async with desk() as d:
            r = d.api.create(bare_reservation())
            await d.do(creation(r, before_bind=False))
            claim = written(d, r)
            assert claim is not None
            d.api.delete(claim)
            d.fed.clear()
            await d.do(HoldDevices(ref(claim), ONE), DeleteClaim(ref(claim), r["metadata"]["uid"]))
            assert d.fed_events() == []

    run(story())

"""What is written to ResourceClaims before their pod is bound, and what fails the bind."""

from __future__ import annotations

import pytest

from harness.builders import make_pod
from harness.claim_objects import allocation, consumers_of, devices_of, resource_claim
from harness.fake_api import Fault, Raw
from harness.virtual_time import run
from holdfast.api.decode import convert, decode
from holdfast.api.pod import ContainerExtendedResourceRequest
from holdfast.api.resource_claims import AllocationResult, ResourceClaimSpec
from holdfast.scheduler.cluster.decisions import (
    Bind,
    CreateClaim,
    DeallocateClaim,
    Decision,
    HoldDevices,
    ReserveClaim,
    UnreserveClaim,
)
from holdfast.scheduler.managers.claims.extended_resources import new_extended_claim
from kube.writer.writer_fixture import Desk, desk, ref

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
OURS = convert(allocation("n", "gpu-0"), AllocationResult)
LESS = convert(allocation("n", "gpu-1"), AllocationResult)


def known(d: Desk, raw: Raw) -> Raw:
    """A claim that is on the server and in the cache."""
    made = d.api.create(raw)
    d.resource_claims["default", raw["metadata"]["name"]] = decode(made)
    return made


def written(d: Desk) -> Raw:
    return d.api.get(CLAIMS, "c", "default")


def test_allocation_and_reservation_are_written_before_the_bind() -> None:
    async def story() -> None:
        async with desk() as d:
            pod, c = d.api.create(make_pod("p").raw()), known(d, resource_claim("c"))
            await d.do(ReserveClaim(ref(c), ref(pod), OURS), Bind(ref(pod), "n"))
            assert (devices_of(written(d)), consumers_of(written(d))) == (["n/gpu-0"], ["p"])
            assert written(d)["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
            assert d.fed_events() == ["Updated c", "BindConfirmed"]

    run(story())


def test_pods_that_share_a_claim_are_written_to_it_together() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(name).raw()) for name in ("p", "q", "r")]
            c = known(d, resource_claim("c"))
            decisions: list[Decision] = []
            for pod in pods:
                decisions += [ReserveClaim(ref(c), ref(pod), OURS), Bind(ref(pod), "n")]
            await d.do(*decisions)
            assert (devices_of(written(d)), consumers_of(written(d))) == (["n/gpu-0"], ["p", "q", "r"])
            assert d.fed_events().count("BindConfirmed") == 3
            # The finalizer, and all reservations.
            assert (d.api.count("PATCH", "/resourceclaims/"), d.api.count("GET")) == (2, 0)

    run(story())


def test_a_pod_with_another_allocation_does_not_keep_others_from_a_shared_claim() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(name).raw()) for name in ("p", "q", "r")]
            c = known(d, resource_claim("c"))
            decisions: list[Decision] = []
            for pod, its in zip(pods, (OURS, LESS, OURS), strict=True):
                decisions += [ReserveClaim(ref(c), ref(pod), its), Bind(ref(pod), "n")]
            await d.do(*decisions)
            assert (devices_of(written(d)), consumers_of(written(d))) == (["n/gpu-0"], ["p", "r"])
            assert sorted(pod for pod, _ in d.api.binds) == ["p", "r"]
            assert any(each.startswith("BindRefused: claim default/c got") for each in d.fed_events())

    run(story())


def test_after_a_failed_write_each_pod_reserves_a_shared_claim_again() -> None:
    async def story() -> None:
        async with desk() as d:
            pods = [d.api.create(make_pod(name).raw()) for name in ("p", "q", "r")]
            c = known(d, resource_claim("c"))
            d.api.change({**c, "metadata": {**c["metadata"], "labels": {"a": "b"}}})  # all conflict
            decisions: list[Decision] = []
            for pod in pods:
                decisions += [ReserveClaim(ref(c), ref(pod), OURS), Bind(ref(pod), "n")]
            await d.do(*decisions)
            assert sorted(consumers_of(written(d))) == ["p", "q", "r"]
            assert d.fed_events().count("BindConfirmed") == 3

    run(story())


def test_a_claim_that_changed_is_read_again() -> None:
    async def story() -> None:
        async with desk() as d:
            pod, c = d.api.create(make_pod("p").raw()), known(d, resource_claim("c"))
            d.api.change({**c, "metadata": {**c["metadata"], "labels": {"a": "b"}}})
            await d.do(ReserveClaim(ref(c), ref(pod), OURS), Bind(ref(pod), "n"))
            assert devices_of(written(d)) == ["n/gpu-0"]
            assert d.fed_events()[-1] == "BindConfirmed"

    run(story())


def test_a_claim_that_was_allocated_elsewhere_fails_the_bind() -> None:
    async def story() -> None:
        async with desk() as d:
            pod, c = d.api.create(make_pod("p").raw()), known(d, resource_claim("c"))
            d.api.change({**c, "status": {"allocation": allocation("other", "gpu-7")}})
            await d.do(ReserveClaim(ref(c), ref(pod), OURS), Bind(ref(pod), "n"))
            why = "claim default/c got allocated elsewhere in the meantime"
            assert d.fed_events() == ["Updated c", "Updated", f"BindRefused: {why}"]
            assert d.api.binds == []

    run(story())


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_pod_joins_a_claim_only_with_the_allocation_that_it_was_decided_for(
    is_elsewhere: bool,
) -> None:
    """The claim was deallocated and allocated again since, for other pods."""

    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            c = known(d, resource_claim("c", allocation=allocation("n", "gpu-0"), reserved_for=["q"]))
            now = allocation("other", "gpu-7") if is_elsewhere else allocation("n", "gpu-0")
            d.api.change({**c, "status": {**c["status"], "allocation": now}})
            await d.do(ReserveClaim(ref(c), ref(pod), expected=OURS), Bind(ref(pod), "n"))
            assert len(d.api.binds) == (0 if is_elsewhere else 1)
            assert consumers_of(written(d)) == (["q"] if is_elsewhere else ["q", "p"])

    run(story())


def test_a_deallocation_leaves_claims_alone_that_others_use() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            used = resource_claim("c", allocation=allocation("n", "gpu-0"), reserved_for=["q"])
            await d.do(DeallocateClaim(ref(known(d, used)), ref(pod)))
            assert devices_of(written(d)) == ["n/gpu-0"]
            assert d.fed_events() == ["ClaimWriteRefused: claim default/c is in use"]

    run(story())


def test_an_idle_claim_is_deallocated() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            idle = resource_claim("c", allocation=allocation("n", "gpu-0"))
            await d.do(DeallocateClaim(ref(known(d, idle)), ref(pod)))
            assert devices_of(written(d)) == []

    run(story())


def test_the_devices_of_a_reservation_are_cleared_before_they_are_fewer() -> None:
    async def story() -> None:
        async with desk() as d:
            held = resource_claim("c", allocation=allocation("n", "gpu-0", "gpu-1"))
            await d.do(HoldDevices(ref(known(d, held)), LESS))
            assert devices_of(written(d)) == ["n/gpu-1"]
            assert d.fed_events() == ["Updated c", "Updated c"]

    run(story())


def test_a_pod_that_is_gone_is_no_consumer() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            await d.do(UnreserveClaim(ref(known(d, resource_claim("other"))), ref(pod)))
            assert d.failed == []

    run(story())


# Claims that the scheduler creates for extended resources


def creation(pod: Raw) -> CreateClaim:
    spec = convert(resource_claim("c")["spec"], ResourceClaimSpec)
    mapping = convert(
        {
            "containerName": "main",
            "resourceName": "example.com/gpu",
            "requestName": "container-0-request-0",
        },
        ContainerExtendedResourceRequest,
    )
    return CreateClaim(new_extended_claim(ref(pod), spec), OURS, ref(pod), (mapping,))


def test_a_claim_is_created_allocated_and_named_in_the_pod_before_the_bind() -> None:
    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.versions[pod["metadata"]["uid"]] = pod["metadata"]["resourceVersion"]
            await d.do(creation(pod), Bind(ref(pod), "n"))
            (made,) = d.api.all(CLAIMS)
            assert (devices_of(made), consumers_of(made)) == (["n/gpu-0"], ["p"])
            named = d.api.get("/api/v1/pods", "p")["status"]["extendedResourceClaimStatus"]
            assert named["resourceClaimName"] == made["metadata"]["name"]
            assert d.fed_events()[-1] == "BindConfirmed"
            # Four writes: the bind is for the version of the pod that names the claim.
            assert [method for method, _ in d.api.requests] == ["POST", "PATCH", "PATCH", "POST"]

    run(story())


@pytest.mark.parametrize(
    ("fault", "is_left"),
    [
        (Fault("POST", "/resourceclaims", status=400, message="no"), False),
        (Fault("PATCH", "/resourceclaims", status=400, message="no"), True),
        (Fault("PATCH", "/pods/p/status", status=400, message="no"), True),
    ],
)
def test_a_pod_whose_claim_cannot_be_written_is_not_bound(fault: Fault, is_left: bool) -> None:
    """The scheduler deletes what is left of the claim."""

    async def story() -> None:
        async with desk() as d:
            pod = d.api.create(make_pod("p").raw())
            d.api.faults.append(fault)
            await d.do(creation(pod), Bind(ref(pod), "n"))
            assert d.api.binds == []
            assert d.fed_events()[-1] == "BindRefused: 400: no"
            assert len(d.api.all(CLAIMS)) == is_left

    run(story())


@pytest.mark.parametrize("path", ["/resourceclaims/c", "/resourceclaims/c/status"])
def test_a_refused_write_of_a_claim_fails_the_bind(path: str) -> None:
    async def story() -> None:
        async with desk() as d:
            pod, c = d.api.create(make_pod("p").raw()), known(d, resource_claim("c"))
            d.api.faults.append(Fault("PATCH", path, status=400, message="no"))
            await d.do(ReserveClaim(ref(c), ref(pod), OURS), Bind(ref(pod), "n"))
            assert (d.api.binds, d.fed_events()[-1]) == ([], "BindRefused: 400: no")
            assert (devices_of(written(d)), consumers_of(written(d))) == ([], [])

    run(story())

"""Who leads, and who may write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from harness.fake_api import FakeApi, Fault, Raw
from harness.fake_client import FakeClient
from harness.virtual_time import LoopClock, run, until
from holdfast.kube.errors import LeadershipLost
from holdfast.kube.leader_election import Election, Fence
from holdfast.scheduler.framework.config import LeaderElection

LEASES = "/apis/coordination.k8s.io/v1/leases"
NAME = "holdfast-scheduler"
FOREVER = float("inf")


class Candidate:
    """Tries to lead until it is stopped."""

    def __init__(
        self,
        api: FakeApi,
        name: str,
        seed: int = 0,
        settings: LeaderElection | None = None,
        **annotations: str,
    ) -> None:
        clock = LoopClock()
        self.fence = Fence(clock.elapsed)
        self.log: list[str] = []
        self.client = FakeClient(api)
        self.election = Election(
            self.client,
            settings or LeaderElection(),
            name,
            self.fence,
            clock,
            lambda what, detail: self.log.append(f"{what} {detail}"),
            random.Random(seed),
            annotations,
        )
        self.lost_at: float | None = None

    async def run(self) -> None:
        await self.election.acquire()
        await self.election.hold()
        self.lost_at = asyncio.get_running_loop().time()


@asynccontextmanager
async def running(*candidates: Candidate) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(candidate.run()) for candidate in candidates]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def lease(api: FakeApi) -> Raw:
    spec: Raw = api.get(LEASES, NAME, "kube-system")["spec"]
    return spec


def test_one_of_many_leads() -> None:
    async def story() -> None:
        api = FakeApi()
        them = [Candidate(api, f"c{i}", i) for i in range(5)]
        async with running(*them):
            for _ in range(300):
                await asyncio.sleep(1)
                assert sum(c.fence.is_open for c in them) <= 1
            assert sum(c.election.is_leading for c in them) == 1
            leader = next(c for c in them if c.election.is_leading)
            assert {c.election.leader for c in them} == {leader.election.identity}
            assert lease(api)["leaseTransitions"] == 0

    run(story())


def test_the_lease_is_written_as_others_read_it() -> None:
    async def story() -> None:
        api = FakeApi()
        one = Candidate(api, "one")
        async with running(one):
            await until(lambda: one.election.is_leading)
            first = lease(api)
            assert first["holderIdentity"] == "one"
            assert first["leaseDurationSeconds"] == 15
            await asyncio.sleep(20)
            later = lease(api)
            assert later["acquireTime"] == first["acquireTime"]
            assert later["renewTime"] > first["renewTime"]

    run(story())


def test_the_leader_annotates_the_lease_beside_what_others_wrote() -> None:
    async def story() -> None:
        api = FakeApi()
        one, two = Candidate(api, "one", with_="1"), Candidate(api, "two", with_="2")

        def annotations() -> Raw:
            found: Raw = api.get(LEASES, NAME, "kube-system")["metadata"]["annotations"]
            return found

        async with running(one):
            await until(lambda: one.election.is_leading)
            assert annotations() == {"with_": "1"}
            known = api.get(LEASES, NAME, "kube-system")
            api.change({**known, "metadata": {**known["metadata"], "annotations": {"x": "y"}}})
            async with running(two):
                await asyncio.sleep(30)
                assert annotations() == {"x": "y", "with_": "1"}, "the candidate wrote nothing"
        async with running(two):
            await until(lambda: two.election.is_leading)
            assert annotations() == {"x": "y", "with_": "2"}
            labels = api.get(LEASES, NAME, "kube-system")["metadata"]["labels"]
            assert labels == {"app.kubernetes.io/name": "holdfast"}

    run(story())


def test_a_leader_that_goes_quietly_is_replaced_within_the_lease() -> None:
    async def story() -> None:
        api = FakeApi()
        one, two = Candidate(api, "one", 1), Candidate(api, "two", 2)
        async with running(one) as (first,):
            await until(lambda: one.election.is_leading)
            async with running(two):
                await asyncio.sleep(30)
                assert not two.election.is_leading
                first.cancel()
                died = asyncio.get_running_loop().time()
                await until(lambda: two.election.is_leading)
                assert 12.5 <= asyncio.get_running_loop().time() - died <= 15.01
                assert lease(api)["leaseTransitions"] == 1

    run(story())


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_that_is_cut_off_is_replaced_within_the_lease_and_stopped_before(seed: int) -> None:
    """Whatever the moment, and however many wait for it."""

    async def story() -> None:
        api, apart = FakeApi(), FakeApi()
        one = Candidate(api, "one", seed)
        others = [Candidate(api, f"other-{i}", 100 * seed + i) for i in range(seed % 3 + 1)]
        async with running(one):
            await until(lambda: one.election.is_leading)
            async with running(*others):
                await asyncio.sleep(20 + seed * 0.137)
                apart.faults.append(Fault(delay=3600, times=FOREVER))
                one.client.api = apart
                cut_at = asyncio.get_running_loop().time()
                while not any(other.election.is_leading for other in others):
                    await asyncio.sleep(0.01)
                took_over_at = asyncio.get_running_loop().time()
                assert took_over_at - cut_at <= 15.05
                assert one.lost_at is not None and one.lost_at < took_over_at - 4
                assert not one.fence.is_open

    run(story())


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("duration", [3.0, 3.4])
def test_two_never_write_though_the_lease_is_hardly_longer_than_the_deadline(
    seed: int, duration: float
) -> None:
    settings = LeaderElection(
        lease_duration=duration, renew_deadline=duration - 0.01, retry_period=0.5 + seed * 0.1
    )

    async def story() -> None:
        api, apart = FakeApi(), FakeApi()
        one, two = (Candidate(api, f"c{i}", 2 * seed + i, settings) for i in range(2))
        async with running(one):
            await until(lambda: one.election.is_leading)
            async with running(two):
                await asyncio.sleep(5 + seed * 0.137)
                apart.faults.append(Fault(delay=3600, times=FOREVER))
                one.client.api = apart
                while not two.fence.is_open:
                    await asyncio.sleep(0.005)
                assert not one.fence.is_open

    run(story())


def test_a_renewal_that_is_read_late_counts_from_when_it_is_seen() -> None:
    """It may have been made at any time while the answer was waited for."""

    async def story() -> None:
        api = FakeApi()
        one, two = Candidate(api, "one", 1), Candidate(api, "two", 2)
        async with running(one) as (first,):
            await until(lambda: one.election.is_leading)
            async with running(two):
                await asyncio.sleep(21)
                two.client.api.faults.append(Fault("GET", "/leases/", delay=1.9))
                renewed = lease(api)["renewTime"]
                await until(lambda: lease(api)["renewTime"] != renewed)
                renewed_at = asyncio.get_running_loop().time()
                first.cancel()
                await until(lambda: two.election.is_leading)
                assert asyncio.get_running_loop().time() - renewed_at >= 14.5

    run(story())


def test_the_lease_is_let_go_of_though_the_server_cannot_for_a_while() -> None:
    async def story() -> None:
        api = FakeApi()
        one, two = Candidate(api, "one", 1), Candidate(api, "two", 2)
        async with running(one) as (first,):
            await until(lambda: one.election.is_leading)
            async with running(two):
                await asyncio.sleep(30)
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
                api.faults += [
                    Fault("PUT", status=503, times=3),
                    Fault("PUT", cut="after"),
                    Fault("GET", status=500, times=2),
                ]
                stopped_at = asyncio.get_running_loop().time()
                await one.election.release()
                assert asyncio.get_running_loop().time() - stopped_at <= 10
                await until(lambda: two.election.is_leading, within=5)

    run(story())


def test_a_server_that_cannot_at_all_is_not_waited_for_longer_than_ten_seconds() -> None:
    async def story() -> None:
        api = FakeApi()
        one = Candidate(api, "one", 1)
        async with running(one) as (first,):
            await until(lambda: one.election.is_leading)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            api.faults.append(Fault(delay=3600, times=FOREVER))
            stopped_at = asyncio.get_running_loop().time()
            await one.election.release()
            assert asyncio.get_running_loop().time() - stopped_at <= 10.1
            assert one.log[-1].startswith("not released")

    run(story())


def test_a_leader_that_lets_go_is_replaced_at_once() -> None:
    async def story() -> None:
        api = FakeApi()
        one, two = Candidate(api, "one", 1), Candidate(api, "two", 2)
        async with running(one) as (first,):
            await until(lambda: one.election.is_leading)
            async with running(two):
                await asyncio.sleep(30)
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
                await one.election.release()
                assert lease(api)["holderIdentity"] == ""
                await until(lambda: two.election.is_leading, within=5)
                with pytest.raises(LeadershipLost):
                    one.fence.check()

    run(story())


@pytest.mark.parametrize(("holder", "left"), [("one", ""), ("two", "two")])
def test_a_lease_that_changed_last_is_looked_at_before_it_is_let_go(holder: str, left: str) -> None:
    async def story() -> None:
        api = FakeApi()
        one = Candidate(api, "one")
        async with running(one) as (first,):
            await until(lambda: one.election.is_leading)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            # A renewal that was on its way has arrived; or another took the lease.
            now = api.get(LEASES, NAME, "kube-system")
            api.change({**now, "spec": {**now["spec"], "holderIdentity": holder}})
            await one.election.release()
            assert lease(api)["holderIdentity"] == left
            assert not [line for line in one.log if "not released" in line]

    run(story())


@pytest.mark.parametrize(
    "fault",
    [
        Fault("PUT", status=500, times=FOREVER),
        Fault(cut="before", times=FOREVER),
        Fault("PUT", cut="after", times=FOREVER),
        Fault("PUT", delay=3600, times=FOREVER),
        Fault("", LEASES[:10], status=429, retry_after=60, times=FOREVER),
    ],
    ids=str,
)
def test_a_leader_that_cannot_renew_is_fenced_before_another_can_lead(fault: Fault) -> None:
    async def story() -> None:
        api = FakeApi()
        one = Candidate(api, "one")
        async with running(one):
            await until(lambda: one.election.is_leading)
            await asyncio.sleep(10.5)
            renewed = lease(api)["renewTime"]
            api.faults.append(fault)
            start = asyncio.get_running_loop().time()
            while one.fence.is_open:
                await asyncio.sleep(0.1)
            shut = asyncio.get_running_loop().time()
            assert shut - start <= 10.1
            await until(lambda: one.lost_at is not None)
            assert one.lost_at is not None and one.lost_at - start <= 12.1
            assert not one.election.is_leading
            if fault.cut != "after":
                assert lease(api)["renewTime"] == renewed

    run(story())


def test_a_failure_that_passes_costs_no_lease() -> None:
    async def story() -> None:
        api = FakeApi()
        one = Candidate(api, "one")
        async with running(one):
            await until(lambda: one.election.is_leading)
            for _ in range(5):
                api.faults.append(Fault(cut="before", times=3))
                await asyncio.sleep(20)
                assert one.election.is_leading and one.fence.is_open

    run(story())


def test_the_others_clock_is_not_believed() -> None:
    """A lease whose renewal lies years back is still held if it is seen to change."""

    async def story() -> None:
        api = FakeApi()
        old = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "namespace": "kube-system"},
            "spec": {
                "holderIdentity": "slow",
                "leaseDurationSeconds": 15,
                "renewTime": "1999-01-01T00:00:00.000000Z",
                "leaseTransitions": 4,
            },
        }
        raw = api.create(old)
        two = Candidate(api, "two")
        async with running(two):
            for minute in range(10):
                await asyncio.sleep(10)
                assert not two.election.is_leading
                raw["spec"]["renewTime"] = f"1999-01-01T00:{minute:02}:01.000000Z"
                raw = api.change(raw)
            await until(lambda: two.election.is_leading)
            assert lease(api)["leaseTransitions"] == 5

    run(story())


def test_a_lease_somebody_took_by_force_is_given_up() -> None:
    async def story() -> None:
        api = FakeApi()
        one = Candidate(api, "one")
        async with running(one):
            await until(lambda: one.election.is_leading)
            raw = api.get(LEASES, NAME, "kube-system")
            api.change({**raw, "spec": {**raw["spec"], "holderIdentity": "thief"}})
            await until(lambda: one.lost_at is not None, within=5)
            assert not one.fence.is_open

    run(story())


@pytest.mark.parametrize("seed", range(5))
def test_a_lease_that_somebody_deletes_is_made_again_by_the_leader_and_no_other(seed: int) -> None:
    async def story() -> None:
        api = FakeApi()
        them = [Candidate(api, f"c{i}", 3 * seed + i) for i in range(3)]
        async with running(*them):
            await until(lambda: any(c.election.is_leading for c in them))
            (leader,) = (c for c in them if c.election.is_leading)
            for _ in range(3):
                await asyncio.sleep(7 + seed * 0.37)
                api.delete(api.get(LEASES, NAME, "kube-system"))
                for _ in range(2000):
                    await asyncio.sleep(0.01)
                    assert [c for c in them if c.fence.is_open] == [leader]
            assert lease(api)["holderIdentity"] == leader.election.identity

    run(story())


def test_a_lease_that_was_deleted_with_its_leader_is_taken_when_it_would_have_run_out() -> None:
    async def story() -> None:
        api = FakeApi()
        one, two = Candidate(api, "one", 1), Candidate(api, "two", 2)
        async with running(one) as (first,):
            await until(lambda: one.election.is_leading)
            async with running(two):
                await asyncio.sleep(30)
                first.cancel()
                api.delete(api.get(LEASES, NAME, "kube-system"))
                died = asyncio.get_running_loop().time()
                await until(lambda: two.election.is_leading)
                assert 12.5 <= asyncio.get_running_loop().time() - died <= 15.1
                assert not two.election.is_first, "another led before"

    run(story())


def test_watchdog_sees_a_lease_that_is_not_renewed() -> None:
    async def story() -> None:
        api = FakeApi()
        one = Candidate(api, "one")
        await one.election.acquire()
        assert not one.election.is_stale(20)
        await asyncio.sleep(36)
        assert one.election.is_stale(20)

    run(story())

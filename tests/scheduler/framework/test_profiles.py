"""Several profiles in one process."""

from __future__ import annotations

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver, make_scheduler
from holdfast.scheduler.framework.config import ConfigError
from reference.resource_scores import Strategy
from reference.setup import Setup, document

SPREADING = Setup("spreading", Strategy("LeastAllocated"), without=("NodeResourcesBalancedAllocation",))
PACKING = Setup("packing", Strategy("MostAllocated"), without=("NodeResourcesBalancedAllocation",))
CARELESS = Setup("careless", without=("TaintToleration", "NodeResourcesFit"))


def nodes() -> Driver:
    driver = Driver((SPREADING, PACKING, CARELESS))
    driver.add(make_node("idle").allocatable(cpu="4", memory="8Gi").obj())
    driver.add(make_node("busy").allocatable(cpu="4", memory="8Gi").obj())
    return driver.add(make_pod("tenant").cpu("2").memory("4Gi").on("busy").obj())


@pytest.mark.parametrize(
    ("profile", "node"), [("spreading", "idle"), ("packing", "busy"), ("careless", "idle")]
)
def test_each_pod_is_judged_by_its_own_profile(profile: str, node: str) -> None:
    pod = make_pod("p").cpu("1").memory("1Gi").scheduler(profile).obj()
    assert nodes().add(pod).binds() == {"p": node}


def test_pods_alike_but_for_their_profile_get_different_answers() -> None:
    driver = Driver((SPREADING, CARELESS)).add(make_node("n").taint("k").obj())
    strict, lax = make_pod("strict").scheduler("spreading"), make_pod("lax").scheduler("careless")
    assert driver.add(strict.obj(), lax.obj()).binds() == {"lax": "n"}
    assert driver.record(strict.obj()).cls is driver.record(lax.obj()).cls


def test_weights_decide_between_plugins() -> None:
    def chosen(weight: int) -> dict[str, str]:
        setup = Setup(weights={"NodeAffinity": weight}, without=("NodeResourcesBalancedAllocation",))
        driver = Driver((setup,))
        driver.add(make_node("liked").allocatable(cpu="2", memory="2Gi").label("a").obj())
        driver.add(make_node("empty").allocatable(cpu="200", memory="200Gi").obj())
        pod = make_pod("p").cpu("2").memory("2Gi").prefers_node(1, "a", "Exists").obj()
        return driver.add(pod).binds()

    assert chosen(1) == {"p": "liked"}  # 100 against 99
    config = Setup(weights={"NodeAffinity": 1, "NodeResourcesFit": 3})
    assert config.profile()["plugins"]["multiPoint"]["enabled"]
    driver = Driver((Setup(weights={"NodeAffinity": 1, "NodeResourcesFit": 3}),))
    driver.add(make_node("liked").allocatable(cpu="2", memory="2Gi").label("a").obj())
    driver.add(make_node("empty").allocatable(cpu="200", memory="200Gi").obj())
    pod = make_pod("p").cpu("2").memory("2Gi").prefers_node(1, "a", "Exists").obj()
    assert driver.add(pod).binds() == {"p": "empty"}


def test_profiles_share_the_capacity() -> None:
    driver = Driver((SPREADING, PACKING)).add(make_node("n").allocatable(cpu="1").obj())
    for profile in ("spreading", "packing"):
        driver.add(make_pod(profile).cpu("1").scheduler(profile).obj())
    assert driver.binds() == {"packing": "n"}


def test_capacity_wakes_pods_of_every_profile() -> None:
    driver = Driver((SPREADING, PACKING)).add(make_node("n").allocatable(cpu="2").obj())
    tenant = make_pod("tenant").cpu("2").on("n").obj()
    driver.add(tenant)
    for profile in ("spreading", "packing"):
        driver.add(make_pod(profile).cpu("1").scheduler(profile).obj())
    assert driver.binds(0.0) == {}
    assert driver.delete(tenant).binds(1.0) == {"packing": "n", "spreading": "n"}


def test_an_alias_is_another_name_of_a_profile() -> None:
    from holdfast.scheduler.cluster.events import Added
    from holdfast.scheduler.framework.config import load
    from holdfast.scheduler.framework.registry import Registry
    from holdfast.scheduler.plugins import IN_TREE
    from holdfast.scheduler.scheduler import Scheduler

    registry = Registry(IN_TREE)
    config = load(document([PACKING]), registry.implements())
    scheduler = Scheduler(config, registry, aliases={"default-scheduler": "packing"})
    scheduler.feed(Added(make_node("n").obj()), 0.0)
    scheduler.feed(Added(make_pod("p").obj()), 0.0)
    assert len(scheduler.round(0.0)) == 1


def test_profiles_must_have_different_names() -> None:
    with pytest.raises(ConfigError, match="packing"):
        make_scheduler((PACKING, PACKING))

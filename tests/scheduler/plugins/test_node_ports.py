from __future__ import annotations

import pytest

from harness.builders import PodBuilder, make_node, make_pod
from harness.driver import Driver, only, why_not

REASON = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."


def pod(port: int = 80, protocol: str = "TCP", ip: str = "") -> PodBuilder:
    return make_pod("p").host_port(port, protocol, ip)


@pytest.mark.parametrize(
    ("wants", "used", "fits"),
    [
        (make_pod("p"), pod(), True),
        (pod(), make_pod("q"), True),
        (pod(), pod(81), True),
        (pod(), pod(), False),
        (pod(), pod(protocol="UDP"), True),
        (pod(protocol="SCTP"), pod(protocol="SCTP"), False),
        (pod(ip="10.0.0.1"), pod(ip="10.0.0.1"), False),
        (pod(ip="10.0.0.1"), pod(ip="10.0.0.2"), True),
        (pod(ip="10.0.0.1"), pod(), False),
        (pod(), pod(ip="10.0.0.1"), False),
        (pod(ip="0.0.0.0"), pod(ip="10.0.0.1"), False),
        (pod(ip="0.0.0.0"), pod(), False),
        (pod(ip="::"), pod(ip="10.0.0.1"), True),
        (pod().host_port(443), pod(443), False),
        (make_pod("p").port(80), pod(), True),
        (make_pod("p").port(80).spec(hostNetwork=True), pod(), False),
    ],
)
def test_a_host_port_is_given_once_per_address_and_protocol(
    wants: PodBuilder, used: PodBuilder, fits: bool
) -> None:
    other = used.on("n").obj()
    other.metadata.name = other.metadata.uid = "other"
    message = why_not(wants.obj(), make_node("n").obj(), pods=[other], setup=only("NodePorts"))
    assert message == ("" if fits else REASON)


@pytest.mark.parametrize(("sidecar", "fits"), [(True, False), (False, True)])
def test_of_init_containers_only_sidecars_hold_ports(sidecar: bool, fits: bool) -> None:
    wants = make_pod("p").init_container(sidecar=sidecar)
    wants.raw_spec["initContainers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    used = make_pod("q").host_port(80).on("n").obj()
    message = why_not(wants.obj(), make_node("n").obj(), pods=[used], setup=only("NodePorts"))
    assert message == ("" if fits else REASON)


def test_a_port_is_free_again_when_its_last_user_is_gone() -> None:
    driver = Driver((only("NodePorts"),)).add(make_node("n").obj())
    users = [make_pod(f"u{i}").host_port(80).on("n").obj() for i in range(2)]
    wants = pod().obj()
    driver.add(*users, wants)
    assert driver.binds(0.0) == {}
    assert driver.delete(users[0]).binds(2.0) == {}
    assert driver.delete(users[1]).binds(4.0) == {"p": "n"}


def test_a_pod_does_not_conflict_with_itself() -> None:
    wants = pod().host_port(80).obj()
    assert why_not(wants, make_node("n").obj(), setup=only("NodePorts")) == ""

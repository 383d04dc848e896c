"""A column made of the plain class's, against one made from scratch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from harness.builders import make_pod
from harness.builders.storage import make_claim, make_csi_node, make_volume
from harness.claims import AFFINITY, fit_error, pod_with, zones
from harness.driver import big_node, default_driver
from harness.objects import reservation
from holdfast.api.decode import decode
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE
from holdfast.scheduler.framework.feasibility.volume_column import VolumeColumn
from holdfast.scheduler.framework.guarded import Guarded
from holdfast.scheduler.framework.interface import Plugin


@pytest.mark.parametrize("seed", range(60))
def test_the_same_scores_as_from_scratch(seed: int) -> None:
    rng = random.Random(seed)
    driver = default_driver()
    for i in range(10):
        node = big_node(f"n{i}").zone(rng.choice("abc")).label("disk", rng.choice("xy"))
        if rng.random() < 0.4:
            node.taint("k", "v", "PreferNoSchedule")
        driver.add(node.obj(), make_csi_node(f"n{i}").driver("d", rng.randint(0, 3)).obj())
    for i in range(15):
        volume = make_volume(f"v{i}").csi("d", f"h{i}").claimed_by(f"c{i}")
        if rng.random() < 0.6:
            volume.on_nodes("topology.kubernetes.io/zone", rng.choice("abc"))
        driver.add(volume.obj(), make_claim(f"c{i}").bound_to(f"v{i}").obj())
    profile = driver.scheduler.profiles[0]
    for i in range(15):
        pod = make_pod(f"p{i}").namespace("default").cpu("1").label("app", "a").claim(f"c{i}")
        if rng.random() < 0.5:
            when = rng.choice(["DoNotSchedule", "ScheduleAnyway"])
            pod.spread("topology.kubernetes.io/zone", 1, {"app": "a"}, when=when)
        if rng.random() < 0.5:
            pod.prefers_node(5, "disk", values=["x"])
        driver.add(pod.obj())
        cls = driver.cluster.pods[f"uid-p{i}"].cls
        column = driver.scheduler.columns.column(profile, cls)
        assert isinstance(column, VolumeColumn)
        for again in range(2):
            whole = ClassColumn(driver.cluster, profile, cls)
            whole.refresh()
            column.refresh()
            assert column.fits.tolist() == whole.fits.tolist()
            assert column.totals()[column.fits].tolist() == whole.totals()[whole.fits].tolist()
            assert (column.totals()[~column.fits] < INFEASIBLE // 2).all()
            assert column.best() == whole.best()
            if column.best() < 0:
                assert column.verdict() == whole.verdict()
            if not again:
                driver.update(make_csi_node(f"n{rng.randrange(10)}").driver("d", 2).obj())
        driver.later()


def test_pods_that_find_a_node_pay_for_no_guarded_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = Guarded.__init__

    def counting(self: Guarded, plugin: Plugin, point: str, *rest: Any) -> None:
        made.append(plugin.name)
        make(self, plugin, point, *rest)

    monkeypatch.setattr(Guarded, "__init__", counting)
    driver = default_driver(
        *zones("a", "b"),
        make_volume("v1").on_nodes("zone", "a").claimed_by("c1").obj(),
        make_volume("v2").on_nodes("zone", "gone").claimed_by("c2").obj(),
        make_claim("c1").bound_to("v1").obj(),
        make_claim("c2").bound_to("v2").obj(),
    )
    assert driver.schedule(pod_with("c1").obj()) == {"p": "n1"}
    assert made == []
    assert driver.why_not(pod_with("c2", name="q").obj()) == fit_error(2, f"2 {AFFINITY}")
    assert "VolumeBinding" in made and len(made) == len(set(made)) * 2, "once for each formula"


def test_a_reservation_with_volumes_in_a_profile_without_reservations_is_rejected() -> None:
    mapping = {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "Reservation"}]}}}]}
    driver = default_driver(config=mapping)
    driver.add(big_node("n0").obj(), make_csi_node("n0").driver("d", 3).obj())
    driver.add(
        make_volume("v").csi("d", "h").claimed_by("c").obj(), make_claim("c").bound_to("v").obj()
    )
    raw = reservation(
        "r", pod={"volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]}
    )
    driver.add(decode(raw))
    driver.later()
    known = driver.cluster.reservations.get("r")
    assert known is not None and "has no Reservation plugin" in known.message


def test_an_error_that_no_formula_owns_is_raised_as_it_is() -> None:
    driver = default_driver(big_node("n0").obj(), make_csi_node("n0").driver("d", 3).obj())
    driver.add(
        make_volume("v").csi("d", "h").claimed_by("c").obj(), make_claim("c").bound_to("v").obj()
    )
    driver.add(make_pod("p").namespace("default").cpu("1").claim("c").obj())
    column = driver.scheduler.columns.column(
        driver.scheduler.profiles[0], driver.cluster.pods["uid-p"].cls
    )
    assert isinstance(column, VolumeColumn)
    with pytest.raises(ZeroDivisionError):
        column.recover(ZeroDivisionError())


@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_some_rows_is_the_one_from_scratch(seed: int) -> None:
    rng = random.Random(seed)
    driver = default_driver()
    for i in range(8):
        node = big_node(f"n{i}").zone(rng.choice("ab")).label("disk", rng.choice("xyz"))
        for taint in "klm":
            if rng.random() < 0.4:
                node.taint(taint, "v", "PreferNoSchedule")
        driver.add(node.obj(), make_csi_node(f"n{i}").driver("d", rng.randint(0, 3)).obj())
    volume = make_volume("v").csi("d", "h").claimed_by("c")
    volume.on_nodes("topology.kubernetes.io/zone", "a")
    driver.add(volume.obj(), make_claim("c").bound_to("v").obj())
    chosen = make_pod("p").namespace("default").cpu("1").claim("c")
    for weight, disk in ((100, "x"), (60, "y"), (25, "z")):
        chosen.prefers_node(weight, "disk", values=[disk])
    driver.add(chosen.obj())
    profile, cls = driver.scheduler.profiles[0], driver.cluster.pods["uid-p"].cls
    column = driver.scheduler.columns.column(profile, cls)
    assert isinstance(column, VolumeColumn)
    whole = ClassColumn(driver.cluster, profile, cls)
    whole.refresh()
    for _ in range(10):
        among = np.array([rng.random() < 0.5 for _ in range(8)])
        assert column.best_of(among) == whole.best_of(among)

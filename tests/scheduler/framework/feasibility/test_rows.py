"""A column that remembers rows says of every row what one made from scratch would say."""

from __future__ import annotations

import random

import pytest

from harness.builders import make_node, make_pod
from harness.driver import Driver, default_driver
from holdfast.api.meta import Object
from holdfast.api.names import LIMIT_TO_ALLOCATABLE
from holdfast.scheduler.cluster.epoch import RowLog
from holdfast.scheduler.framework.feasibility import rows
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from holdfast.scheduler.framework.feasibility.rows import INFEASIBLE, RowMemo

_RATIOS = ('{"cpu": "150%", "memory": 200}', '{"cpu": 120}', "{}", '{"cpu": "half"}')


def a_node(name: str, rng: random.Random) -> Object:
    made = make_node(name).allocatable(cpu=rng.choice(("8", "16")), memory="16Gi", pods=110)
    return made.annotation(LIMIT_TO_ALLOCATABLE, rng.choice(_RATIOS)).obj()


def a_pod(name: str, rng: random.Random) -> Object:
    cpu, most = rng.choice((("1", "2"), ("500m", "4")))
    return make_pod(name).requests({"cpu": cpu, "memory": "1Gi"}).limits({"cpu": most}).obj()


def check(driver: Driver, column: ClassColumn) -> None:
    column.refresh()
    fresh = ClassColumn(driver.cluster, driver.scheduler.profiles[0], column.cls)
    fresh.refresh()
    assert column.fits.tolist() == fresh.fits.tolist()
    assert column.totals()[column.fits].tolist() == fresh.totals()[fresh.fits].tolist()
    assert (column.totals()[~column.fits] <= INFEASIBLE // 2).all()
    assert column.best() == fresh.best()


@pytest.mark.parametrize("kept", [4096, 3], ids=["enough memory", "hardly any"])
@pytest.mark.parametrize("seed", range(10))
def test_rows_with_limits_fare_as_if_looked_at_for_the_first_time(
    seed: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_MEMO_ENTRIES", kept)
    rng = random.Random(seed)
    driver = default_driver()
    for i in range(8):
        driver.add(a_node(f"n{i}", rng))
    driver.add(make_pod("first").requests({"cpu": "1"}).limits({"cpu": "3"}).obj())
    cls = driver.cluster.pods["uid-first"].cls
    column = driver.scheduler.columns.column(driver.scheduler.profiles[0], cls)
    assert column._memo is not None
    for number in range(40):
        if rng.random() < 0.85:
            driver.add(a_pod(f"p{number}", rng))
        else:
            driver.update(a_node(f"n{rng.randrange(8)}", rng))
        driver.later()
        check(driver, column)
    if kept > 3:
        assert column._memo is not None and column._memo.known, "rows were remembered"


def test_what_does_not_pay_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_MEMO_ENTRIES", 4)
    log = RowLog()
    memory: RowMemo[int] = RowMemo(log)
    for key in range(4):
        for _ in range(5):
            log.add(key)
        memory.remember(key, key)
    assert memory.worth_it, "every row was met five times"
    assert not memory.known, "and makes room for others"
    for key in range(4):
        log.add(key)
        memory.remember(key, key)
    assert not memory.worth_it

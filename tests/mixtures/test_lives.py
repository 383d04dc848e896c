"""Lives that mix features keep every rule. `make soak` plays many more of them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.plugin import Filter, PodClass
from holdfast.scheduler.plugins.node_ports import NodePorts
from mixtures.life import Life, make_life
from mixtures.making import Raw
from mixtures.playing import play, play_documents
from mixtures.shrinking import shrink, write

LIVES = 500
AT_A_TIME = 25
WITH_CLAIMS = 100
WITH_CALENDAR = 100
REPEATED = range(0, LIVES, 25)
"""Lives that are played again: with another hash seed, with garbage collected at other times, with more
restarts."""


@pytest.mark.parametrize("first", range(0, LIVES, AT_A_TIME))
def test_lives_keep_all_rules(first: int, tmp_path: Path) -> None:
    check(first, tmp_path)


@pytest.mark.parametrize("first", range(0, WITH_CLAIMS, AT_A_TIME))
def test_lives_with_devices_by_claim_keep_all_rules(first: int, tmp_path: Path) -> None:
    check(first, tmp_path, claims=True)


@pytest.mark.parametrize("first", range(0, WITH_CALENDAR, AT_A_TIME))
def test_lives_with_reservations_that_start_later_keep_all_rules(first: int, tmp_path: Path) -> None:
    check(first, tmp_path, calendar=True)


def check(first: int, tmp_path: Path, *, claims: bool = False, calendar: bool = False) -> None:
    for seed in range(first, first + AT_A_TIME):
        life = make_life(seed, claims=claims, calendar=calendar)
        outcome = play(life)
        if outcome.problems:
            file = write(shrink(life, outcome), tmp_path, f"life-{seed}", f"Life {seed}")
            pytest.fail("\n".join([f"life {seed}, made small in {file}:", *outcome.problems]))


def test_neither_the_hash_seed_nor_the_garbage_collector_decides_anything() -> None:
    """What is kept for as long as somebody refers to it may be there longer, and nobody notices."""
    texts = {_texts("1"), _texts("2", "--garbage-after=0"), _texts("3", "--garbage-after=40")}
    assert len(texts) == 1


def _texts(hash_seed: str, *options: str) -> str:
    """All runs of one process."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "mixtures.repeating", *options, *map(str, REPEATED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("first", [REPEATED[0], REPEATED[len(REPEATED) // 2]])
def test_a_restart_more_breaks_no_rule(first: int) -> None:
    for seed in [seed for seed in REPEATED if first <= seed < first + LIVES // 2]:
        life = make_life(seed, claims=seed % 2 == 1, calendar=seed % 4 == 2)
        documents = [*life.documents, restart(life, 0.35), restart(life, 0.7)]
        assert play_documents(documents, life.config, life.until).problems == []


def restart(life: Life, share: float) -> dict[str, str]:
    at = f"{life.until * share:.1f}s"
    return {
        "apiVersion": "sim.holdfast.io/v1alpha1",
        "kind": "Step",
        "at": at,
        "restart": "scheduler",
    }


def test_a_seed_is_a_life() -> None:
    assert make_life(7) == make_life(7)
    assert make_life(7, claims=True) == make_life(7, claims=True)
    assert make_life(7, calendar=True) == make_life(7, calendar=True)
    assert make_life(7).documents != make_life(8).documents


def test_a_life_in_which_much_happens_for_long_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda timer, seconds: given.append(seconds))
    pods = [_pod_coming_at(second) for second in (0, 0.25, 0.5, 2, 3, 3.5)]
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    assert play_documents(pods, config, 10, cpu_seconds=7.0).problems == []
    # Once for making the cluster, then for each second of its life in which something happens.
    assert given == [7.0, 7.0, 7.0, 7.0, 0.0]


def test_a_plugin_that_does_not_return_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(plugin: NodePorts, cls: PodClass) -> Filter | None:
        while True:
            pass

    monkeypatch.setattr(NodePorts, "filter", never)
    outcome = play(make_life(7), cpu_seconds=0.1)
    assert (outcome.kind, outcome.problems) == ("hang", ["no answer within 0.1 s of CPU"])


def _pod_coming_at(second: float) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p{second:g}".replace(".", "-"),
            "annotations": {"sim.holdfast.io/at": f"{second}s"},
        },
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }

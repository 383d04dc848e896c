"""How full GPUs get: the protocol on a small made-up trace of openb's form."""

from pathlib import Path

import numpy as np
import pytest

from holdfast.bench.packing import (
    MOST,
    STRATEGIES,
    NoGpusError,
    figures,
    fragments,
    pack,
    plot,
    read_trace,
    run,
)
from holdfast.bench.workload import BenchError
from holdfast.scheduler.plugins.gpu_fragmentation import Mix, PodKind

GIB = 2**30


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six nodes, 20 GPUs; shares that fit together in some ways better than in others."""
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", "cpu-0,32000,262144,0,"]
    nodes += [f"gpu-{i},{32000 if i < 3 else 64000},262144,{2 if i < 2 else 4},T4" for i in range(6)]
    pods = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos"]
    for i in range(10):
        pods += [f"half-{i},4000,8192,1,500,,LS", f"most-{i},6000,8192,1,810,,LS"]
        pods += [f"whole-{i},8000,8192,1,1000,,LS", f"plain-{i},4000,8192,0,0,,BE"]
    (tmp_path / "openb_node_list_all_node.csv").write_text("\n".join(nodes) + "\n")
    (tmp_path / "openb_pod_list_default.csv").write_text("\n".join(pods) + "\n")
    return tmp_path


def test_pods_come_in_random_order_until_enough_was_asked_for(folder: Path) -> None:
    trace = read_trace(folder, "all_node", "default")
    assert trace.gpus == 20
    first, again, other = trace.arrivals(1), trace.arrivals(1), trace.arrivals(2)
    assert first == again != other
    asked = sum(trace.wants[shape] for shape in first)
    assert MOST * trace.gpus <= asked < MOST * trace.gpus + 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_reports_gpu_allocation_at_each_point(folder: Path, strategy: str) -> None:
    done = run(read_trace(folder, "all_node", "default"), strategy, seed=0)
    assert len(done.allocated) == 131
    assert done.allocated == sorted(done.allocated)
    assert 0.5 < done.allocated[130] <= 1
    assert all(
        0 <= lost <= 1 - have + 1e-6 for have, lost in zip(done.allocated, done.fragments, strict=True)
    )


def test_pods_that_ask_for_a_gpu_model_take_no_other(folder: Path) -> None:
    """Of 20 GPUs 8 are P100: pods for these alone ask for all that is asked for, and get no more."""
    nodes = ["sn,cpu_milli,memory_mib,gpu,model"]
    nodes += [f"gpu-{i},64000,262144,4,{'P100' if i < 2 else 'T4'}" for i in range(5)]
    pods = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"]
    pods += [f"p-{i},1000,1024,1,1000,V100|P100" for i in range(20)]
    (folder / "openb_node_list_all_node.csv").write_text("\n".join(nodes))
    (folder / "openb_pod_list_default.csv").write_text("\n".join(pods))
    done = run(read_trace(folder, "all_node", "default"), "binpack", seed=0)
    assert done.allocated[130] == 8 / 20
    assert done.fragments[130] == pytest.approx(12 / 20)


def test_pods_that_differ_only_in_the_model_are_distinguished(folder: Path) -> None:
    pods = ["cpu_milli,memory_mib,num_gpu,gpu_spec", "1,1,1,T4", "1,1,1,", "1,1,1,T4", "1,1,1,P100| T4"]
    (folder / "openb_pod_list_default.csv").write_text("\n".join(pods))
    trace = read_trace(folder, "all_node", "default")
    assert (trace.shape_of, trace.models) == ([0, 1, 0, 2], [("T4",), (), ("P100", "T4")])
    assert trace.wants == [1.0, 1.0, 1.0]


def test_figures_are_of_all_seeds_and_are_plotted(folder: Path) -> None:
    file = folder / "plot.svg"
    found = pack(folder, "all_node", "default", 2, file)
    assert [(each.strategy, each.seeds) for each in found] == [(name, 2) for name in STRATEGIES]
    assert file.read_text() == plot(found)
    assert all(each.strategy in file.read_text() for each in found)
    assert figures([]) == []


def test_a_plot_that_cannot_be_written_is_an_error(folder: Path) -> None:
    with pytest.raises(BenchError, match=r"--plot .*: Is a directory"):
        pack(folder, "all_node", "default", 1, folder)


@pytest.mark.parametrize("missing", ["no node", "no pod"])
def test_a_trace_without_gpus_is_refused(folder: Path, missing: str) -> None:
    if missing == "no node":
        text = "sn,cpu_milli,memory_mib,gpu,model\ncpu-0,32000,262144,0,\n"
        (folder / "openb_node_list_all_node.csv").write_text(text)
    else:
        text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\np,1,1,0,0,,LS\n"
        (folder / "openb_pod_list_default.csv").write_text(text)
    with pytest.raises(NoGpusError, match=missing):
        read_trace(folder, "all_node", "default")


WHO = [(PodKind(1, 50, 4000, GIB), 5), (PodKind(1, 100, 8000, GIB), 5)]


@pytest.mark.parametrize(
    ("gpus", "cores", "by_the_paper", "ours"),
    [
        ([100, 100], 64, 0, 0),  # everybody finds what it wants
        ([100, 40], 64, 40, 40),  # to nobody are 40 % of use
        ([60, 60], 64, 60, 70),  # to those who want half of one most is, to those who want one nothing
        ([100, 100], 4, 100, 175),  # cpu for one that wants half of one, or for none
        ([100, 100], 8, 0, 100),  # cpu for two halves, or for one whole
        ([0, 0], 64, 0, 0),
    ],
)
def test_what_is_lost_depends_on_who_comes(
    gpus: list[int], cores: int, by_the_paper: float, ours: float
) -> None:
    cpu, memory = np.array([1000 * cores]), np.array([512 * GIB])
    assert fragments(WHO, np.array([gpus]), cpu, memory) == by_the_paper
    mix, left = Mix(WHO), np.array([gpus])
    assert mix.now(left, mix.fit(left), cpu, memory).tolist() == [ours]


def test_memory_counts_as_the_cpu_it_usually_comes_with() -> None:
    gpus, cpu = np.array([[100, 100]]), np.array([64000])
    mix = Mix(WHO)
    few, many = (mix.now(gpus, mix.fit(gpus), cpu, np.array([size * GIB])) for size in (1, 64))
    assert (few.tolist(), many.tolist()) == ([175], [0])


def test_allocating_a_share_or_whole_gpus_is_counted_hypothetically() -> None:
    mix = Mix(
        [
            (PodKind(1, 50, 4000, GIB), 3),
            (PodKind(1, 81, 4000, GIB), 4),
            (PodKind(2, 100, 8000, GIB), 2),
        ]
    )
    gpus = np.array([[100, 100, 70, 0], [100, 81, 50, 30]])
    capacity = np.array([6000, 16000]), np.array([400 * GIB, 400 * GIB])
    shared = mix.with_share(gpus, mix.fit(gpus), *capacity, 50)
    for gpu in range(3):
        after = gpus.copy()
        after[:, gpu] -= 50
        assert shared[:, gpu] == pytest.approx(mix.now(after, mix.fit(after), *capacity))
    assert (shared[:, 3] > 10**8).all(), "a GPU that has not enough is never taken"
    whole = mix.with_whole(gpus, mix.fit(gpus), *capacity, 1)
    after = gpus.copy()
    after[:, 0] = 0
    assert whole == pytest.approx(mix.now(after, mix.fit(after), *capacity))

"""Reading a trace of openb's form."""

from pathlib import Path

import pytest

from holdfast.api.node import Node
from holdfast.bench.drive import Drive
from holdfast.bench.plan import PlannedObjects, Pods
from holdfast.bench.trace import GPU, GPU_MILLI, MODEL, plan_of_trace
from holdfast.bench.workload import BenchError
from holdfast.scheduler.cluster.class_key import class_key

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
cpu-0,32000,262144,0,
gpu-0,64000,262144,2,T4
gpu-1,64000,262144,4,P100
"""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,4000,8192,0,0,,LS,Running,0,10,0
b,4000,8192,1,460,,LS,Running,1,10,1
c,4000,8192,1,460,,LS,Running,2,10,2
d,8000,16384,2,1000,P100|V100M16,BE,Running,3,10,3
e,8000,16384,2,1000,V100M16,BE,Running,4,10,4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    return tmp_path


def test_nodes_have_gpus_whole_and_in_thousandths(folder: Path) -> None:
    step = plan_of_trace(folder).steps[0]
    assert isinstance(step, PlannedObjects)
    plain, with_gpus, _ = step.objects
    assert isinstance(plain, Node) and isinstance(with_gpus, Node)
    assert GPU not in plain.status.allocatable
    assert (with_gpus.status.allocatable[GPU], with_gpus.status.allocatable[GPU_MILLI]) == ("2", "2000")
    assert (with_gpus.metadata.name, with_gpus.metadata.labels[MODEL]) == ("gpu-0", "T4")


def test_pods_ask_for_a_share_or_for_whole_gpus(folder: Path) -> None:
    step = plan_of_trace(folder).steps[1]
    assert isinstance(step, Pods)
    requests = [step.maker.pending(n).spec.containers[0].resources.requests for n in range(step.count)]
    assert requests[0] == {"cpu": "4000m", "memory": "8192Mi"}
    assert (requests[1].get(GPU), requests[1][GPU_MILLI]) == (None, "460")
    assert (requests[3][GPU], requests[3][GPU_MILLI]) == ("2", "2000")


def test_pods_alike_share_a_class(folder: Path) -> None:
    step = plan_of_trace(folder).steps[1]
    assert isinstance(step, Pods)
    assert len({class_key(step.maker.pending(n)) for n in range(step.count)}) == 4


def test_a_trace_runs_and_an_absent_model_is_not_found(folder: Path) -> None:
    drive = Drive(plan_of_trace(folder), batch=2)
    drive.run()
    assert drive.placed["openb-pod-00003"] == "gpu-1"
    assert sorted(drive.placed) == [f"openb-pod-0000{n}" for n in range(4)]


def test_columns_about_gpus_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_all_node.csv").write_text("sn,cpu_milli,memory_mib\nn,32000,1024\n")
    (tmp_path / "openb_pod_list_default.csv").write_text("cpu_milli,memory_mib\n1000,1\n2000,1\n")
    drive = Drive(plan_of_trace(tmp_path), batch=2)
    drive.run()
    assert set(drive.placed.values()) == {"n"}
    assert len(drive.placed) == 2


@pytest.mark.parametrize(
    ("columns", "values", "milli"),
    [("num_gpu", "2", "2000"), ("gpu_milli", "460", "460"), ("num_gpu,gpu_milli", "1,", "1000")],
)
def test_missing_gpu_fields_of_a_pod_are_filled_in(
    folder: Path, columns: str, values: str, milli: str
) -> None:
    text = f"name,cpu_milli,memory_mib,{columns}\na,1,1,{values}\n"
    (folder / "openb_pod_list_default.csv").write_text(text)
    step = plan_of_trace(folder).steps[1]
    assert isinstance(step, Pods)
    assert step.maker.pending(0).spec.containers[0].resources.requests[GPU_MILLI] == milli


def test_missing_files_are_named_with_where_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    with pytest.raises(BenchError, match="alibaba/clusterdata") as caught:
        plan_of_trace(tmp_path)
    assert "openb_pod_list_default.csv" in str(caught.value)
    assert "node_list" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("openb_node_list_all_node.csv", "sn,cpu_milli\n", "no column memory_mib, gpu, model"),
        ("openb_node_list_all_node.csv", "", "no column sn"),
        ("openb_node_list_all_node.csv", NODES.splitlines()[0], "empty"),
        ("openb_node_list_all_node.csv", NODES + "x,1e3,1,0,\n", "line 5, column cpu_milli"),
        ("openb_pod_list_default.csv", PODS.replace("460", "many", 1), "line 3, column gpu_milli"),
        ("openb_pod_list_default.csv", PODS + "\udcff\n", "can't decode byte 0xff"),
        ("openb_pod_list_default.csv", PODS + "f,1\n", "column memory_mib: expected a whole number"),
    ],
)
def test_an_invalid_table_is_named(folder: Path, file: str, text: str, message: str) -> None:
    (folder / file).write_text(text, errors="surrogateescape")
    with pytest.raises(BenchError, match=file) as caught:
        plan_of_trace(folder)
    assert message in str(caught.value)

"""What `holdfast simulate` says about input that is valid but probably not as meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.served_cluster import call

NODE = """
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4", memory: 8Gi}}}
"""
JOB = (
    NODE
    + """
---
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
"""
)
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
EXPECT = "---\n{apiVersion: sim.holdfast.io/v1alpha1, kind: Expect, phases: {p1: Running}}\n"
DUMP = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: gone-1, containers: [{name: c}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {nodeName: gone-2, containers: [{name: c}]}}
- apiVersion: v1
  kind: Pod
  metadata: {name: done}
  spec: {nodeName: gone-3, containers: [{name: c}]}
  status: {phase: Succeeded}
"""


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_pods_on_nodes_that_are_not_in_a_dump_are_a_warning(tmp_path: Path) -> None:
    done = call("simulate", written(tmp_path, "dump.yaml", DUMP))
    assert (done.status, done.err) == (
        0,
        "warning: 2 pods are on nodes not in the input: gone-1, gone-2; "
        "kubectl get nodes,pods,… -A -o yaml dumps nodes too\n",
    )
    complete = DUMP.replace("gone-1", "n1").replace("gone-2", "n1")
    assert call("simulate", written(tmp_path, "whole.yaml", f"{NODE}---{complete}")).err == ""


def test_pods_of_jobs_that_never_end_are_named_and_can_be_given_an_end(tmp_path: Path) -> None:
    file = written(tmp_path, "job.yaml", JOB)
    hint = (
        "2 pods of Jobs run at the end, having no run time: set one by --jobs-run-for or the "
        "annotation sim.holdfast.io/runs-for"
    )
    assert hint in call("simulate", file).out
    assert hint in call("simulate", file, "--jobs-run-for", "unlimited").out
    ended = call("simulate", file, "--jobs-run-for", "20s")
    assert ended.out.count("Succeeded") >= 2 and "having no run time" not in ended.out
    # Those that would end after --until have a run time.
    assert "no run time" not in call("simulate", file, "--jobs-run-for", "1h", "--until", "1m").out


@pytest.mark.parametrize("text", ["soon", "-3s"])
def test_a_run_time_must_be_a_duration(text: str, tmp_path: Path) -> None:
    done = call("simulate", written(tmp_path, "job.yaml", JOB), "--jobs-run-for", text)
    assert done.status == 1
    assert done.err.startswith("error: --jobs-run-for: ")


def test_expects_can_be_ignored(tmp_path: Path) -> None:
    file = written(tmp_path, "s.yaml", NODE + EXPECT)
    configs = [
        option
        for name in ("a", "b")
        for option in ("--config", written(tmp_path, f"{name}.yaml", CONFIG))
    ]
    done = call("simulate", file, *configs)
    assert done.status == 1
    assert done.err.splitlines()[-1].endswith("--no-expect ignores them")
    ignored = call("simulate", file, *configs, "--no-expect")
    assert (ignored.status, ignored.err) == (0, "")


def test_a_report_gets_no_directory_before_the_input_is_valid(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    good = written(tmp_path, "s.yaml", NODE)
    bad = written(tmp_path, "bad.yaml", CONFIG + "nope: 1\n")
    invalid = written(tmp_path, "invalid.yaml", NODE.replace("8Gi", "much"))
    for arguments in ([good, "--config", bad], [invalid]):
        assert call("simulate", *arguments, "--report", str(folder)).status == 1
        assert not folder.exists()


def test_a_report_of_nothing_is_written(tmp_path: Path) -> None:
    file = written(tmp_path, "other.yaml", "{apiVersion: v1, kind: Secret, metadata: {name: s}}")
    assert call("simulate", file, "--report", str(tmp_path / "report")).status == 0


def test_a_file_without_documents_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, "empty.yaml", "# nothing\n")
    assert call("simulate", file).err == f"error: {file}: no documents\n"


def test_a_list_is_one_document(tmp_path: Path) -> None:
    file = written(tmp_path, "dump.yaml", DUMP)
    assert call("config", "validate", file).err == (
        f"error: {file}: expected one document, found a List of 3 objects\n"
    )
    two = written(tmp_path, "two.yaml", f"{CONFIG}---{CONFIG}")
    assert call("config", "validate", two).err.endswith("expected one document, found 2\n")


QUEUE = (
    "{{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {{name: {}}}, spec: {{{}}}}}"
)
QUEUES = "\n---\n".join(
    QUEUE.format(*each)
    for each in (("research", "parent: compny"), ("sales", "parent: company"), ("company", ""))
)


def test_queues_below_one_that_does_not_exist_are_a_warning(tmp_path: Path) -> None:
    done = call("simulate", written(tmp_path, "queues.yaml", QUEUES))
    assert done.err.splitlines() == [
        "warning: Queue/research: spec.parent: its parent compny does not exist, so that nothing above "
        "it limits it; did you mean company?"
    ]


MISSPELT = """
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "4"}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: p
  labels: {koordinator.sh/qosclass: LSR}
  annotations:
    scheduling.koordinator.sh/reservation-affinty: "{}"
    scheduling.koordinator.sh/of-another-version: "1"
    holdfast.io/run-estimate: 5m
spec: {containers: [{name: main}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  template:
    metadata: {annotations: {gang.scheduling.koordinator.sh/min-availble: "2"}}
    spec: {restartPolicy: Never, containers: [{name: main}]}
"""


def test_names_of_labels_and_annotations_that_are_almost_known_are_warnings(tmp_path: Path) -> None:
    file = written(tmp_path, "s.yaml", MISSPELT)
    done = call("simulate", file)
    pod, job = (
        f"{file}: document 2, line 4: Pod/default/p",
        f"{file}: document 3, line 15: Job/default/j",
    )
    gang, ours = "gang.scheduling.koordinator.sh", "scheduling.koordinator.sh"
    assert done.err.splitlines() == [
        f"warning: {pod}: metadata.labels[koordinator.sh/qosclass]: is ignored; did you mean "
        "koordinator.sh/qosClass?",
        f"warning: {pod}: metadata.annotations[{ours}/reservation-affinty]: is ignored; did you mean "
        f"{ours}/reservation-affinity?",
        f"warning: {job}: spec.template.metadata.annotations[{gang}/min-availble]: is ignored; did you "
        f"mean {gang}/min-available?",
    ]


def test_a_pod_of_a_scheduler_that_no_profile_is_for_says_so(tmp_path: Path) -> None:
    spec = "spec: {schedulerName: foo, containers: [{name: c}]}"
    pod = f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, {spec}}}"
    done = call("simulate", written(tmp_path, "s.yaml", pod))
    assert "no profile of the configuration is for its scheduler foo" in done.out


def test_a_malformed_ratio_of_limits_is_a_warning(tmp_path: Path) -> None:
    key = "node.koordinator.sh/limit-to-allocatable"
    node = NODE.replace("{name: n1}", f'{{name: n1, annotations: {{{key}: \'{{"cpu": "lots"}}\'}}}}')
    done = call("simulate", written(tmp_path, "node.yaml", node))
    assert done.err.splitlines() == [
        f"warning: Node/n1: metadata.annotations[{key}]: cpu: expected a percentage such as "
        '"125%" or 125, got "lots"'
    ]

"""The pages of a report: valid, self-contained, escaped, the same every time, and of bounded size."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from harness.scenarios import NODE, joined, pod_text, reservation_text, simulate, step_text
from holdfast.sim.report import write_report
from holdfast.sim.simulation import Result

VOID = {"meta", "input", "link", "br"}
SCRIPT = "<script>alert(1)</script>&\"'"
SCENARIO = joined(
    NODE,
    pod_text("web", "2", runs_for="30s", metadata={"labels": {"app": "r"}}, at="10s"),
    pod_text("big", "9"),
    reservation_text("r", "2"),
    reservation_text("idle", "1", ttl="20s"),
)


class Checked(HTMLParser):
    """Elements are closed in order, and addresses are those of files beside the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.styles = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"{tag} has a handler: {name}"
            assert name != "style", "the policy does not admit style attributes"
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "action", "xlink:href"):
                self.addresses.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def compared(page: str, label: str) -> list[tuple[str, str]]:
    """The classes and texts of a row's cells."""
    row = re.search(rf"<tr[^>]*><th scope=\"row\">{label}</th>(.*?)</tr>", page)
    assert row is not None
    return re.findall(r"<td class=\"([^\"]*)\">(.*?)</td>", row[1])


def checked(page: str) -> Checked:
    parser = Checked()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert all(re.fullmatch(r"#\w+|(\.\./)?([\w%.-]+/)?report\.html", a) for a in parser.addresses)
    outside = re.findall(r"https?://[^\s\"'<)]+", page)
    assert set(outside) <= {"http://www.w3.org/2000/svg"}, "nothing is fetched"
    assert "default-src 'none'" in page
    return parser


def written(folder: Path, *results: Result) -> str:
    configs = [None] if len(results) == 1 else [f"{i}.yaml" for i in range(len(results))]
    write_report(folder, list(zip(configs, results, strict=True)), ["s.yaml"])
    for plot in folder.rglob("*.svg"):
        ElementTree.parse(plot)
    return (folder / "report.html").read_text()


def embedded(page: str) -> dict[str, list[object]]:
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found is not None
    data: dict[str, list[object]] = json.loads(found[1])
    return data


def test_the_page_of_a_run_has_all_views(tmp_path: Path) -> None:
    page = written(tmp_path, simulate(SCENARIO, 60, history=True))
    checked(page)
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    assert titles == [
        "CPU over time",
        "CPU held but unused",
        "Pending pods",
        "Waiting times",
        "Reservations",
        "Nodes over time",
    ]
    assert sorted(each.stem for each in (tmp_path / "plots").glob("*.svg")) == [
        "held-cpu",
        "nodes",
        "pending",
        "reservations",
        "utilisation-cpu",
        "waits",
    ]
    data = embedded(page)
    assert data["pods"] == ["default/web", "default/big"]
    assert data["placed"] == [[0], [0], [10], [40], [0], [0]]
    assert data["reasons"] == ["Insufficient cpu"]
    assert data["notes"] == []


def test_what_no_pod_requests_is_no_figure_on_a_card(tmp_path: Path) -> None:
    """And nodes are shown by a resource that pods request."""
    node = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "4"}
    scenario = joined(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n"},
                "status": {"allocatable": node},
            }
        ),
        """{apiVersion: v1, kind: Pod, metadata: {name: p},
            spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}}""",
    )
    page = written(tmp_path, simulate(scenario, 60, history=True))
    cards = re.findall(r'<div class="card"><b>(.*?)</b><span>(.*?)</span>', page)
    assert [card for card in cards if "requested" in card[1]] == [
        ("50%", "nvidia.com/gpu requested, mean")
    ]
    assert "Share of gpu that pods request" in page


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / name, simulate(SCENARIO, 60, history=True))
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*") if path.is_file()}
        for name in ("one", "two")
    )
    assert first == second


def test_names_and_messages_are_escaped(tmp_path: Path) -> None:
    said = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Failed", "message": SCRIPT},
    }
    result = simulate(joined(SCENARIO, json.dumps(said)), 60, history=True)
    for life in result.node_usage.reservations.lives:
        life.name = SCRIPT
    assert result.history is not None
    for placed in result.history.placements:
        placed.pod = SCRIPT
    write_report(tmp_path, [(SCRIPT, result)], [SCRIPT])
    page = (tmp_path / "report.html").read_text()
    checked(page)
    assert "<script>alert" not in page
    assert SCRIPT in embedded(page)["pods"]
    for plot in (tmp_path / "plots").glob("*.svg"):
        ElementTree.parse(plot)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        (pod_text("p"), 30),
        (NODE, 30),
        (NODE, 0),
        (SCENARIO, 0),
        (joined(NODE, step_text("10s", "delete: {kind: Node, name: n1}"), pod_text("p")), 30),
        (step_text("10s", "restart: scheduler"), None),
    ],
    ids=["no nodes", "no pods", "nothing for 0 s", "0 s", "the node goes", "nothing at all"],
)
def test_odd_runs_have_a_page_too(text: str, until: float | None, tmp_path: Path) -> None:
    result = simulate(text, until, history=True)
    page = written(tmp_path / "run", result)
    checked(page)
    assert "nan" not in page.lower().replace("pods bound", "")
    checked(written(tmp_path / "runs", result, result))


def test_the_plots_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    written(tmp_path, simulate(SCENARIO, 60, history=True))
    written(tmp_path, simulate(NODE, 60, history=True))
    assert not (tmp_path / "plots" / "reservations.svg").exists()


def test_a_comparison_has_differences_from_the_first_run(tmp_path: Path) -> None:
    more = SCENARIO.replace('"9"', '"1"')
    runs = [simulate(text, 60, history=True) for text in (SCENARIO, more)]
    page = written(tmp_path, *runs)
    checked(page)
    assert compared(page, "pods pending at the end") == [
        ("n", "1"),
        ("n", "0"),
        ("n better", "−1 (−100%)"),
    ]
    assert sorted(each.stem for each in (tmp_path / "plots").glob("*.svg")) == [
        "held-cpu",
        "pending",
        "utilisation-cpu",
        "waits",
    ]


def test_more_binds_because_pods_were_created_again_are_not_better(tmp_path: Path) -> None:
    again = joined(
        SCENARIO,
        step_text("20s", "delete: {kind: Pod, name: web, namespace: default}"),
        pod_text("web-again", "2", runs_for="30s", at="21s"),
    )
    page = written(tmp_path, *(simulate(text, 60, history=True) for text in (SCENARIO, again)))
    assert compared(page, "pods created") == [("n", "2"), ("n", "3"), ("n ", "+1 (+50%)")]
    assert compared(page, "pods bound") == [("n", "1"), ("n", "2"), ("n ", "+1 (+100%)")]


def test_a_run_that_bound_no_pod_has_no_shorter_waits(tmp_path: Path) -> None:
    late = joined(NODE, pod_text("first", "4", runs_for="30s"), pod_text("second", "4"))
    none = joined(NODE, pod_text("first", "9"), pod_text("second", "9"))
    page = written(tmp_path, *(simulate(text, 60, history=True) for text in (late, none)))
    for label in ("mean wait", "median wait", "95th percentile of waits", "longest wait"):
        assert compared(page, label)[1:] == [("n", "-"), ("n ", "")]


@pytest.mark.parametrize(("second", "style"), [("4", "n better"), ("9", "n ")])
def test_waits_are_judged_where_as_many_pods_were_bound(
    second: str, style: str, tmp_path: Path
) -> None:
    late = joined(NODE, pod_text("first", "4", runs_for="30s"), pod_text("second", "4"))
    soon = joined(NODE, pod_text("first", "4", runs_for="20s"), pod_text("second", second))
    page = written(tmp_path, *(simulate(text, 60, history=True) for text in (late, soon)))
    assert compared(page, "mean wait")[-1][0] == style


@pytest.mark.parametrize(("until", "style"), [(60, "n worse"), (90, "n ")])
def test_utilisation_is_judged_over_the_same_time(until: float, style: str, tmp_path: Path) -> None:
    full = simulate(joined(NODE, pod_text("p", "4")), 60, history=True)
    half = simulate(joined(NODE, pod_text("p", "2")), until, history=True)
    page = written(tmp_path, full, half)
    assert compared(page, "cpu requested, mean")[-1][0] == style


@pytest.mark.parametrize(("jobs", "style"), [(["a", "b"], "n better"), (["b"], "n ")])
def test_jobs_ready_are_judged_out_of_as_many_jobs(jobs: list[str], style: str, tmp_path: Path) -> None:
    def groups(names: list[str], cpu: str) -> str:
        head = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\n"
        marks = [{"annotations": {"scheduling.k8s.io/group-name": name}} for name in names]
        return joined(
            NODE,
            *(f"{head}metadata: {{name: {name}}}\nspec: {{minMember: 1}}\n" for name in names),
            *(pod_text(name, cpu, metadata=mark) for name, mark in zip(names, marks, strict=True)),
        )

    runs = [groups(jobs, "9"), groups(["a", "b"], "1")]
    page = written(tmp_path, *(simulate(text, 60, history=True) for text in runs))
    assert compared(page, "jobs ready") == [("n", "0"), ("n", "2"), (style, "+2")]


def test_many_nodes_and_pods_make_a_page_of_bounded_size(tmp_path: Path) -> None:
    nodes = [NODE.replace("n1", f"node-{i}") for i in range(3_000)]
    pods = [pod_text(f"pod-{i}", "1", runs_for=f"{60 + i % 50}s") for i in range(200)]
    result = simulate(joined(*nodes, *pods), history=True)
    page = written(tmp_path, result)
    checked(page)
    assert len(page) < 1_000_000
    assert max(plot.stat().st_size for plot in (tmp_path / "plots").iterdir()) < 1_000_000


def test_what_is_too_much_is_cut_and_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.sim.report import page, page_data, plots

    monkeypatch.setattr(page_data, "MOST_PLACEMENTS", 3)
    monkeypatch.setattr(page_data, "MOST_PENDING", 1)
    monkeypatch.setattr(page_data, "MOST_RESERVATIONS", 1)
    monkeypatch.setattr(page, "MOST_ENTRIES", 2)
    monkeypatch.setattr(plots, "MOST_LANES", 1)
    many = [NODE.replace("n1", f"n{i}") for i in (2, 3)]
    pods = [pod_text(f"p{i}", "2") for i in range(8)]
    result = simulate(joined(SCENARIO, *many, *pods), 60, history=True)
    text = written(tmp_path, result)
    checked(text)
    notes = " ".join(re.findall(r'<p class="note">(.*?)</p>', text))
    assert "of 3 nodes" in notes
    assert "1 of 2 reservations" in notes
    assert "timeline.csv has all" in notes
    assert "The first 1 of 2; report.json has all figures." in text
    assert re.search(r"The first 2 of \d+ entries; timeline.csv has all.", text)

"""`holdfast mcp`, asked over stdio by the client of the same library."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.served_cluster import call
from sim.what_if.clusters import node, pod, workload

mcp = pytest.importorskip("mcp")

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
SOURCE = Path(__file__).parents[2] / "src"
CLUSTER = [node("n1"), node("n2"), workload("web", 4), workload("big", 1, "9")]


def _session(snapshot: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def connected() -> Any:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        arguments = ["-m", "holdfast", "mcp", "--snapshot", snapshot]
        server = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=environment)
        async with mcp.Client(server) as client:
            return await work(client)

    return asyncio.run(connected())


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "cluster.yaml"
    waits = pod("waits", "20")
    waits["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"  # the time of all answers
    path.write_text("---\n".join(json.dumps(raw) + "\n" for raw in (*CLUSTER, waits)))
    return str(path)


def test_tools_answer_as_the_commands_do(snapshot: str) -> None:
    manifest = json.dumps(workload("new", 6))

    async def work(client: Any) -> dict[str, Any]:
        listed = await client.list_tools()
        answers: dict[str, Any] = {"tools": listed.tools}
        for name, arguments in (
            ("explain", {"kind": "pod", "name": "waits"}),
            ("when", {"kind": "pod", "name": "waits"}),
            ("get", {"kind": "nodes"}),
            ("what_if", {"manifests": manifest, "nodes": ["+1xn1"]}),
            ("what_if", {"scale": ["deployment/web=11"], "plan": "cpu=4,memory=8Gi"}),
            ("check", {"manifests": manifest}),
            ("check", {"manifests": manifest, "empty": True}),
            ("advise", {"resources": {"cpu": "1"}, "duration": "1h", "max_evictions": 0}),
        ):
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            answers.setdefault(name, []).append(result.structured_content)
        return answers

    answers = _session(snapshot, work)
    assert {tool.name for tool in answers["tools"]} == {
        "explain",
        "when",
        "get",
        "what_if",
        "check",
        "advise",
    }
    assert all(tool.annotations.read_only_hint and tool.description for tool in answers["tools"])
    assert "too little cpu (2)" in answers["explain"][0]["summary"]
    assert answers["when"][0]
    assert answers["get"][0]
    assert answers["advise"][0]["requests"] == {"cpu": "1"} and "windows" in answers["advise"][0]
    assert answers["what_if"][0]["summary"]["placed"] == 6
    assert answers["what_if"][1]["plan"]["total"] >= 1
    full, empty = answers["check"]
    assert (full["fits"], empty["fits"]) == (False, True)
    assert full["objects"][0]["object"] == "Deployment/default/new"
    same = call(
        "what-if", snapshot, "--scale", "deployment/web=11", "--plan", "cpu=4,memory=8Gi", "-o", "json"
    )
    assert answers["what_if"][1] == json.loads(same.out)


ERRORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no such object": ("explain", {"kind": "pod", "name": "none"}, "none"),
    "no such kind": ("explain", {"kind": "cat", "name": "none"}, "cannot explain 'cat'"),
    "nothing to change": ("what_if", {}, "nothing to change"),
    "bad manifest": ("check", {"manifests": "kind: Pod"}, "manifests.yaml: document 1, line 1"),
    "no such node": ("what_if", {"drain": ["n9"]}, "there is no node 'n9'"),
}


def test_errors_are_answers(snapshot: str) -> None:
    async def work(client: Any) -> dict[str, str]:
        found = {}
        for case, (name, arguments, _) in ERRORS.items():
            result = await client.call_tool(name, arguments)
            assert result.is_error, case
            found[case] = result.content[0].text
        return found

    texts = _session(snapshot, work)
    for case, (_, _, text) in ERRORS.items():
        assert text in texts[case], case


def test_objects_have_no_environment_as_in_a_snapshot(tmp_path: Path) -> None:
    private = pod("private", "1")
    private["spec"]["containers"][0] |= {
        "env": [{"name": "KEY", "value": "hunter2"}],
        "args": ["hunter2"],
    }
    private["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}
    path = tmp_path / "dump.yaml"
    path.write_text("---\n".join(json.dumps(raw) + "\n" for raw in (*CLUSTER, private)))

    async def work(client: Any) -> list[str]:
        found = []
        for arguments in ({"kind": "pods"}, {"kind": "pods", "name": "private"}, {"kind": "queue"}):
            result = await client.call_tool("get", arguments)
            assert not result.is_error, result.content
            found.append(json.dumps(result.structured_content))
        return found

    for text in _session(str(path), work):
        assert '"private"' in text
        assert "hunter2" not in text


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name == "mcp" or name.startswith("mcp."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = call("mcp")
    assert done.status == 1
    assert done.err == "error: the package mcp is not installed: pip install 'holdfast[mcp]'\n"

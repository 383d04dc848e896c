"""Every YAML, JSON and Python block of the documents is what it claims to be."""

from __future__ import annotations

import ast
import asyncio
import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from harness.builders import make_pod
from holdfast.api.crds import definitions
from holdfast.api.documents import Document
from holdfast.api.names import SIM_API
from holdfast.cli.app import app
from holdfast.local.apiserver.api_state import ApiState
from holdfast.local.apiserver.crd_registry import CrdRegistry
from holdfast.local.apiserver.system_objects import bootstrap, ensure_definition
from holdfast.local.clock import RealClock
from holdfast.local.setup import SchedulerFactory
from holdfast.local.store import Store
from holdfast.local.up import apply_documents
from holdfast.plugin import Plugin
from holdfast.scheduler.cluster.events import Added
from holdfast.scheduler.framework import registry as registry_module
from holdfast.snapshot.manifests import load_files
from house.markdown import PAGES, Block, blocks, indented_blocks
from house.source import REPOSITORY

KNOWN = {
    "console",
    "json",
    "python",
    "text",
    "yaml",
    "yaml values",
}
CONFIGURATION = "KubeSchedulerConfiguration"
UNSCHEDULED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CronJob",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
"""Kinds that scheduling does not read: they are checked against the schemas of Kubernetes."""
NODES = """
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "16", memory: 64Gi}}}
  - {apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: "16", memory: 64Gi}}}
"""

BLOCKS = list(blocks())


def of(info: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "block", [block for block in BLOCKS if block.info == info], ids=lambda block: block.where
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_code_block_says_what_it_is(page: Path) -> None:
    infos = {block.info for block in BLOCKS if block.page == page}
    assert infos <= KNOWN, "an info string that house/markdown.py does not describe"
    assert not indented_blocks(page), "a code block without a fence"


@of("text")
def test_text_has_no_commands(block: Block) -> None:
    programs = ("$ ", "holdfast ", "kubectl ", "make ", "helm ")
    commands = [line for line in block.text.splitlines() if line.lstrip().startswith(programs)]
    assert not commands, "write them as a console block"


@of("json")
def test_json(block: Block) -> None:
    json.loads(block.text)


@of("yaml")
def test_yaml(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configurations are validated; objects and scenarios are simulated."""
    documents = list(yaml.safe_load_all(block.text))
    file = tmp_path / (block.file_name or "block.yaml")
    file.write_text(block.text)
    if documents[0].get("kind") == CONFIGURATION:
        result = CliRunner().invoke(app, ["config", "validate", str(file)])
        assert result.exit_code == 0, result.output
        assert "warning" not in result.output, result.output
        return
    if all(document.get("kind") == "Expect" for document in documents):
        assert block.file_name, "name the file, so that a command of the page runs it with its scenario"
        return
    if {document.get("kind") for document in documents} <= UNSCHEDULED:
        for document in documents:
            kubernetes_validate.validate(document, "1.35", strict=True)
        return
    arguments = ["simulate", str(file)]
    if not any(document.get("kind") == "Node" for document in documents):
        (tmp_path / "nodes.yaml").write_text(NODES)
        arguments.append(str(tmp_path / "nodes.yaml"))
    if not any(document.get("kind") in ("Step", "Expect") for document in documents):
        arguments += ["--until", "5s"]
    result = CliRunner().invoke(app, [*arguments, *_with_plugins(block.page, tmp_path, monkeypatch)])
    assert result.exit_code == 0, result.output
    assert "skipped" not in result.output, result.output


@of("yaml")
def test_objects_are_accepted_by_the_api_server(block: Block, tmp_path: Path) -> None:
    """What a page shows can be applied, and not only simulated."""
    file = tmp_path / "block.yaml"
    file.write_text(block.text)
    ours = (SIM_API, "kubescheduler.config.k8s.io/v1", "example.com/v1")
    documents = [each for each in load_files([str(file)]) if each.data["apiVersion"] not in ours]
    api = ApiState(Store(), RealClock())
    bootstrap(api)
    registry = CrdRegistry(api)
    for definition in definitions():
        ensure_definition(api, definition)
    apply_documents(api, [*_namespaces(documents), *documents])
    registry.stop()


def _namespaces(documents: list[Document]) -> list[Document]:
    names = {each.data["metadata"].get("namespace") for each in documents} - {None}
    raws = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]
    return [Document("", 0, 0, raw) for raw in raws]


def _with_plugins(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Installs the plugins that the page's Python blocks define; the options that enable them."""
    module = ModuleType("documented_page")
    for block in BLOCKS:
        if block.page == page and block.info == "python" and "(Plugin)" in block.text:
            exec(compile(block.text, block.where, "exec"), module.__dict__)
    plugins = [
        each.name
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Plugin) and each is not Plugin
    ]
    if not plugins:
        return []
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entries = [EntryPoint(name, f"{module.__name__}:{name}", registry_module.GROUP) for name in plugins]
    monkeypatch.setattr(registry_module, "entry_points", lambda group: entries)
    enabled = {"multiPoint": {"enabled": [{"name": name} for name in plugins]}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": CONFIGURATION,
        "profiles": [{"schedulerName": "holdfast-scheduler", "plugins": enabled}],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration))
    return ["--config", str(folder / "config.yaml")]


@of("yaml values")
def test_values_of_the_chart(block: Block, tmp_path: Path) -> None:
    values = yaml.safe_load(block.text)
    known = yaml.safe_load((REPOSITORY / "deploy/helm/holdfast/values.yaml").read_text())
    assert values.keys() <= known.keys()
    if "config" in values:
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": CONFIGURATION}
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({**head, **values["config"]}))
        result = CliRunner().invoke(app, ["config", "validate", str(tmp_path / "config.yaml")])
        assert result.exit_code == 0, result.output


@of("python")
def test_python_compiles_and_its_imports_exist(block: Block) -> None:
    tree = ast.parse(block.text)
    compile(tree, block.where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports: list[ast.stmt] = [
        node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    exec(compile(ast.Module(imports, []), block.where, "exec"), {})


def the_python_of(page: str) -> Block:
    (block,) = (block for block in BLOCKS if block.page.name == page and block.info == "python")
    return block


def test_the_scheduler_is_driven_as_shown() -> None:
    block = the_python_of("architecture.md")
    pod = make_pod("p").obj()
    names: dict[str, Any] = {
        "scheduler": SchedulerFactory.of().scheduler(),
        "pod": pod,
        "Added": Added,
        "now": 1.0,
    }
    exec(compile(block.text, block.where, "exec"), names)
    assert names["decisions"]


def test_the_embedded_cluster_starts_from_python() -> None:
    block = the_python_of("embedded.md")
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block.text, block.where, "exec", flags=flags)
    names: dict[str, Any] = {}

    async def run() -> None:
        running = asyncio.ensure_future(eval(code, names))
        while "cluster" not in names and not running.done():
            await asyncio.sleep(0)
        names["cluster"].stop()
        await running

    asyncio.run(run())

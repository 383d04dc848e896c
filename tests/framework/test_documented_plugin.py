"""The worked example of docs/plugins.md does what the page says."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from builders import make_node, make_pod
from holdfast.core.decisions import Bind, SetPodScheduled
from holdfast.framework.interface import Plugin
from holdfast.framework.registry import Registry
from holdfast.plugins import IN_TREE
from reference.driving import Driver
from reference.setup import Setup, document

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


def block(language: str, holding: str) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return next(text for text in found if holding in text)


def documented() -> type[Plugin]:
    module = ModuleType("holdfast_racks")
    exec(block("python", "RackMaintenance"), module.__dict__)
    plugin: type[Plugin] = module.__dict__["RackMaintenance"]
    return plugin


def driver() -> Driver:
    plugin, configuration = documented(), yaml.safe_load(block("yaml", "RackMaintenance"))
    (profile,) = configuration["profiles"]
    config: dict[str, Any] = document((Setup(),))
    enabled = config["profiles"][0]["plugins"]["multiPoint"]["enabled"]
    enabled += profile["plugins"]["multiPoint"]["enabled"]
    config["profiles"][0].setdefault("pluginConfig", []).extend(profile["pluginConfig"])
    made = Driver((Setup(),), plugin, config=config)
    for name, state in (("a", "draining"), ("b", "fine")):
        node = make_node(name).allocatable(cpu="2", memory="8Gi", pods=9)
        made.add(node.label("example.com/rack-state", state).obj())
    return made


def bound(made: Driver) -> dict[str, str]:
    return {each.pod.name: each.node for each in made.round() if isinstance(each, Bind)}


def test_critical_pods_keep_away_from_draining_racks_and_others_prefer_to() -> None:
    made = driver()
    made.add(*(make_pod(f"c{i}").cpu("1").label("tier", "critical").obj() for i in range(3)))
    decisions = made.round()
    assert [each.node for each in decisions if isinstance(each, Bind)] == ["b", "b"]
    (told,) = (each.message for each in decisions if isinstance(each, SetPodScheduled))
    assert "1 node(s) were in a draining rack" in told
    made.add(make_pod("other").cpu("1").obj())
    assert bound(made) == {"other": "a"}


def test_others_prefer_racks_that_are_not_draining() -> None:
    made = driver()
    made.add(make_pod("other").cpu("1").obj())
    assert bound(made) == {"other": "b"}


def test_the_entry_point_names_the_plugin() -> None:
    assert f'{documented().name} = "holdfast_racks:RackMaintenance"' in block("toml", "entry-points")
    assert documented().name in Registry([*IN_TREE, documented()]).implements()

"""The package a plugin imports: what it lists is there, and a version it does not know is refused."""

import pytest

import holdfast.plugin
from holdfast.plugin import API_VERSION, Plugin
from holdfast.scheduler.framework.registry import PluginError, Registry


def test_it_lists_what_it_has() -> None:
    listed = holdfast.plugin.__all__
    assert sorted(set(listed)) == sorted(listed)
    public = {name for name in vars(holdfast.plugin) if not name.startswith("_")}
    assert public - {"testing"} == set(listed)


def test_a_plugin_of_a_version_that_is_not_known_is_refused_by_name() -> None:
    class Later(Plugin):
        name = "Later"
        api_version = "v9"

    class Ours(Plugin):
        name = "Ours"
        api_version = API_VERSION

    with pytest.raises(PluginError, match=r"plugin Later is written for version v9 .* has v1"):
        Registry([Later])
    assert Registry([Ours])["Ours"] is Ours

"""The plugin registry: plugins by name, in-tree ones and those of installed packages.

A package provides a plugin by an entry point in the group `holdfast.scheduler.plugins`, whose name is
the plugin's name and whose value is its class.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from holdfast.api.errors import HoldfastError
from holdfast.api.raw_objects import ObjectKind
from holdfast.scheduler.cluster.class_key import UnknownField, field_reader
from holdfast.scheduler.cluster.plugin_errors import RAISED, text_of
from holdfast.scheduler.framework.config.plugin_sets import NAMED_AT, InstalledPlugins
from holdfast.scheduler.framework.interface import API_VERSION, Plugin, extension_points

GROUP = "holdfast.scheduler.plugins"


class PluginError(HoldfastError):
    """A plugin cannot be used."""


class Registry:
    """The known plugins by name."""

    def __init__(self, plugins: Iterable[type[Plugin]]) -> None:
        self._plugins: dict[str, type[Plugin]] = {}
        self.unusable: dict[str, str] = {}
        """Why, by the name of the entry point."""
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: type[Plugin]) -> None:
        if not isinstance(name := getattr(plugin, "name", None), str) or not name:
            raise PluginError(f"plugin {plugin.__name__}: the class must have a name, a string")
        if plugin.api_version != API_VERSION:
            why = f"is written for version {plugin.api_version} of the plugin contract"
            raise PluginError(f"plugin {plugin.name} {why}; this Holdfast has {API_VERSION}")
        _check_reads(plugin)
        check_wakes_on(plugin.name, plugin.wakes_on)
        if not isinstance(plugin.reads_volumes, bool):
            raise PluginError(f"plugin {plugin.name}: reads_volumes must be True or False")
        kinds = plugin.reads_objects
        if not isinstance(kinds, tuple) or not all(isinstance(each, ObjectKind) for each in kinds):
            raise PluginError(f"plugin {plugin.name}: reads_objects must be a tuple of ObjectKind")
        known = self._plugins.setdefault(plugin.name, plugin)
        if known is not plugin:
            raise PluginError(f"two plugins are named {plugin.name}: {known} and {plugin}")

    def add_installed(self) -> "Registry":
        """Adds the plugins of installed packages. One that cannot be used is an error only for a
        configuration that enables it, so it is noted in `unusable`."""
        own = frozenset(self._plugins)
        for entry in entry_points(group=GROUP):
            try:
                self.add(_loaded(entry))
            except RAISED as error:
                self.unusable[entry.name] = f"{text_of(error)} (entry point {entry.value})"
        for name in self.unusable.keys() - own:
            self._plugins.pop(name, None)  # of two with one name neither can be meant
        return self

    @property
    def warnings(self) -> list[str]:
        """What is installed and cannot be used."""
        return [f"plugin {name} cannot be used: {why}" for name, why in sorted(self.unusable.items())]

    def __getitem__(self, name: str) -> type[Plugin]:
        return self._plugins[name]

    def implements(self) -> Mapping[str, frozenset[str]]:
        """The extension points at which a configuration may name each plugin."""
        served = {
            name: extension_points(plugin) | NAMED_AT.get(name, frozenset())
            for name, plugin in self._plugins.items()
        }
        return InstalledPlugins(served, self.unusable)

    def object_kinds(self, names: Iterable[str]) -> dict[ObjectKind, tuple[str, ...]]:
        """The kinds of objects these plugins read, each with the plugins that do. Raises PluginError if
        two plugins declare a kind differently."""
        readers: dict[ObjectKind, tuple[str, ...]] = {}
        declared: dict[tuple[str, str], ObjectKind] = {}
        for name in dict.fromkeys(names):
            for kind in dict.fromkeys(self._plugins[name].reads_objects):
                known = declared.setdefault((kind.api_version, kind.kind), kind)
                if known != kind:
                    who = " and ".join(dict.fromkeys((readers[known][0], name)))
                    raise PluginError(f"plugin {who}: reads_objects disagree: {known!r} and {kind!r}")
                readers[kind] = (*readers.get(kind, ()), name)
        return readers


def _loaded(entry: EntryPoint) -> type[Plugin]:
    plugin = entry.load()
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
        raise PluginError("it is not a Plugin class")
    name = getattr(plugin, "name", None)
    if name != entry.name:
        raise PluginError(
            f"entry point {entry.name!r} loads a plugin named {name!r}; the names must match"
        )
    return plugin


def check_wakes_on(plugin: str, wakes_on: object) -> None:
    if not isinstance(wakes_on, int) or isinstance(wakes_on, bool):
        why = "must be kinds of Change, or-ed together (Change.NODE_ADDED | Change.NODE_LABELS)"
        raise PluginError(f"plugin {plugin}: wakes_on {why}, not {wakes_on!r}")


def _check_reads(plugin: type[Plugin]) -> None:
    """Raises PluginError if a string is given where a collection of names is expected."""
    for attribute in ("reads_annotations", "reads_fields"):
        names = getattr(plugin, attribute)
        is_collection = isinstance(names, frozenset | set | tuple | list)
        if not is_collection or not all(isinstance(each, str) and each for each in names):
            raise PluginError(f"plugin {plugin.name}: {attribute} must be a collection of names")
    for path in plugin.reads_fields:
        try:
            field_reader(path)
        except UnknownField as error:
            raise PluginError(f"plugin {plugin.name}: reads_fields: {error}") from error

"""Documents of a life under construction."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

Raw = dict[str, Any]
T = TypeVar("T")

SIM = "sim.holdfast.io/"
KOORD = "scheduling.koordinator.sh/"
TEAMS = ("a", "b", "c")

Trait = Callable[["Making", Raw, Raw], None]
"""Changes the metadata and spec of a pod, or of the template of a reservation."""


class Making:
    """`chance` and `pick` draw from the life's own stream, so a seed is a life."""

    def __init__(self, random: Random, horizon: int, *, tight: bool) -> None:
        self.random = random
        self.horizon = horizon
        self.tight = tight
        self.documents: list[Raw] = []
        self.nodes: list[str] = []
        self.pods: list[str] = []
        self.reservations: list[str] = []
        self.groups: list[Raw] = []
        self.queues: list[str] = []
        self.claims: list[str] = []
        self.traits: list[tuple[float, Trait]] = []
        self.edits: list[Callable[[Making], None]] = []
        self.config: Raw = {}
        self._made = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, of: Sequence[T]) -> T:
        return of[self.random.randrange(len(of))]

    def some(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def time(self, least: float = 0.0, most: float = 0.8) -> int:
        """A moment of the life. Often several things happen at one."""
        t = self.random.uniform(least, most) * self.horizon
        return int(t) // 10 * 10 if self.chance(0.5) else int(t)

    def name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    def add(self, api_version: str, kind: str, name: str, **parts: Any) -> Raw:
        metadata = parts.pop("metadata", {})
        made = {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, **metadata},
            **parts,
        }
        self.documents.append(made)
        return made

    def step(self, at: int, **verb: Any) -> None:
        self.documents.append(
            {"apiVersion": "sim.holdfast.io/v1alpha1", "kind": "Step", "at": f"{at}s", **verb}
        )

    def patch(self, at: int, kind: str, name: str, merge: Raw, namespace: str = "default") -> None:
        target = {"kind": kind, "name": name, "merge": merge}
        if kind in ("Pod", "PodGroup", "PersistentVolumeClaim", "ResourceClaim"):
            target["namespace"] = namespace
        if kind == "PodGroup":
            target["apiVersion"] = "scheduling.volcano.sh/v1beta1"
        self.step(at, patch=target)

    def delete(self, at: int, kind: str, name: str) -> None:
        self.step(at, delete={"kind": kind, "name": name})

    def shape(self, metadata: Raw, spec: Raw) -> None:
        """Gives a pod, or a template, traits of the life's themes."""
        for share, trait in self.traits:
            if self.chance(share):
                trait(self, metadata, spec)

    def plugin_args(self, name: str, **args: Any) -> None:
        profile = self.config.setdefault("profiles", [{"schedulerName": "default-scheduler"}])[0]
        listed = profile.setdefault("pluginConfig", [])
        for each in listed:
            if each["name"] == name:
                each["args"].update(args)
                return
        listed.append({"name": name, "args": dict(args)})


def annotate(metadata: Raw, name: str, value: str) -> None:
    metadata.setdefault("annotations", {})[name] = value


def label(metadata: Raw, name: str, value: str) -> None:
    metadata.setdefault("labels", {})[name] = value


def resources(spec: Raw) -> Raw:
    """Of the first container."""
    found: Raw = spec["containers"][0].setdefault("resources", {})
    return found


def requests(spec: Raw) -> Raw:
    found: Raw = resources(spec).setdefault("requests", {})
    return found

"""What random lives of little worlds have in common."""

from harness.choices import Chooser
from harness.objects import node
from harness.world import World


class RandomLife:
    world: World

    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.made = 0

    def some(self, kind: str) -> str | None:
        names = sorted(name for k, name in self.world.objects if k == kind)
        return self.choose(names) if names else None

    def one_goes(self, kind: str) -> None:
        name = self.some(kind)
        if name is not None:
            self.world.delete(kind, name)

    def pod_goes(self) -> None:
        self.one_goes("Pod")

    def reservation_goes(self) -> None:
        self.one_goes("Reservation")

    def node_comes_or_goes(self) -> None:
        """The pods of one that goes go first."""
        name = self.choose(("n0", "n1", "n2"))
        if ("Node", name) not in self.world.objects:
            self.world.put(node(name, cpu="8"))
            return
        for key in list(self.world.objects):
            raw = self.world.objects.get(key)  # another may have had to go for one that waited
            if raw is not None and key[0] == "Pod" and raw["spec"].get("nodeName") == name:
                self.world.delete(*key)
        self.world.delete("Node", name)

    def time_passes(self) -> None:
        self.world.wait(self.choose((1.0, 12.0, 60.0)))

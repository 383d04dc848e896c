"""Pods are moved while everything else happens too: what is promised of moves holds at every moment.

No pod is evicted unless there is room for its replacement, a job that has ended stays as it is, and
when all is quiet no reservation is left that no job needs.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.choices import Chooser, choosing, seeded
from harness.objects import Raw, migration, node, pod, replica
from harness.random_events import RandomLife
from harness.strategies import examples
from harness.world import World
from holdfast.scheduler.cluster.decisions import Decision, Evict

ENDED = ("Succeeded", "Failed", "Aborted")
PODS = ("web-0", "web-1", "bare-0", "bare-1")


class CarefulWorld(World):
    """Sees to it that pods are evicted only when they may be."""

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, Evict):
            self._check_eviction(decision)
        super()._carry_out(decision)

    def _check_eviction(self, decision: Evict) -> None:
        raw = self.objects["PodMigrationJob", decision.message.rpartition("/")[2]]
        assert any(each["type"] == "Eviction" for each in raw["status"]["conditions"])
        assert raw["spec"]["podRef"]["uid"] == decision.pod.uid
        if raw["spec"].get("mode") != "EvictDirectly":
            room = self.objects[
                "Reservation", raw["spec"]["reservationOptions"]["reservationRef"]["name"]
            ]
            assert room["status"]["phase"] == "Available", "there is no room for the replacement"


class Life(RandomLife):
    world: CarefulWorld

    def __init__(self, choose: Chooser) -> None:
        super().__init__(choose)
        self.world = CarefulWorld(*(node(f"n{i}", cpu="8") for i in range(3)))
        self.ended: dict[str, Raw] = {}

    def live(self, steps: int) -> None:
        for _ in range(steps):
            happen = self.choose(
                (
                    self.pods_come,
                    self.pods_come,
                    self.new_job,
                    self.new_job,
                    self.pod_goes,
                    self.job_goes,
                    self.job_changes,
                    self.reservation_goes,
                    self.node_comes_or_goes,
                    self.mood_changes,
                    self.time_passes,
                    self.restart,
                )
            )
            happen()
            self.check()
        self.come_to_rest()

    def pods_come(self) -> None:
        """Whoever looks after the pods makes those that are missing."""
        for name in PODS:
            if ("Pod", name) not in self.world.objects and self.choose((True, False)):
                self.made += 1
                make: Any = replica if name.startswith("web") else pod
                raw = make(name, cpu=self.choose(("1", "3", "5")))
                raw["metadata"]["uid"] = f"pod-{self.made}"
                self.world.put(raw)

    def new_job(self) -> None:
        self.made += 1
        spec: Raw = {}
        if self.choose((True, False, False, False)):
            spec["mode"] = "EvictDirectly"
        if self.choose((True, False)):
            spec["ttl"] = self.choose(("0", "20s", "2m"))
        if self.choose((True, False, False)):
            template = {"spec": {"ttl": "30s", "preAllocation": self.choose((True, False))}}
            spec["reservationOptions"] = {"template": template}
        self.world.put(migration(f"j{self.made}", self.choose(PODS), **spec))

    def job_goes(self) -> None:
        name = self.some("PodMigrationJob")
        if name is not None:
            self.ended.pop(name, None)
            self.world.delete("PodMigrationJob", name)

    def job_changes(self) -> None:
        name = self.some("PodMigrationJob")
        if name is None or name in self.ended:
            return
        if self.choose((True, True, False)):
            self.world.edit("PodMigrationJob", name, spec__paused=self.choose((True, False)))
        else:
            self.world.edit("PodMigrationJob", name, status__phase="Aborted")

    def mood_changes(self) -> None:
        world = self.world
        world.eviction_refusal = self.choose(("", "", "a budget"))
        world.creation_refusal = self.choose(("", "", "a webhook"))
        world.graceful = self.choose((False, True))
        world.pods_become_ready = self.choose((True, True, False))

    def restart(self) -> None:
        """Now, or in the middle of what comes next."""
        if self.choose((True, False)):
            self.world.restart_after = self.world.writes + self.choose((1, 2, 3, 5, 8))
        else:
            self.world.restart()
            self.world.settle()

    def check(self) -> None:
        for (kind, name), raw in self.world.objects.items():
            status = raw.get("status", {})
            if kind == "PodMigrationJob" and status.get("phase") in ENDED:
                assert self.ended.setdefault(name, status) == status, f"{name} goes on after its end"

    def come_to_rest(self) -> None:
        world = self.world
        world.eviction_refusal = world.creation_refusal = ""
        for kind, name in list(world.objects):
            if kind == "PodMigrationJob" and name not in self.ended:
                world.edit(kind, name, spec__paused=False, spec__ttl="1m")
        world.settle()
        for kind, name in list(world.objects):
            if kind == "Pod" and "deletionTimestamp" in world.objects[kind, name]["metadata"]:
                world.delete(kind, name)
        world.wait(3600)
        self.check()
        phases = {
            name: raw["status"]["phase"]
            for (kind, name), raw in world.objects.items()
            if kind == "PodMigrationJob"
        }
        assert set(phases.values()) <= set(ENDED), phases
        left = {name: world.phase(name) for name in world.reservation_names()}
        assert set(left.values()) <= {"Succeeded", "Failed"}, left


@examples(30)
@given(st.data())
def test_migrations_keep_their_invariants(data: st.DataObject) -> None:
    Life(choosing(data.draw)).live(20)


def test_migrations_keep_their_invariants_in_many_runs() -> None:
    for seed in range(examples(40).max_examples):
        Life(seeded(seed)).live(30)

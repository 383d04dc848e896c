"""The columnar scheduler and the reference one, side by side over random clusters."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import choices, storage_choices
from harness.builders import PodBuilder
from harness.choices import FOO, NODE_NAMES, Chooser, rarely, sometimes
from harness.driver import Driver, profile_of, totals
from harness.strategies import GPU, ZONES, examples
from holdfast.api.meta import Object
from holdfast.api.names import HOSTNAME_LABEL, ZONE_LABEL
from holdfast.api.pod import Pod
from holdfast.scheduler.cluster import domain_counts as tally
from holdfast.scheduler.framework import diagnosis
from holdfast.scheduler.framework.feasibility.column import ClassColumn
from reference.resource_scores import Strategy
from reference.scheduler import Judgement, judge
from reference.setup import Setup
from reference.state import ReferenceState

_ADDED = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}]
    },
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {
            "weight": 7,
            "preference": {
                "matchExpressions": [
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [ZONES[0]]}
                ]
            },
        }
    ],
}
SETUPS = (
    Setup("default-scheduler"),
    Setup(
        "packing",
        Strategy("MostAllocated", (("cpu", 3), ("memory", 1), (GPU, 5))),
        balanced=("cpu", "memory", GPU),
        weights={"NodeResourcesFit": 10},
    ),
    Setup(
        "shaped",
        Strategy(
            "RequestedToCapacityRatio",
            (("cpu", 2), ("memory", 1), (FOO, 3), ("ephemeral-storage", 1)),
            ((0, 0), (30, 7), (70, 3), (100, 10)),
        ),
        balanced=("cpu", "memory", FOO, "ephemeral-storage"),
        ignored=(GPU,),
        ignored_groups=("example.com",),
    ),
    Setup("enforced", added_affinity=_ADDED, weights={"NodeAffinity": 20}),
    Setup("sparse", without=("TaintToleration", "NodeAffinity", "ImageLocality")),
    Setup(
        "spreading",
        spread=(
            {
                "maxSkew": 1,
                "topologyKey": ZONE_LABEL,
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "nodeAffinityPolicy": "Ignore",
                "nodeTaintsPolicy": "Honor",
            },
            {"maxSkew": 2, "topologyKey": HOSTNAME_LABEL, "whenUnsatisfiable": "ScheduleAnyway"},
            {"maxSkew": 1, "topologyKey": "tier", "whenUnsatisfiable": "ScheduleAnyway"},
        ),
        hard_affinity_weight=50,
    ),
    Setup(
        "limiting",
        limit_ratio={"cpu": "150%", "memory": 100, FOO: "200%"},
        limit_weights=(("cpu", 2), ("memory", 1), (FOO, 5)),
        weights={"LimitAware": 3},
        without=("InterPodAffinity", "PodTopologySpread", "TaintToleration"),
    ),
    Setup("aloof", spread=(), hard_affinity_weight=0, ignores_others=True),
    Setup(
        "social",
        without=(
            "TaintToleration",
            "NodeResourcesFit",
            "NodeResourcesBalancedAllocation",
            "NodeUnschedulable",
            "NodePorts",
        ),
        weights={"PodTopologySpread": 7, "InterPodAffinity": 11},
    ),
)
BY_NAME = {setup.name: setup for setup in SETUPS}


class Pair:
    """Both schedulers, fed the same events."""

    def __init__(self, choose: Chooser) -> None:
        self.choose = choose
        self.driver, self.world = Driver(SETUPS), ReferenceState()
        self.pending: list[Pod] = []
        self.with_volumes = sometimes(choose)
        for name in NODE_NAMES[: choose((0, 1, 2, 3, 4, 5, 5))]:
            self.put_node(name)
        for i in range(choose((0,) * 9 + (24,))):
            self.put_node(f"more{i}")
        for _ in range(choose((0, 1, 4))):
            self.put_other()
        if self.with_volumes:
            for obj in storage_choices.base(choose):
                self.put_object(obj)
        for i in range(choose((0, 1, 2, 4, 8))):
            self.place(f"placed{i}")
        for i in range(choose((1, 2))):
            name = f"pending{i}"
            builder = choices.pod_builder(choose, name)
            self.use_volumes(builder)
            if self.with_volumes and rarely(choose):
                self.put_object(storage_choices.ephemeral_claim(choose, name))
            pod = builder.obj()
            self.driver.add(pod)
            self.pending.append(pod)

    def use_volumes(self, pod: PodBuilder) -> None:
        if self.with_volumes and not rarely(self.choose):
            if not rarely(self.choose):
                choices.make_easy(pod)
            storage_choices.use_volumes(self.choose, pod)

    def put_node(self, name: str) -> None:
        builder = choices.node_builder(self.choose, name)
        if self.with_volumes and not rarely(self.choose):
            choices.make_roomy(builder)
        node = builder.obj()
        self.driver.update(node)
        self.world.put_node(node)

    def place(self, name: str) -> None:
        """On any node, fitting or not, known or not."""
        builder = choices.pod_builder(self.choose, name)
        self.use_volumes(builder)
        builder.namespace("other" if name.endswith("1") else "default")
        if rarely(self.choose):
            builder.deleted()
        pod = builder.on(self.choose((*NODE_NAMES, "unknown"))).obj()
        self.driver.update(pod)
        self.world.put_pod(pod)

    def put_other(self) -> None:
        self.put_object(choices.other_object(self.choose))

    def put_object(self, obj: Object) -> None:
        self.driver.update(obj)
        self.world.put(obj)

    def change(self) -> None:
        kinds = ("place", "place", "remove", "node", "move", "drop", "other", "forget")
        storage = ("storage", "storage", "storage", "forget") if self.with_volumes else ()
        match self.choose((*kinds, *storage)):
            case "storage":
                self.put_object(storage_choices.storage_object(self.choose))
            case "place":
                self.place(self.choose(("placed0", "placed1", "other")))
            case "remove" if self.world.pods:
                pod = self.world.pods[self.choose(sorted(self.world.pods))]
                self.driver.delete(pod)
                self.world.delete_pod(pod.metadata.uid)
            case "drop" if self.world.nodes:
                node = self.world.nodes[self.choose(sorted(self.world.nodes))]
                self.driver.delete(node)
                self.world.delete_node(node.metadata.name)
            case "other":
                self.put_other()
            case "forget" if self.world.objects:
                obj = self.world.objects[self.choose(sorted(self.world.objects))]
                self.driver.delete(obj)
                self.world.delete(obj)
            case "move" if self.world.nodes:
                node = copy.deepcopy(self.world.nodes[self.choose(sorted(self.world.nodes))])
                node.metadata.labels[self.choose((ZONE_LABEL, "tier"))] = self.choose(ZONES)
                self.driver.update(node)
                self.world.put_node(node)
            case _:
                self.put_node(self.choose(NODE_NAMES))

    def compare(self, profile: str) -> None:
        for pod in self.pending:
            assert_agreement(self.driver, self.world, pod, profile)


def assert_agreement(driver: Driver, world: ReferenceState, pod: Pod, profile: str) -> None:
    expected = judge(pod, world, BY_NAME[profile].plugins())
    got = driver.answer(pod, profile)
    if driver.record(pod).pinned_node is not None and profile != "sparse":
        # The class of such pods leaves the node open; the pod does not.
        assert expected.totals.keys() <= got.totals.keys()
    else:
        assert got.totals == expected.totals, expected
        assert_same_hope(driver, expected, pod, profile)
    assert got.message == expected.message
    if not expected.totals:
        assert got.node == ""
    else:
        row = driver.scheduler.cluster.nodes.row
        assert got.node == min(expected.best, key=lambda name: row(name) or 0)


def assert_same_hope(driver: Driver, expected: Judgement, pod: Pod, profile: str) -> None:
    """Both name the same nodes as those where removing pods could help."""
    if expected.totals or expected.nowhere or not expected.unfit:
        return
    scheduler = driver.scheduler
    column = scheduler.columns.column(profile_of(scheduler, profile), driver.record(pod).cls)
    resolvable = column.diagnosis.resolvable()
    row = dict(scheduler.cluster.nodes.names())
    for name, (_, unfit) in expected.unfit.items():
        assert bool(resolvable[row[name]]) == unfit.resolvable, name


@examples(150)
@given(st.data())
def test_same_nodes_scores_choice_and_message(data: st.DataObject) -> None:
    choose = choices.choosing(data.draw)
    profile = choose(sorted(BY_NAME))
    Pair(choose).compare(profile)


@examples(60)
@given(st.data())
def test_agreement_survives_changes(data: st.DataObject) -> None:
    choose = choices.choosing(data.draw)
    profile = choose(sorted(BY_NAME))
    assert_agreement_through_changes(choose, profile)


@pytest.mark.parametrize("start", range(0, examples(3000).max_examples, 300))
def test_agreement_over_thousands_of_clusters(start: int) -> None:
    for seed in range(start, start + 300):
        choose = choices.seeded(seed)
        profile = choose(sorted(BY_NAME))
        try:
            Pair(choose).compare(profile)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize(("coarse", "singly"), [(1, 0), (tally.COARSE, diagnosis.SINGLY)])
@pytest.mark.parametrize("start", range(10**6, 10**6 + examples(400).max_examples, 100))
def test_agreement_through_changes_of_hundreds_of_clusters(
    start: int, coarse: int, singly: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few domains and nodes, and as if there were many."""
    monkeypatch.setattr(tally, "COARSE", coarse)
    monkeypatch.setattr(diagnosis, "SINGLY", singly)
    for seed in range(start, start + 100):
        choose = choices.seeded(seed)
        profile = choose(sorted(BY_NAME))
        try:
            assert_agreement_through_changes(choose, profile)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def assert_agreement_through_changes(choose: Chooser, profile: str) -> None:
    """Columns are refreshed after every change, and each time compared with the reference, whose
    every answer is worked out from nothing, and with a column that starts now."""
    pair = Pair(choose)
    pair.compare(profile)
    for _ in range(choose((2, 5, 8))):
        pair.change()
        pair.compare(profile)
        for pod in pair.pending:
            assert_column_equals_fresh_one(pair.driver, pod, profile)


def assert_column_equals_fresh_one(driver: Driver, pod: Pod, profile_name: str) -> None:
    scheduler = driver.scheduler
    profile, cls = profile_of(scheduler, profile_name), driver.record(pod).cls
    kept = scheduler.columns.column(profile, cls)
    fresh = ClassColumn(scheduler.cluster, profile, cls)
    fresh.refresh()
    assert kept.best() == fresh.best()
    assert kept.fits.tolist() == fresh.fits.tolist()
    assert totals(scheduler, kept) == totals(scheduler, fresh)
    if fresh.best() < 0 and scheduler.cluster.nodes.count:
        assert kept.verdict() == fresh.verdict()
        assert kept.diagnosis.resolvable().tolist() == fresh.diagnosis.resolvable().tolist()

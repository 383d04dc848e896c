"""Whatever happens, in whatever order, the scheduler's state is right and no pod is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from harness import choices
from harness.choices import sometimes
from harness.strategies import examples
from scheduler.state_machine.expected_state import TWEAKS
from scheduler.state_machine.machine import EVENTS, Life


class LifeOfACluster(RuleBasedStateMachine):
    @initialize(nodes=st.sampled_from((1, 2, 3, 5)))
    def it_begins(self, nodes: int) -> None:
        self.life = Life(nodes)
        for _ in range(nodes):
            self.life.put_plain_node(choices.seeded(nodes))

    @rule(data=st.data(), event=st.sampled_from(EVENTS))
    def something_happens(self, data: st.DataObject, event: str) -> None:
        getattr(self.life, event)(choices.choosing(data.draw))

    @rule(data=st.data())
    def a_pod_comes(self, data: st.DataObject) -> None:
        self.life.add_simple_pod(choices.choosing(data.draw))

    @rule(data=st.data())
    def a_round_is_run(self, data: st.DataObject) -> None:
        self.life.round(choices.choosing(data.draw))

    @invariant()
    def state_is_right(self) -> None:
        self.life.check()


def test_state_is_right_and_no_pod_is_forgotten_whatever_happens() -> None:
    run_state_machine_as_test(LifeOfACluster, settings=examples(40))


@pytest.mark.parametrize("start", range(0, examples(800).max_examples, 50))
def test_long_lives(start: int) -> None:
    """The same, in long random walks."""
    for seed in range(start, start + 50):
        walk(seed, steps=60)


def walk(seed: int, steps: int) -> None:
    """In each life only some kinds of things happen, so that those happen often."""
    choose = choices.seeded(seed)
    life = Life(choose((1, 1, 2, 3, 5)))
    life.tweaks = choose((TWEAKS, *((tweak,) for tweak in TWEAKS)))
    kinds = [event for event in EVENTS if sometimes(choose)]
    kinds += ["round", "round", "add_simple_pod", choose(EVENTS)]
    if sometimes(choose):
        kinds += 2 * ["add_pod_with_volumes", "offer_storage", "write_storage", "round", "confirm"]
    happened: list[str] = []
    try:
        for _ in life.names:
            life.put_plain_node(choose)
        for _ in range(steps):
            happened.append(choose(kinds))
            getattr(life, happened[-1])(choose)
            life.check()
    except Exception as error:
        raise AssertionError(f"seed {seed}, step {len(happened)}: {happened[-5:]}") from error

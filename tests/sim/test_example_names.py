"""Examples by name: every file has one, with a description, and a misspelt name has a suggestion."""

from __future__ import annotations

import pytest

from holdfast.sim.examples import Example, UnknownExample, examples, examples_folder, find_example
from sim.test_examples import FILES

ALL = examples()


def test_every_scenario_has_a_name() -> None:
    assert sorted(each.file for each in ALL) == FILES
    assert ALL[0].name == "tour"


@pytest.mark.parametrize("example", ALL, ids=lambda each: str(each.name))
def test_the_description_is_one_short_sentence(example: Example) -> None:
    assert 20 < len(example.description) <= 105
    assert example.description.endswith(".")


@pytest.mark.parametrize(
    "given", ["jobs/gangs", "jobs/gangs.yaml", "examples/jobs/gangs.yaml", "./examples/jobs/gangs"]
)
def test_a_path_of_the_repository_is_a_name_too(given: str) -> None:
    assert find_example(given).file == examples_folder() / "jobs" / "gangs.yaml"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("gangs", "did you mean jobs/gangs?"),
        ("job/gangs", "did you mean jobs/gangs?"),
        ("jobs/gang", "did you mean jobs/gangs"),
        ("jobs", "did you mean jobs/full-queue, jobs/gangs or jobs/queues?"),
        ("scale-upp", "did you mean reservations/scale-up?"),
        ("nothing-like-it", "--list-examples lists them"),
        ("", "--list-examples lists them"),
        ("../README", "--list-examples lists them"),
        ("starvation/configs/node", "--list-examples lists them"),
    ],
)
def test_an_unknown_name_has_a_suggestion(given: str, hint: str) -> None:
    with pytest.raises(UnknownExample) as error:
        find_example(given)
    assert hint in str(error.value)

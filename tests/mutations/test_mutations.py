"""Every mistake of the catalogue can be made, and is noticed by the tests it names."""

from collections.abc import Iterator

import pytest

from mutations.catalogue import BY_NAME, MUTATIONS, Mutation
from mutations.running import ROOT, MutationRunner


@pytest.fixture(scope="module")
def runner() -> Iterator[MutationRunner]:
    with MutationRunner() as runner:
        yield runner


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mistake_is_noticed(runner: MutationRunner, mutation: Mutation) -> None:
    source = (ROOT / "src/holdfast" / mutation.file).read_text()
    compile(mutation.applied(source), mutation.file, "exec")
    outcome = runner.run(mutation)
    assert outcome.noticed, f"no test notices when {mutation.rule!r} is broken:\n{outcome.by}"


def test_no_mutation_occurs_twice() -> None:
    assert len(BY_NAME) == len(MUTATIONS)
    assert len({(each.file, each.before, each.after) for each in MUTATIONS}) == len(MUTATIONS)


def test_a_mistake_is_not_noticed_by_tests_of_something_else(runner: MutationRunner) -> None:
    assert not runner.run(MUTATIONS[0], ("scheduler/cluster/test_row_log.py",)).noticed

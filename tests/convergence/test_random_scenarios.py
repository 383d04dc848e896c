"""Random lives around reservations made on demand, queues and starvation holds: every write is audited,
and the state is checked after every step, by the simulation itself. `lives.py` runs more of them."""

import pytest

from convergence.random_scenarios import lived

WENT_WRONG = (2595, 20008, 20020, 20070, 20160)
"""Seeds of lives in which pods were allocated from a reservation that had too little or was gone."""


@pytest.mark.parametrize("seed", [*WENT_WRONG, *range(30, 36)])
def test_nothing_is_given_twice(seed: int) -> None:
    lived(seed)

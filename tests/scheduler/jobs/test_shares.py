"""Sharing by weight, with numbers."""

import math

import numpy as np
import pytest

from holdfast.scheduler.jobs.queue_shares import QueueClaim, deserved_shares, dominant_share


def claim(weight: float, most: float, entitled: float = 0.0) -> QueueClaim:
    return QueueClaim(weight, np.array([entitled]), np.array([most]))


@pytest.mark.parametrize(
    ("total", "claims", "given"),
    [
        (12, [claim(1, 99), claim(1, 99)], [6, 6]),
        (12, [claim(1, 99), claim(3, 99)], [3, 9]),
        (12, [claim(1, 99), claim(3, 2)], [10, 2]),  # what one does not want flows on
        (12, [claim(1, 1), claim(1, 2), claim(2, 99)], [1, 2, 9]),
        (12, [claim(1, 3), claim(1, 3)], [3, 3]),  # nobody wants the rest
        (12, [claim(1, 99, 8), claim(1, 99)], [10, 2]),  # entitled first, then by weight
        (12, [claim(1, 5, 8), claim(1, 99)], [5, 7]),  # not more than it wants
        (12, [claim(0, 99), claim(1, 99)], [0, 12]),
        (0, [claim(1, 99)], [0]),
        (12, [], []),
    ],
)
def test_one_resource(total: float, claims: list[QueueClaim], given: list[float]) -> None:
    found = deserved_shares(np.array([float(total)]), claims)
    assert [share[0] for share in found] == pytest.approx(given)


def test_resources_are_shared_one_by_one() -> None:
    both = [
        QueueClaim(1, np.zeros(2), np.array([99.0, 1.0])),
        QueueClaim(1, np.zeros(2), np.array([2.0, 99.0])),
    ]
    found = deserved_shares(np.array([10.0, 10.0]), both)
    assert [share.tolist() for share in found] == [[8.0, 1.0], [2.0, 9.0]]


@pytest.mark.parametrize(
    ("allocated", "deserved", "share"),
    [
        ({}, [4, 4], 0),
        ({0: 2, 1: 1}, [4, 4], 0.5),
        ({0: 2, 1: 3}, [4, 4], 0.75),
        ({0: 2}, [0, 4], math.inf),
        ({5: 1}, [4, 4], math.inf),
        ({0: 0}, [0, 0], 0),
    ],
)
def test_the_resource_it_has_most_of_counts(
    allocated: dict[int, int], deserved: list[float], share: float
) -> None:
    assert dominant_share(allocated, np.array(deserved, dtype=np.float64)) == share

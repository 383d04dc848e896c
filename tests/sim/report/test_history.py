"""Curves keep their integral however many steps are merged."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.sim.run_history import StepSeries, gpus

STEPS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=80)


def integral(series: StepSeries, end: float) -> float:
    ends = [*series.times[1:], end]
    return sum((b - a) * v[0] for a, b, v in zip(series.times, ends, series.values, strict=True))


@given(STEPS, st.integers(2, 12), st.integers(1, 9))
def test_merging_and_resampling_keep_the_integral(
    steps: list[tuple[int, int]], most: int, buckets: int
) -> None:
    exact, small = StepSeries(10_000), StepSeries(most)
    t = 0.0
    for passed, value in steps:
        exact.add(t, (float(value),))
        small.add(t, (float(value),))
        t += passed
    assert len(small.times) <= most + 1
    expected = integral(exact, t)
    assert abs(integral(small, t) - expected) < 1e-6
    resampled = exact.resampled(t, buckets)
    assert len(resampled.times) <= max(buckets, 1) or resampled is exact
    assert abs(integral(resampled, t) - expected) < 1e-6


def test_gpus_are_counted_once_however_they_are_named() -> None:
    assert gpus({"nvidia.com/gpu": 2}) == 2
    assert gpus({"koordinator.sh/gpu": 150}) == 1.5
    assert gpus({"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 75}) == 0.75
    assert gpus({"nvidia.com/gpu": 8, "koordinator.sh/gpu": 800, "koordinator.sh/gpu-core": 800}) == 8
    assert gpus({"cpu": 4}) == 0

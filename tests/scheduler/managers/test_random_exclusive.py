"""Whatever is preempted, reserved or restarted: nothing exclusive is given twice."""

from scheduler.managers.random_exclusive import live


def test_no_cpu_or_gpu_is_given_twice() -> None:
    problems = {seed: audit.problems for seed in range(40) if (audit := live(seed)).problems}
    assert problems == {}

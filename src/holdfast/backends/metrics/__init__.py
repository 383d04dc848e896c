"""Figures under kube-scheduler's names, for Prometheus; used by every backend.

figures       counters and histograms that take many observations at once
scheduling    what rounds and binds add up to, and what the scheduler's state is when asked
reservations  what reservations there are, and what became of them
timing        how long plugins take
"""

from holdfast.backends.metrics.scheduling import SchedulingMetrics

__all__ = ["SchedulingMetrics"]

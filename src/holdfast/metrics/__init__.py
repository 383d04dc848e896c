"""Figures under kube-scheduler's names, for Prometheus; used by every backend.

figures       counters and histograms that take many observations at once
scheduling    what rounds and binds add up to, and what the scheduler's state is when asked
reservations  what reservations there are, and what became of them
provisioning  those made on demand
jobs          jobs, queues, and what is held for the starving
limits        how far limits add up on each node
timing        how long plugins take
"""

from holdfast.metrics.scheduler_metrics import SchedulingMetrics

__all__ = ["SchedulingMetrics"]

"""Prometheus metrics, under kube-scheduler's names where it has them.

    figures            counters and histograms that take many observations at once
    scheduler_metrics  rounds, binds, plugin durations
    cluster_metrics    reservations, jobs, queues, limits, holds

May import `scheduler` and the layers below.
"""

from holdfast.metrics.scheduler_metrics import SchedulingMetrics

__all__ = ["SchedulingMetrics"]

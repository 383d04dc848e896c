"""Prometheus metrics, under kube-scheduler's names where it has them.

    scheduler_metrics  rounds, binds, plugin durations
    cluster_metrics    reservations, jobs, queues, limits, holds; counters and histograms

May import `scheduler` and the layers below.
"""

from holdfast.metrics.scheduler_metrics import SchedulingMetrics

__all__ = ["SchedulingMetrics"]

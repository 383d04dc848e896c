"""Metrics of devices by claim: kube-scheduler's names where it has them, and what reservations hold."""

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.api.names import RESERVATION_API
from holdfast.metrics.cluster_metrics import Counter, Histogram, exponential
from holdfast.scheduler.state.cluster import Cluster

_GROUPS = {"Pod": "", "Reservation": RESERVATION_API.partition("/")[0]}
"""The API groups of the owners of claims that the scheduler creates."""


class ClaimFigures:
    """ResourceClaims: events are taken from the claim manager, amounts are read at scrape time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        labels = ("profile", "driver", "status")
        self._allocations = Counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Number of allocated devices with binding conditions, by driver and outcome.",
            labels,
        )
        self._waits = Histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that pods waited for the binding conditions of their devices.",
            exponential(0.1, 2, 14),
            labels,
        )

    def collect(self) -> Iterator[Metric]:
        claims = self._cluster.claims
        counts = claims.counts
        while counts.waits:
            wait = counts.waits.popleft()
            for driver, times in wait.results.items():
                self._waits.observe(wait.seconds, (wait.profile, driver, wait.status), times)
            for driver, times in wait.conditional.items():
                self._allocations.add((wait.profile, driver, wait.status), times)
        created = Counter(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Number of ResourceClaims that the scheduler created or failed to create, by their owner.",
            ("status", "admin_access", "owner_api_group", "owner_api_kind"),
        )
        for (kind, status), number in sorted(counts.created.items()):
            created.add((status, "false", _GROUPS[kind], kind), number)
        refused = Counter(
            "holdfast_reservation_claim_write_failures_total",
            "Number of refused writes of ResourceClaims with which reservations hold devices.",
        )
        refused.add(amount=counts.refused)
        for figure in (self._allocations, self._waits, created, refused):
            yield figure.family()
        yield self._devices()
        known = self._cluster.reservations.known.values()
        yield GaugeMetricFamily(
            "holdfast_reservations_without_devices",
            "Number of reservations on a node that do not hold all devices of their claims.",
            value=sum(bool(each.devices_problem) and not each.finished for each in known),
        )

    def _devices(self) -> Metric:
        gauge = GaugeMetricFamily(
            "holdfast_reservation_devices",
            "Devices that each reservation holds by claims: free for its owners, or in use by them or "
            "by pods that it waits for.",
            labels=["name", "driver", "state"],
        )
        counts: Count[tuple[str, str, str]] = Count()
        for held in self._cluster.claims.devices_held():
            counts[held.reservation, held.driver, "free" if held.is_free else "in_use"] += 1
        for labels, number in sorted(counts.items()):
            gauge.add_metric(list(labels), number)
        return gauge

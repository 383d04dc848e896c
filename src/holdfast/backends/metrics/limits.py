"""How far the limits of pods add up on each node, as a part of what it has."""

from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.core.cluster import Cluster


def limit_ratios(cluster: Cluster) -> Metric:
    gauge = GaugeMetricFamily(
        "holdfast_node_limit_to_allocatable_ratio",
        "The limits of the pods and reservations on a node, as a part of what it has.",
        labels=["node", "resource"],
    )
    for node, ratios in cluster.limits.ratios().items():
        for resource, ratio in ratios.items():
            gauge.add_metric([node, resource], ratio)
    return gauge

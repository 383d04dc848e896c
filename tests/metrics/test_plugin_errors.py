"""Errors of plugins in the metric."""

from harness.driver import Driver
from holdfast.metrics.scheduler_metrics import SchedulingMetrics


def test_errors_of_plugins_are_counted_by_plugin_and_extension_point() -> None:
    driver = Driver()
    metrics = SchedulingMetrics(driver.scheduler)
    for _ in range(2):
        driver.scheduler.cluster.plugin_errors.note("Mine", "Filter", ValueError("x"))
    text = metrics.text().decode()
    assert 'holdfast_plugin_errors_total{extension_point="Filter",plugin="Mine"} 2.0' in text

"""Several profiles, of which not all schedule reservations."""

from harness.yaml_scenarios import NODE, condition, documents, find, joined
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.simulation import Simulation

CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {"schedulerName": "holdfast-scheduler"},
        {
            "schedulerName": "plain",
            "plugins": {"multiPoint": {"disabled": [{"name": "Reservation"}]}},
        },
    ],
}


def reservation(name: str, scheduler: str) -> str:
    return f"""
        apiVersion: scheduling.koordinator.sh/v1alpha1
        kind: Reservation
        metadata: {{name: {name}}}
        spec:
          owners: [{{labelSelector: {{matchLabels: {{app: {name}}}}}}}]
          template:
            spec:
              schedulerName: {scheduler}
              containers: [{{name: c, resources: {{requests: {{cpu: "1"}}}}}}]
    """


def test_a_reservation_of_a_profile_without_the_plugin_is_told_so() -> None:
    text = joined(NODE, reservation("a", "holdfast-scheduler"), reservation("b", "plain"))
    result = Simulation(read_scenario(documents(text)), SchedulerFactory.of(CONFIG)).run()
    assert find(result, "Reservation", "a")["status"]["phase"] == "Available"
    raw = find(result, "Reservation", "b")
    assert raw["status"]["phase"] == "Pending"
    why = 'profile "plain" has no Reservation plugin, so it schedules no reservations'
    assert why in condition(raw, "Scheduled")["message"]

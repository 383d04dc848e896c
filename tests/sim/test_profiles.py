"""Several profiles, of which not all schedule reservations."""

from harness.scenarios import NODE, condition, documents, find, joined, reservation_text
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


def test_a_reservation_of_a_profile_without_the_plugin_is_reported() -> None:
    profiles = {"a": "holdfast-scheduler", "b": "plain"}
    made = [reservation_text(name, "1", pod={"schedulerName": by}) for name, by in profiles.items()]
    text = joined(NODE, *made)
    result = Simulation(read_scenario(documents(text)), SchedulerFactory.of(CONFIG)).run()
    assert find(result, "Reservation", "a")["status"]["phase"] == "Available"
    raw = find(result, "Reservation", "b")
    assert raw["status"]["phase"] == "Pending"
    why = 'profile "plain" has no Reservation plugin, so it schedules no reservations'
    assert why in condition(raw, "Scheduled")["message"]

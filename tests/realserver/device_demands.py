"""Random specs of ResourceClaims: requests, alternatives, selectors and constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.choices import Chooser, rarely, sometimes
from realserver.device_pools import RACK

Json = dict[str, Any]


class DemandMaker:
    """The claims of one cluster."""

    def __init__(self, choose: Chooser, drivers: Sequence[str], classes: Sequence[str]) -> None:
        self.choose = choose
        self.drivers = tuple(drivers)
        self.classes = list(classes)

    def spec(self) -> Json:
        choose = self.choose
        requests: list[Json] = []
        names: list[str] = []
        for i in range(choose((1, 1, 1, 1, 2, 3))):
            name = f"r{i}"
            if choose((False, False, False, True)):
                parts = [{"name": f"s{j}", **self._demand(False)} for j in range(choose((1, 2, 2, 3)))]
                requests.append({"name": name, "firstAvailable": parts})
                names += [name, *(f"{name}/{each['name']}" for each in parts)]
            else:
                requests.append({"name": name, "exactly": self._demand(True)})
                names.append(name)
        devices: Json = {"requests": requests}
        if sometimes(choose):
            devices["constraints"] = [self._constraint(names) for _ in range(choose((1, 1, 2)))]
        if rarely(choose):
            opaque = {"driver": self.drivers[0], "parameters": {"of": "claim"}}
            config: Json = {"opaque": opaque}
            if sometimes(choose):
                config["requests"] = [choose(names)]
            devices["config"] = [config]
        return {"devices": devices}

    def _demand(self, exact: bool) -> Json:
        choose = self.choose
        missing = choose((False,) * 40 + (True,))
        known = choose(self.classes[:2] * 3 + self.classes)
        demand: Json = {"deviceClassName": f"{self.classes[0]}-none" if missing else known}
        if choose((False,) * 7 + (True,)):
            demand["allocationMode"] = "All"
        else:
            demand |= {"allocationMode": "ExactCount", "count": choose((1, 1, 1, 1, 1, 2, 2, 3))}
        if sometimes(choose):
            of = self.drivers[:1] * 3 + self.drivers
            demand["selectors"] = [cel(self.selector(choose(of))) for _ in range(choose((1, 1, 2)))]
        if exact and rarely(choose):
            demand["adminAccess"] = True
        if sometimes(choose):
            demand["tolerations"] = [
                choose(
                    (
                        {"operator": "Exists"},
                        {"key": "health", "operator": "Exists", "effect": "NoSchedule"},
                        {"key": "health", "operator": "Equal", "value": "bad"},
                        {"key": "load", "operator": "Exists", "effect": "NoExecute"},
                        {"key": "load", "operator": "Equal", "value": "high", "effect": "NoSchedule"},
                    )
                )
                for _ in range(choose((1, 1, 2)))
            ]
        if rarely(choose):
            asked = {"memory": choose(("1Gi", "5Gi", "7Gi", "12Gi", "40Gi"))}
            if sometimes(choose):
                asked["cores"] = choose(("1", "1500m", "3"))
            demand["capacity"] = {"requests": asked}
        return demand

    def selector(self, driver: str) -> str:
        named = f"device.attributes['{driver}']"
        memory = f"device.capacity['{driver}'].memory"
        guard = f"device.driver == '{driver}' && "
        return guard + self.choose(
            (
                f"{named}.model == 'x'",
                f"'model' in {named} && {named}.model == 'y'",
                f"{named}.numa == 0",
                f"{named}.?numa.orValue(1) > 0",
                f"'memory' in device.capacity['{driver}'] && {memory}.compareTo(quantity('20Gi')) >= 0",
                f"'version' in {named} && {named}.version.isGreaterThan(semver('1.5.0'))",
                f"'ready' in {named} && {named}.ready",
                "device.attributes['example.com'].?rack.orValue('') == 'r0'",
                f"{named}.model.matches('^[xy]$')",
                f"{memory}.isLessThan(quantity('40Gi'))" if rarely(self.choose) else "true",
                "!device.allowMultipleAllocations",
                f"{named}.numa in [0, 2] || {named}.model == 'x'",
                f"({named}.numa == 0 ? 'x' : 'y') == {named}.model",
                f"cel.bind(n, {named}.numa, n * 2 - 1 > 0)",
                f"['x', 'z'].exists(m, m == {named}.model)",
                f"{named}.version.major() == 2" if rarely(self.choose) else f"size({named}) > 2",
            )
        )

    def _constraint(self, names: list[str]) -> Json:
        choose = self.choose
        a, b = self.drivers
        attribute = choose((f"{a}/numa", f"{a}/numa", f"{a}/model", RACK, RACK, f"{b}/numa"))
        made: Json = {choose(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
        if sometimes(choose):
            wanted = {choose(names), choose(names)}
            made["requests"] = sorted(n for n in wanted if n.partition("/")[0] not in wanted - {n})
        return made


def cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}

"""Every case of the tables: what the claims get, and that all ways of asking agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from holdfast.scheduler.managers.claims import ClaimsAllocation, ClaimsRefusal, explain
from scheduler.claims.table_format import Case, CaseCluster, cases, expected, shown


@pytest.mark.parametrize("case", [pytest.param(case, id=title) for title, case in cases()])
def test_claims_get_the_devices_of_the_table(case: Case) -> None:
    cluster = CaseCluster(case)
    found = cluster.allocator.allocate(cluster.request, cluster.row, cluster.use, cluster.names)
    _check_feasibility(cluster, found)
    if "gives" not in case and case.get("claims"):
        assert isinstance(found, ClaimsRefusal), found
        message = case.get("error", case.get("refused", "cannot allocate all claims"))
        assert found.message.split("\n")[0] == message
        assert found.fatal == ("error" in case)
        return
    assert isinstance(found, ClaimsAllocation), found
    given = {name: shown(result) for name, result in zip(cluster.claims, found.results, strict=True)}
    assert given == {name: expected(each, cluster.node) for name, each in case.get("gives", {}).items()}
    _check_results(cluster, found)


def _check_feasibility(cluster: CaseCluster, found: Any) -> None:
    for rows in ([cluster.row], [cluster.row] * 50):
        verdicts = cluster.allocator.feasible(cluster.request, np.array(rows), cluster.use)
        assert verdicts.feasible.all() == isinstance(found, ClaimsAllocation)
        if isinstance(found, ClaimsRefusal):
            assert verdicts.fatal.all() == found.fatal
            assert found.fatal or verdicts.message(0) == found.message
        else:
            assert set(verdicts.scores.tolist()) == {found.score}
    explained = explain(cluster.allocator, cluster.request, cluster.row, cluster.use)
    assert bool(explained.problem) == (isinstance(found, ClaimsRefusal) and found.fatal)


def _check_results(cluster: CaseCluster, found: ClaimsAllocation) -> None:
    """What a result repeats of its request and its device; and that it counts as use."""
    devices = {entry.id: entry.device for entry in cluster.catalogue.table.entries if entry is not None}
    for spec, result in zip(cluster.claims.values(), found.results, strict=True):
        tolerations = {}
        for request in spec.devices.requests:
            if request.exactly is not None:
                tolerations[request.name] = request.exactly.tolerations
            for one in request.first_available:
                tolerations[f"{request.name}/{one.name}"] = one.tolerations
        for each in result.devices.results:
            device = devices[each.device_id]
            assert each.tolerations == tolerations[each.request]
            assert each.binding_conditions == device.binding_conditions
            assert each.binding_failure_conditions == device.binding_failure_conditions
    for number, result in enumerate(found.results):
        cluster.use.add(f"claim-{number}", result.devices.results)
    assert cluster.use.check() == []
    assert cluster.use.taken.max() <= 1 or any(
        each.admin_access for result in found.results for each in result.devices.results
    )

"""What deploy/ allows the scheduler is what it needs: it runs on a real server with just that."""

from __future__ import annotations

from pathlib import Path

from harness.builders import make_node, make_pod
from harness.holdfast_process import holdfast
from harness.objects import own_pod
from realserver.accounts import ACCOUNT, as_the_account, documents, ensure, of_the_provisioner
from realserver.server import RealServer


def test_the_scheduler_runs_with_what_deploy_gives_it(real_cluster: RealServer, tmp_path: Path) -> None:
    from holdfast.api.crds import definitions

    client = real_cluster.client
    for obj in (*documents("namespace.yaml"), *documents("rbac.yaml")):
        ensure(real_cluster, obj)
    for definition in definitions():
        ensure(real_cluster, definition)
    config = tmp_path / "config.yaml"
    config.write_text(documents("config.yaml")[0]["data"]["config.yaml"])
    client.create(make_node("n1").allocatable(cpu="1", memory="8Gi", pods=110).raw())

    flags = ("--config", str(config))
    with holdfast(as_the_account(real_cluster, tmp_path), tmp_path / "log", *flags) as run:
        client.create(own_pod("fits", "1"))
        client.create(own_pod("waits", "2"))
        run.wait_until(lambda: client.get(own_pod("fits", "1"))["spec"].get("nodeName") == "n1")
        run.wait_until(lambda: client.get(own_pod("waits", "2"))["status"].get("conditions"))
        run.wait_until(
            lambda: (
                {e["reason"] for e in client.list("v1", "events")} >= {"Scheduled", "FailedScheduling"}
            )
        )
        assert run.stop() == 0
        refused = [e for e in run.events() if "forbidden" in str(e).lower()]
        assert refused == []


def test_a_provisioner_of_its_own_needs_no_more_either(
    real_cluster: RealServer, tmp_path: Path
) -> None:
    from holdfast.api.crds import definitions

    client = real_cluster.client
    given = (*documents("namespace.yaml"), *documents("rbac.yaml"), *of_the_provisioner("rbac.yaml"))
    for obj in (*given, *definitions("reservations")):
        ensure(real_cluster, obj)
    config = tmp_path / "config.yaml"
    external = "\ndynamicReservation: {provisioner: external}\n"
    config.write_text(documents("config.yaml")[0]["data"]["config.yaml"] + external)
    client.create(make_node("n1").allocatable(cpu="8", memory="8Gi", pods=110).raw())
    asking = make_pod("asking").cpu("1").raw()
    del asking["metadata"]["uid"]
    asking["spec"]["schedulerName"] = "holdfast-scheduler"
    owners = '{"owners": [{"labelSelector": {}}], "recommendedSize": {"cpu": "4"}}'
    prefix = "scheduling.koordinator.sh/"
    asking["metadata"]["annotations"] = {f"{prefix}reservation-template": owners}

    scheduler = as_the_account(real_cluster, tmp_path)
    provisioner = as_the_account(real_cluster, tmp_path, f"{ACCOUNT}-provisioner")
    lease = ("--lease-namespace", "holdfast-system")
    with (
        holdfast(scheduler, tmp_path / "run.log", "--config", str(config)) as run,
        holdfast(provisioner, tmp_path / "prov.log", *lease, command="provisioner") as making,
    ):
        client.create(asking)
        run.wait_until(lambda: client.get(asking)["spec"].get("nodeName") == "n1")
        assert f"{prefix}reservation-allocated" in client.get(asking)["metadata"]["annotations"]
        assert making.figure("holdfast_provisioner_created_total") == 1
        assert run.figure("scheduler_reservation_created_total") == 1
        assert (making.stop(), run.stop()) == (0, 0)
        refused = [e for e in (*run.events(), *making.events()) if "forbidden" in str(e).lower()]
        assert refused == []

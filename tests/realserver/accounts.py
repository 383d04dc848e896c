"""What `deploy/` makes on a real server: accounts with the permissions of its manifests."""

from __future__ import annotations

from pathlib import Path

import yaml

from realserver.client import Json, RefusedError
from realserver.server import RealServer

MANIFESTS = Path(__file__).parents[2] / "deploy" / "manifests"
ACCOUNT = "system:serviceaccount:holdfast-system:holdfast"


def documents(name: str) -> list[Json]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def of_the_provisioner(name: str) -> list[Json]:
    return list(yaml.safe_load_all((MANIFESTS.parent / "provisioner" / name).read_text()))


def ensure(server: RealServer, obj: Json) -> None:
    group = obj["apiVersion"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    namespace = obj["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    try:
        server.client.request("POST", f"{root}{inside}/{obj['kind'].lower()}s", obj)
    except RefusedError as error:
        if error.status != 409:
            raise


def as_the_account(server: RealServer, tmp_path: Path, account: str = ACCOUNT) -> Path:
    config = yaml.safe_load(server.kubeconfig().read_text())
    user = config["users"][0]["user"]
    user["as"] = account
    user["as-groups"] = ["system:serviceaccounts", "system:authenticated"]
    path = tmp_path / f"kubeconfig-{account.rpartition(':')[2]}"
    path.write_text(yaml.safe_dump(config))
    return path

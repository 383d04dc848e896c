"""The program of `make demo`: schedules pods in a cluster over HTTP and prints the result.

It starts `holdfast up` with three simulated nodes, creates objects as any Kubernetes client would,
waits until everything has settled, prints the result and stops the cluster. `kubectl` can do the same
with the kubeconfig that `holdfast up` writes.
"""

import base64
import json
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from rich import box
from rich.console import Console
from rich.table import Table

Raw = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
PATIENCE = 120.0
console = Console(highlight=False)


def container(cpu: str) -> Raw:
    return {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}


def deployment(name: str, replicas: int, cpu: str) -> Raw:
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [container(cpu)], "topologySpreadConstraints": [spread]},
            },
        },
    }


def pod(name: str, cpu: str, **spec: Any) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container(cpu)], **spec},
    }


def node(name: str, zone: str) -> Raw:
    labels = {"topology.kubernetes.io/zone": zone}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


class Api:
    """As much of a Kubernetes client as this needs."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._server = cluster["server"]
        self._token = document["users"][0]["user"]["token"]
        self._tls = ssl.create_default_context(cadata=authority)

    def open(self, method: str, path: str, body: Raw | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._server + path, data, headers, method=method)
        return urllib.request.urlopen(request, context=self._tls, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: Raw | None = None) -> Raw:
        with self.open(method, path, body) as response:
            answer: Raw = json.load(response)
            return answer

    def watch_pods_until(self, settled: Any) -> None:
        """Follows the pods until they are as asked."""
        pods: dict[str, Raw] = {}
        with self.open("GET", f"{PODS}?watch=1") as stream:
            for line in stream:
                event = json.loads(line)
                name = event["object"]["metadata"]["name"]
                if event["type"] == "DELETED":
                    pods.pop(name, None)
                else:
                    pods[name] = event["object"]
                if settled(pods.values()):
                    return


def placed(raw: Raw) -> bool:
    return bool(raw["spec"].get("nodeName")) and raw["status"]["phase"] == "Running"


def why_not(raw: Raw) -> str:
    conditions = raw["status"].get("conditions") or []
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


def show(api: Api) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("pod", "priority", "phase", "node", "zone"):
        table.add_column(column)
    nodes = {raw["metadata"]["name"]: raw for raw in api.ask("GET", "/api/v1/nodes")["items"]}
    for raw in api.ask("GET", PODS)["items"]:
        node = raw["spec"].get("nodeName", "")
        labels = nodes[node]["metadata"]["labels"] if node else {}
        zone = labels.get("topology.kubernetes.io/zone", "")
        name, priority = raw["metadata"]["name"], str(raw["spec"].get("priority", 0))
        table.add_row(name, priority, raw["status"]["phase"], node, zone)
    console.print(table)


def run_demo(api: Api) -> None:
    console.print("[bold]A Deployment of six, spread over three zones[/bold]")
    api.ask("POST", "/apis/apps/v1/namespaces/default/deployments", deployment("web", 6, "2"))
    api.watch_pods_until(lambda pods: sum(map(placed, pods)) == 6)
    show(api)

    console.print("[bold]A pod that requests more than any node has[/bold]")
    api.ask("POST", PODS, pod("giant", "64"))
    api.watch_pods_until(lambda pods: any(why_not(raw) for raw in pods if not placed(raw)))
    console.print(f"  giant: {why_not(api.ask('GET', f'{PODS}/giant'))}\n", soft_wrap=True)
    api.ask("DELETE", f"{PODS}/giant")

    console.print("[bold]A pod of higher priority preempts others, which are pending then[/bold]")
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    api.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    api.ask("POST", PODS, pod("urgent", "7", priorityClassName="urgent"))
    api.watch_pods_until(lambda pods: any(placed(r) for r in pods if r["metadata"]["name"] == "urgent"))
    show(api)

    console.print("[bold]A node joins the zone of the pending pods[/bold]")
    api.ask("POST", "/api/v1/nodes", node("newcomer", "zone-a"))
    api.watch_pods_until(lambda pods: sum(map(placed, pods)) == 7)
    show(api)

    console.print("[bold]Events[/bold]")
    for event in api.ask("GET", "/api/v1/namespaces/default/events")["items"]:
        if event["involvedObject"]["kind"] == "Pod" and event["reason"] != "Scheduled":
            name, message = event["involvedObject"]["name"], event["message"]
            console.print(f"  {event['reason']:18} {name}: {message}", soft_wrap=True)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        command = [sys.executable, "-m", "holdfast", "up", "--nodes", "3"]
        command += ["--kubeconfig-out", str(kubeconfig)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            for line in process.stdout:
                console.print(f"[dim]{line.rstrip()}[/dim]")
                if line.startswith("Try:"):
                    console.print()
                    run_demo(Api(kubeconfig))
                    process.terminate()
        finally:
            process.terminate()
            status = process.wait(PATIENCE)
    console.print(f"\n[dim]The cluster stopped with status {status}.[/dim]")
    return status


if __name__ == "__main__":
    sys.exit(main())

"""What a plan needs, as an API server takes it."""

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.api.meta import Object
from holdfast.bench.errors import BenchError
from holdfast.bench.plan import Churning, Objects, Plan, Pods

Raw = dict[str, Any]

LABEL = "holdfast.io/bench"
"""On everything the benchmark makes, so that nothing else is deleted after it."""
_KINDS = ("Node", "Namespace", "Pod")
_SERVERS_OWN = ("uid", "resourceVersion", "creationTimestamp", "generation")


class Content(msgspec.Struct):
    """A plan, sorted by what happens to it."""

    nodes: list[Raw]
    namespaces: list[str]
    before: list[Raw]
    """Pods that have a node from the start."""
    measured: list[Raw]


def content_of(plan: Plan) -> Content:
    """Pods that are there before go to nodes in turn, so that every scheduler finds the same.

    Raises BenchError where the plan needs what an API server alone cannot give.
    """
    content = Content([], [], [], [])
    for step in plan.steps:
        if isinstance(step, Objects):
            for obj in step.objects:
                _sort_in(content, obj, plan.name)
        elif isinstance(step, Pods):
            content.namespaces += [ns for ns in step.maker.namespaces if ns not in content.namespaces]
            pods = list(_pods(step, plan.name))
            (content.measured if step.measured else content.before).extend(pods)
        elif isinstance(step, Churning):
            raise BenchError(f"{plan.name} changes things while it runs; that is not for --mode kube")
    for number, pod in enumerate(content.before):
        node = content.nodes[number % len(content.nodes)]
        pod["spec"]["nodeName"] = node["metadata"]["name"]
    return content


def _sort_in(content: Content, obj: Object, plan: str) -> None:
    if obj.kind not in _KINDS:
        raise BenchError(f"{plan} needs a {obj.kind}; that is not for --mode kube")
    if obj.kind == "Node":
        content.nodes.append(raw(obj))
    elif obj.metadata.name not in content.namespaces:
        content.namespaces.append(obj.metadata.name)


def _pods(step: Pods, plan: str) -> Iterator[Raw]:
    for number in range(step.count):
        *along, pod = step.maker.arriving(number)
        if along:
            raise BenchError(f"{plan} needs a {along[0].kind}; that is not for --mode kube")
        made = raw(pod)
        made["spec"].pop("priority", None)
        made.pop("status", None)
        yield made


def raw(obj: Object) -> Raw:
    made: Raw = msgspec.to_builtins(obj)
    made["metadata"] = {k: v for k, v in made["metadata"].items() if k not in _SERVERS_OWN}
    made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), LABEL: "kube"}
    return made

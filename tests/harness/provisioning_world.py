"""A little world in which pods bring reservation templates, with a provisioner or without one.

With `provisioner="builtin"` the scheduler's own makes reservations; with "apart" one of its own does,
which can be restarted by itself; with "external" nobody does but the test.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import msgspec

from harness.world import LittleWorld, Raw, pod
from holdfast.api.decode import decode
from holdfast.scheduler.assembly import controllers
from holdfast.scheduler.cluster.decisions import AnnotatePod, CreateReservation
from holdfast.scheduler.cluster.events import Added, Event, WriteRefused
from holdfast.scheduler.controllers.provisioner import Provisioner
from holdfast.scheduler.framework.config import API_VERSION, KIND, load
from holdfast.scheduler.plugins import registry as installed
from holdfast.scheduler.reservations.provisioning_requests import Requirements
from holdfast.scheduler.scheduler import Scheduler

PREFIX = "scheduling.koordinator.sh/"
TEMPLATE = f"{PREFIX}reservation-template"
REQUIREMENT = f"{PREFIX}new-reservation-requirement"
ERROR = f"{PREFIX}reservation-provision-error"
ID = f"{PREFIX}reservation-id"

_REGISTRY = installed()


def template(app: str = "a", **sizes: Raw) -> str:
    owners = sizes.pop("owners", [{"labelSelector": {"matchLabels": {"app": app}}}])
    return msgspec.json.encode({"owners": owners, **sizes}).decode()


def asking(name: str, app: str = "a", requirement: Raw | None = None, **more: Any) -> Raw:
    """A pod with a template of these sizes."""
    sizes = {key: more.pop(key) for key in ("recommendedSize", "roundup", "owners") if key in more}
    annotations = {TEMPLATE: more.pop("template", None) or template(app, **sizes)}
    if requirement is not None:
        annotations[REQUIREMENT] = msgspec.json.encode(requirement).decode()
    labels = more.pop("labels", {"app": app})
    return pod(name, app, meta={"annotations": annotations, "labels": labels}, **more)


def required(id: str, **resources: str) -> Raw:
    return {"labels": {ID: id}, "resources": resources}


class AskingWorld(LittleWorld):
    def __init__(self, *objects: Raw, provisioner: str = "builtin", **settings: Any) -> None:
        self._apart = provisioner == "apart"
        chosen = "builtin" if provisioner == "builtin" else "external"
        section = {"provisioner": chosen, **settings}
        mapping = {"apiVersion": API_VERSION, "kind": KIND, "dynamicReservation": section}
        self._configuration = load(mapping, _REGISTRY.implements())
        self.created = 0
        self.serial = 0
        self.cannot_create = ""
        """Why reservations cannot be created, if they cannot."""
        self.after_each: Callable[[], None] = lambda: None
        """Called when something was written."""
        super().__init__(*objects)

    def start(self) -> None:
        self.scheduler = Scheduler(
            self._configuration,
            _REGISTRY,
            {"default-scheduler": "holdfast-scheduler"},
            controllers(self._configuration),
        )
        for raw in self.objects.values():
            self.scheduler.feed(Added(decode(raw)), self.now)
        self.check()
        if self._apart and not hasattr(self, "provisioner"):
            self.restart_provisioner()

    restart = start

    def restart_provisioner(self) -> None:
        self.provisioner = Provisioner(Requirements())
        for raw in self.objects.values():
            self.provisioner.feed(Added(decode(raw)))

    def settle(self) -> Self:
        while True:
            super().settle()
            decisions = self.provisioner.run(self.now) if self._apart else []
            if not decisions:
                return self
            with ExitStack() as stack:  # what becomes of the scheduler is none of its business
                for decision in reversed(decisions):
                    stack.callback(self._carry_out, decision)

    # What is asked

    def annotation(self, name: str, key: str) -> str:
        return str((self.objects["Pod", name]["metadata"].get("annotations") or {}).get(key, ""))

    def asked(self, name: str) -> dict[str, str]:
        """The resources that are asked for on a pod's behalf."""
        text = self.annotation(name, REQUIREMENT)
        return dict(msgspec.json.decode(text)["resources"]) if text else {}

    def id(self, name: str) -> str:
        return str(msgspec.json.decode(self.annotation(name, REQUIREMENT))["labels"][ID])

    def reservations(self) -> list[Raw]:
        return [raw for (kind, _), raw in self.objects.items() if kind == "Reservation"]

    def reasons(self, name: str) -> list[str]:
        """Of the events about provisioning."""
        return [e.reason for e in self.events if e.about.name == name and e.action == "Provisioning"]

    def held(self, node: str) -> int:
        """Milli-cpus held on a node by what is reserved or set aside there."""
        cluster = self.scheduler.cluster
        row = cluster.nodes.row(node)
        return int(cluster.nodes.held[0, row]) if row is not None else 0

    # Carrying out

    def _carry_out(self, decision: Any) -> None:
        if isinstance(decision, AnnotatePod):
            self._annotate(decision)
        elif isinstance(decision, CreateReservation):
            self._make(decision)
        else:
            super()._carry_out(decision)
        self.after_each()

    def _annotate(self, decision: AnnotatePod) -> None:
        raw = self.objects.get(("Pod", decision.pod.name))
        if raw is None or decision.pod.uid in self.refuse:
            self.refuse.discard(decision.pod.uid)
            self._feed(WriteRefused(decision, "no"))
            return
        annotations = {**(raw["metadata"].get("annotations") or {}), **decision.annotations}
        kept = {key: value for key, value in annotations.items() if value is not None}
        self._store({**raw, "metadata": {**raw["metadata"], "annotations": kept}})

    def _make(self, decision: CreateReservation) -> None:
        name = decision.reservation.metadata.name
        if self.cannot_create:
            self._feed(WriteRefused(decision, self.cannot_create))
        elif ("Reservation", name) not in self.objects:
            raw = msgspec.to_builtins(decision.reservation)
            self.created += 1
            raw["metadata"]["uid"] = f"made-{self.created}"
            raw["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            self._store(raw)

    def _feed(self, event: Event) -> None:
        super()._feed(event)
        if self._apart and hasattr(self, "provisioner"):
            self.provisioner.feed(event)

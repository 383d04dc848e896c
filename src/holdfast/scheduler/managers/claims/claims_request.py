"""What the claims of a pod request, compiled once for all pods whose claims are alike.

A part is a request, or one of the alternatives of a request (a subrequest). A request with one part is
an exact one. Names of claims are not part of it, since claims made from a template differ only in them;
messages get them later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.api.resource_claims import (
    ALL_DEVICES,
    EXACT_COUNT,
    FROM_CLAIM,
    FROM_CLASS,
    DeviceAllocationConfiguration,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceDemand,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from holdfast.api.resource_slices import DeviceToleration
from holdfast.scheduler.managers.claims.capacity import Asked

MAX_RESULTS = 32
MAX_ALTERNATIVES = 8
Choice = tuple[int, ...]
"""The alternative chosen for each request of a claim."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod's claims can never be allocated as they are: an error, not a lack of devices."""

    text: str
    claim: int | None = None
    """The claim that the message is about; its name precedes the text."""

    def message(self, claims: Sequence[str]) -> str:
        return self.text if self.claim is None else f"claim {claims[self.claim]}{self.text}"


@dataclass(slots=True, eq=False)
class RequestPart:
    """A request or subrequest."""

    index: int
    """Its place among all parts of the pod's claims."""
    claim: int
    name: str
    parent: str
    """The request it is an alternative of; empty for an exact request."""
    class_name: str
    class_selectors: tuple[str, ...]
    selectors: tuple[str, ...]
    takes_all: bool
    count: int
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    asked: Asked
    problem: Problem | None
    """What is wrong with it, whatever the devices."""

    @property
    def full_name(self) -> str:
        """As results have it."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def request_name(self) -> str:
        return self.parent or self.name


@dataclass(slots=True, eq=False)
class ClaimPart:
    """One of a pod's claims."""

    requests: tuple[tuple[RequestPart, ...], ...]
    """The parts of each request."""
    constraints: tuple[DeviceConstraint, ...]
    spec: DeviceClaim
    classes: Mapping[str, DeviceClass]
    problem: Problem | None
    """What is wrong with its constraints."""
    _configurations: dict[Choice, tuple[DeviceAllocationConfiguration, ...]] = field(
        default_factory=dict
    )

    def configuration(self, choice: Choice) -> tuple[DeviceAllocationConfiguration, ...]:
        """The configuration for drivers, with these alternatives: of classes, then of the claim."""
        found = self._configurations.get(choice)
        if found is None:
            found = self._configurations[choice] = self._configured(choice)
        return found

    def _configured(self, choice: Choice) -> tuple[DeviceAllocationConfiguration, ...]:
        parts = [request[at] for request, at in zip(self.requests, choice, strict=True)]
        users: dict[str, list[str]] = {}
        for part in parts:
            users.setdefault(part.class_name, []).append(part.full_name)
        found = [
            (FROM_CLASS, tuple(names), each)
            for class_name, names in users.items()
            for each in self.classes[class_name].spec.config
        ]
        names = {part.request_name for part in parts} | {part.full_name for part in parts}
        found += [
            (FROM_CLAIM, each.requests, each)
            for each in self.spec.config
            if not each.requests or not names.isdisjoint(each.requests)
        ]
        return tuple(
            DeviceAllocationConfiguration(
                source=source,
                requests=() if self._applies_to_all(parts, requests) else requests,
                opaque=each.opaque,
            )
            for source, requests, each in found
        )

    @staticmethod
    def _applies_to_all(parts: list[RequestPart], requests: tuple[str, ...]) -> bool:
        return all(part.request_name in requests or part.full_name in requests for part in parts)

    def score(self, choice: Choice) -> int:
        """Higher for alternatives that come earlier in their request."""
        return sum(
            MAX_ALTERNATIVES - at
            for request, at in zip(self.requests, choice, strict=True)
            if request[0].parent
        )


class ClaimsRequest:
    """The claims of a pod that are not allocated yet. Equal if the specs and the classes are."""

    def __init__(self, specs: Sequence[ResourceClaimSpec], classes: Mapping[str, DeviceClass]) -> None:
        self.specs = tuple(specs)
        self.parts: list[RequestPart] = []
        self.missing_class: tuple[str, str] | None = None
        """The first request whose class does not exist, and the class."""
        self.claims = tuple(self._claim(at, spec.devices, classes) for at, spec in enumerate(specs))
        only = self.parts[0] if len(self.parts) == 1 and len(self.claims) == 1 else None
        self.single: RequestPart | None = None
        """The only part, if nothing but the number of devices that match it decides."""
        if (
            only is not None
            and not (only.parent or only.takes_all or only.admin_access or only.asked or only.problem)
            and not self.claims[0].constraints
            and only.count <= MAX_RESULTS
        ):
            self.single = only
        self.prioritized = any(part.parent for part in self.parts)
        """Whether a request has alternatives, so that nodes differ in score."""

    def _claim(self, at: int, claim: DeviceClaim, classes: Mapping[str, DeviceClass]) -> ClaimPart:
        requests = tuple(self._request(at, request, classes) for request in claim.requests)
        problem = None
        for number, each in enumerate(claim.constraints):
            if each.match_attribute is None and each.distinct_attribute is None:
                why = f", constraint #{number}: empty constraint (unsupported constraint type?)"
                problem = problem or Problem(why, at)
        used = {part.class_name for request in requests for part in request}
        known = {name: classes[name] for name in sorted(used) if name in classes}
        return ClaimPart(requests, claim.constraints, claim, known, problem)

    def _request(
        self, claim: int, request: DeviceRequest, classes: Mapping[str, DeviceClass]
    ) -> tuple[RequestPart, ...]:
        if request.first_available:
            return tuple(
                self._part(claim, each.name, request.name, each, classes)
                for each in request.first_available
            )
        exactly = request.exactly or ExactDeviceRequest()
        return (self._part(claim, request.name, "", exactly, classes),)

    def _part(
        self,
        claim: int,
        name: str,
        parent: str,
        given: DeviceDemand,
        classes: Mapping[str, DeviceClass],
    ) -> RequestPart:
        device_class = classes.get(given.device_class_name)
        if device_class is None and self.missing_class is None:
            full_name = f"{parent}/{name}" if parent else name
            self.missing_class = (full_name, given.device_class_name)
        part = RequestPart(
            index=len(self.parts),
            claim=claim,
            name=name,
            parent=parent,
            class_name=given.device_class_name,
            class_selectors=_expressions(device_class.spec.selectors) if device_class else (),
            selectors=_expressions(given.selectors),
            takes_all=given.allocation_mode == ALL_DEVICES,
            count=given.count,
            admin_access=isinstance(given, ExactDeviceRequest) and given.admin_access,
            tolerations=given.tolerations,
            asked=given.capacity.requests if given.capacity is not None else {},
            problem=_problem(claim, name, given, device_class),
        )
        self.parts.append(part)
        return part


def _expressions(selectors: Sequence[object]) -> tuple[str, ...]:
    found = []
    for each in selectors:
        cel = getattr(each, "cel", None)
        found.append(cel.expression if cel is not None else "")
    return tuple(found)


def _problem(
    claim: int, name: str, given: DeviceDemand, device_class: DeviceClass | None
) -> Problem | None:
    of = f", request {name}"
    for number, selector in enumerate(given.selectors):
        if selector.cel is None:
            why = f"{of}, selector #{number}: CEL expression empty (unsupported selector type?)"
            return Problem(why, claim)
    if not given.device_class_name:
        return Problem(f"{of}: missing device class name (unsupported request type?)", claim)
    if device_class is None:
        wanted = given.device_class_name
        why = (
            f"{of}: could not retrieve device class {wanted}: "
            f'deviceclass.resource.k8s.io "{wanted}" not found'
        )
        return Problem(why, claim)
    if given.allocation_mode not in (EXACT_COUNT, ALL_DEVICES):
        return Problem(f"{of}: unsupported count mode {given.allocation_mode}", claim)
    return None

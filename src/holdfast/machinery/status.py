"""Errors of API requests: a `Status`, as in Kubernetes.

`StatusError` is raised anywhere below the HTTP handler; the functions here make the usual ones. Clients
match on `reason` and people on `message`, so both are Kubernetes' own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.api.errors import HoldfastError
from holdfast.api.raw_objects import Raw
from holdfast.machinery.schema.field_errors import FieldError


class Resource(NamedTuple):
    """A resource as messages name it: `deployments.apps`."""

    group: str
    plural: str

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class StatusError(HoldfastError):
    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Raw | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> Raw:
        body: Raw = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def about(resource: Resource, name: str = "", **more: Any) -> Raw:
    details: Raw = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    if resource.plural:
        details["kind"] = resource.plural
    return {**details, **more}


def success(details: Raw | None = None) -> Raw:
    """The answer to a deletion after which nothing is left to show."""
    body: Raw = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    return body


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized", headers={"WWW-Authenticate": "Bearer"})


def forbidden(resource: Resource, name: str, why: str, causes: list[Raw] | None = None) -> StatusError:
    named = f'{resource} "{name}"' if name else str(resource)
    details = about(resource, name)
    if causes:
        details["causes"] = causes
    return StatusError(403, "Forbidden", f"{named} is forbidden: {why}", details)


def unknown_resource() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def not_found(resource: Resource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', about(resource, name))


def method_not_allowed() -> StatusError:
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        {},
    )


def already_exists(resource: Resource, name: str) -> StatusError:
    return StatusError(
        409, "AlreadyExists", f'{resource} "{name}" already exists', about(resource, name)
    )


def conflict(resource: Resource, name: str, why: str, causes: list[Raw] | None = None) -> StatusError:
    details = about(resource, name)
    if causes:
        details["causes"] = causes
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, details)


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def other_uid(resource: Resource, name: str, wanted: str, found: str) -> StatusError:
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    return conflict(resource, name, why)


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def invalid(group: str, kind: str, name: str, complaints: Sequence[FieldError]) -> StatusError:
    # Duplicate errors are reported once.
    complaints = [*dict.fromkeys(complaints)]
    qualified = f"{kind}.{group}" if group else kind
    if len(complaints) == 1:
        message = complaints[0].text
    else:
        message = f"[{', '.join(each.text for each in complaints)}]"
    details: Raw = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [
        {"reason": each.reason, "message": each.message, "field": each.field} for each in complaints
    ]
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {message}', details)


def too_many_requests(message: str, retry_after: int, causes: list[Raw] | None = None) -> StatusError:
    details: Raw = {}
    if causes:
        details["causes"] = causes
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return StatusError(429, "TooManyRequests", message, details, headers)


def revision_too_large(asked: int, current: int, retry_after: int = 1) -> StatusError:
    details: Raw = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    }
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, details, {"Retry-After": str(retry_after)})


def unavailable(message: str) -> StatusError:
    return StatusError(
        503, "ServiceUnavailable", message, {"retryAfterSeconds": 1}, {"Retry-After": "1"}
    )


def internal(message: str) -> StatusError:
    details: Raw = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)

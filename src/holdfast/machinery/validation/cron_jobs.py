"""Rules of CronJobs: schedule, time zone, concurrency policy, limits, and the template of the Jobs."""

from __future__ import annotations

from typing import Any

from holdfast.api.cron import CronError, load_zone, parse_cron
from holdfast.machinery.schema import field_errors as fields
from holdfast.machinery.schema.field_errors import FieldError
from holdfast.machinery.validation import pods

_LONGEST_NAME = 52
"""So that the names of its Jobs, with the scheduled time, have at most 63 characters."""
_POLICIES = ("Allow", "Forbid", "Replace")
_NOT_NEGATIVE = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
_ZONE = "spec.timeZone"


def check_cron_job(found: list[FieldError], raw: dict[str, Any]) -> None:
    name, spec = raw["metadata"].get("name") or "", raw.get("spec") or {}
    if len(name) > _LONGEST_NAME:
        why = f"must be no more than {_LONGEST_NAME} characters"
        found.append(fields.invalid("metadata.name", name, why))
    _check_schedule(found, spec)
    _check_zone(found, spec)
    policy = spec.get("concurrencyPolicy")
    if not policy:
        found.append(fields.required("spec.concurrencyPolicy"))
    elif policy not in _POLICIES:
        found.append(fields.not_supported("spec.concurrencyPolicy", policy, _POLICIES))
    for field in _NOT_NEGATIVE:
        if isinstance(spec.get(field), int) and spec[field] < 0:
            why = "must be greater than or equal to 0"
            found.append(fields.invalid(f"spec.{field}", spec[field], why))
    _check_template(found, (spec.get("jobTemplate") or {}).get("spec") or {})


def _check_schedule(found: list[FieldError], spec: dict[str, Any]) -> None:
    schedule = spec.get("schedule") or ""
    if not schedule:
        found.append(fields.required("spec.schedule"))
        return
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        if spec.get("timeZone") is not None:
            why = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        found.append(fields.invalid("spec.schedule", schedule, why))
        return
    try:
        parse_cron(schedule)
    except CronError as error:
        found.append(fields.invalid("spec.schedule", schedule, str(error)))


def _check_zone(found: list[FieldError], spec: dict[str, Any]) -> None:
    zone = spec.get("timeZone")
    if zone is None:
        return
    why = ""
    if not zone:
        why = "timeZone must be nil or non-empty string"
    elif zone.lower() == "local":
        why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
    else:
        try:
            load_zone(zone)
        except CronError as error:
            why = str(error)
    if why:
        found.append(fields.invalid(_ZONE, zone, why))


def _check_template(found: list[FieldError], job: dict[str, Any]) -> None:
    path = "spec.jobTemplate.spec.template"
    pods.check_template(found, job.get("template"), path)
    pod = (job.get("template") or {}).get("spec") or {}
    if not pod.get("containers"):
        found.append(fields.required(f"{path}.spec.containers"))
    if pod.get("restartPolicy") in (None, "", "Always"):
        why = 'valid values: "OnFailure", "Never"'
        found.append(fields.required(f"{path}.spec.restartPolicy", why))

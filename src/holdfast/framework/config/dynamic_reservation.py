"""The top-level `dynamicReservation`: who provisions, how long to wait, what if it fails."""

from typing import Literal

from holdfast.framework.config.reading import Seconds, Section


class DynamicReservation(Section, frozen=True):
    provisioner: Literal["builtin", "external"] = "builtin"
    provision_timeout: Seconds = 600.0
    virtual_retention: Seconds = 600.0
    on_failure: Literal["Requeue", "Bind"] = "Requeue"

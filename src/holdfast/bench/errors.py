"""The error of invalid benchmark requests."""

from holdfast.api.errors import HoldfastError


class BenchError(HoldfastError):
    """A workload, trace or option does not exist or is invalid."""

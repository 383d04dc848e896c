"""What can be wrong with what a benchmark is asked to do."""

from holdfast.api.errors import HoldfastError


class BenchError(HoldfastError):
    """A workload, trace or option does not exist or makes no sense."""

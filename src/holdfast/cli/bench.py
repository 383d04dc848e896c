"""`holdfast bench`."""

from holdfast.bench.command import bench

__all__ = ["bench"]

"""`python -m holdfast.bench`: the command `holdfast bench`."""

import typer

from holdfast.bench.command import bench

typer.run(bench)

import typer

from holdfast.bench.command import bench

typer.run(bench)

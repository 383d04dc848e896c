"""`holdfast bench`: scheduler_perf's workloads, and recorded traces, driven through the scheduler.

A workload is a data file (`workloads/*.yaml`) made of the objects in `templates.yaml`; a trace is
read from a folder. Either becomes a `Plan`, which `drive` feeds to a scheduler event by event with
the clock stopped around everything that is the benchmark's own doing.

May import everything but the CLI. Reads clocks and files, opens no connection.
"""

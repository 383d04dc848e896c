"""The `holdfast` command: one file per command, loaded when it is called. May import everything.

app        the table of commands, and what their failures look like to the caller
simulate   `holdfast simulate`; its tables are in `tables`
config     `holdfast config default|validate`
version    `holdfast version`
"""


def main() -> None:
    from holdfast.cli.app import run

    run()

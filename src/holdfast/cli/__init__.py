"""The `holdfast` command: one file per command, loaded when it is called. May import everything.

app        the table of commands, and what their failures look like to the caller
simulate   `holdfast simulate`; its tables are in `tables`
get        `holdfast get` and `describe`; what they know of a kind is in `kinds`
explain    `holdfast explain`; what there is to say is found in `explaining`
reserve    `holdfast reserve`; what it sends is made in `reserving`
asking     what commands about a cluster share
run        `holdfast run`, and `provisioner`; what they share is in `serving`
config     `holdfast config default|validate`
up         `holdfast up`
bench      `holdfast bench`
crds       `holdfast crds`
version    `holdfast version`
setups     configuration files to schedulers
failing    how a command fails
logs       what one that runs for long says
"""


def main() -> None:
    from holdfast.cli.app import run

    run()

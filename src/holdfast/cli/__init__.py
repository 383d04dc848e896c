"""The `holdfast` command: one module per subcommand, imported when it is called.

    app                  the table of subcommands, and how errors reach the caller
    demo                 `holdfast demo`
    simulate             `holdfast simulate`
    command              help, usage lines, and how flags may be written
    get, describe        `holdfast get` and `describe`; `kinds` has what is known of each type
    watch, live_snapshot, object_printer, output_format    changes, and formats of `holdfast get`
    completion           `holdfast completion`; `completers` has the values of options and arguments
    version              `holdfast version`
    explain              `holdfast explain`; `explanation` finds the reasons
    reserve              `holdfast reserve`; `reservation_builder` makes the Reservation,
                         `reservation_outcome` waits for it
    run                  `holdfast run`, `holdfast provisioner`
    up, down             `holdfast up` and `down`; `detached_process` runs it in the background,
                         `process_file` says which process it is
    config               `holdfast config`, `holdfast crds`
    client, snapshot     reads an API server; a scheduler that was fed everything it has
    options, printing    options and errors that commands share; tables, YAML and JSON

May import every package.
"""


def main() -> None:
    from holdfast.cli.app import run

    run()

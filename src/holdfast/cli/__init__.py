"""The `holdfast` command. May import everything."""


def main() -> None:
    raise SystemExit("not yet")

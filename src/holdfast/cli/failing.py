"""How a command fails: with a status, and a line for each thing to say."""


class Failure(Exception):  # noqa: N818 - an outcome, not a fault
    def __init__(self, status: int, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.status = status
        self.lines = lines

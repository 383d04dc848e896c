"""How a command fails: with a status, and a line for each thing to say."""

from holdfast.api.errors import HoldfastError


class Failure(HoldfastError):
    """`as_it_is` says that the lines are whole sentences of somebody else."""

    def __init__(self, status: int, lines: list[str], as_it_is: bool = False) -> None:
        super().__init__("\n".join(lines))
        self.status = status
        self.lines = lines
        self.as_it_is = as_it_is

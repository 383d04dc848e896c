"""What `holdfast get` and `describe` know: a small file for each kind, and a line here.

kind           what there is to say of a kind
reservations   Reservations
holds          the reservations the scheduler keeps for jobs that starve
nodes          who has how much of each node
queue          what waits for a node, in the order it will be tried
queues         Queues
"""

from difflib import get_close_matches

from holdfast.cli.failing import Failure
from holdfast.cli.kinds.holds import Holds
from holdfast.cli.kinds.kind import Kind
from holdfast.cli.kinds.nodes import Nodes
from holdfast.cli.kinds.queue import Waiting
from holdfast.cli.kinds.queues import Queues
from holdfast.cli.kinds.reservations import Reservations

ALL: tuple[Kind, ...] = (Reservations(), Holds(), Nodes(), Waiting(), Queues())


def find_kind(name: str) -> Kind:
    """Raises Failure."""
    wanted = name.lower()
    for kind in ALL:
        if wanted in kind.names or (wanted == kind.info.resource and kind.is_whole):
            return kind
    known = {alias: kind.names[0] for kind in ALL for alias in kind.names}
    close = get_close_matches(wanted, known, n=1)
    hint = f"did you mean {known[close[0]]}?" if close else f"there are {', '.join(titles())}"
    raise Failure(1, [f'unknown resource type "{name}"; {hint}'])


def titles() -> list[str]:
    return [kind.names[0] for kind in ALL]

"""Python's collector of reference cycles, kept from looking at millions of objects that stay.

A simulation keeps nearly everything that it makes, and so do the objects of a cluster that it begins
with. Looking for garbage among them takes longer than the simulation.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_AFTER = 200_000
"""How many more objects there are when the collector looks at them."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """What was there before is not looked at, and what is made meanwhile is looked at seldom: several
    simulations may follow one another, each with cycles of its own."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()

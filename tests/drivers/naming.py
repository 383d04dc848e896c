"""Names only a server can give differ from run to run; what they begin with does not."""

import re

_OF_A_DEPLOYMENT = re.compile(r"-[a-z0-9]{6,10}-[a-z0-9]{5}$")


def as_written(object: str) -> str:
    """A pod of a Deployment is known by the Deployment's name."""
    return _OF_A_DEPLOYMENT.sub("-*", object)


def made(reservation: str) -> str:
    """A reservation made on demand is called after its pod's uid."""
    return "drp-*" if reservation.startswith("drp-") else reservation

"""Configuration files to schedulers; what is wrong with one is said with the file's name."""

from holdfast.backends.embedded.setup import Setup
from holdfast.cli.failing import Failure
from holdfast.framework.config import ConfigError
from holdfast.framework.registry import PluginError
from holdfast.sim.errors import InvalidInput
from holdfast.sim.loading import load_one


def load_setup(path: str | None) -> Setup:
    """Raises Failure."""
    try:
        return Setup.of(load_one(path) if path is not None else None)
    except InvalidInput as error:
        raise Failure(1, error.problems) from None
    except ConfigError as error:
        raise Failure(1, [f"{path}: {line}" for line in str(error).splitlines()]) from None
    except PluginError as error:
        raise Failure(1, [str(error)]) from None

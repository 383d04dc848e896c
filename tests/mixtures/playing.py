"""A life played in `simulate`, with the capacity audit and the program's own invariants."""

import re
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from holdfast.api.documents import Document
from holdfast.api.errors import InvalidObject
from holdfast.local.setup import SchedulerFactory
from holdfast.sim.scenario import read_scenario
from holdfast.sim.scenario_actions import ScenarioAction
from holdfast.sim.simulated_cluster import InvariantBroken
from holdfast.sim.simulation import Result, Simulation, to_json
from holdfast.snapshot.manifests import InvalidInput
from mixtures.life import Life
from mixtures.making import Raw

CPU_SECONDS = 10.0
"""A life takes a tenth of a second; one in which a second takes this long hangs. All together may
take longer where much happens: a bound on the sum would find the slowest lives when the machine is
slow."""

QUIET = 60
"""Seconds after the end of a life, in which what waits for nothing is found."""

_OBJECT = re.compile(r"\b(Pod|Node|Reservation|PodGroup|PersistentVolume\w*)/\S+")
_VARIES = re.compile(r"'[^']*'|\[[^]]*\]|\b\S*\d\S*")


@dataclass
class Outcome:
    problems: list[str] = field(default_factory=list)
    """Empty if all rules hold."""
    stories: list[str] = field(default_factory=list)
    kind: str = ""
    """What the first problem is about, whatever the names and figures."""
    refused: set[int] = field(default_factory=set)
    """Documents that had no effect: what they ask for was impossible then."""
    invalid: bool = False
    """Whether the documents are no scenario at all."""
    text: str = ""
    """The run as `simulate -o json` prints it."""


class Hang(BaseException):
    """The scheduler does not return. No exception a plugin may raise: those are caught."""


class _Lenient(Simulation):
    """In which a step that is refused is left out."""

    def __init__(self, documents: list[Raw], config: Raw, *, audit: bool) -> None:
        listed = [Document("life.yaml", i, i, each) for i, each in enumerate(documents)]
        super().__init__(read_scenario(listed), SchedulerFactory.of(config), audit=audit)
        self.left_out: set[int] = set()

    def refused(self, planned: ScenarioAction, error: InvalidObject) -> None:
        self.left_out.add(planned.origin.number)

    def run_within(self, cpu_seconds: float, until: float) -> Result:
        """Raises Hang if a second of the life takes longer than that."""
        second = -1.0

        def get_on(t: float, moments: int, queued: int) -> None:
            nonlocal second
            if t >= second + 1:
                second = t
                signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds)

        return self.run(until, get_on)


def play(life: Life, *, keep_text: bool = False, cpu_seconds: float = CPU_SECONDS) -> Outcome:
    return play_documents(
        life.documents, life.config, life.until, keep_text=keep_text, cpu_seconds=cpu_seconds
    )


def play_documents(
    documents: list[Raw],
    config: Raw,
    until: int,
    *,
    keep_text: bool = False,
    cpu_seconds: float = CPU_SECONDS,
) -> Outcome:
    outcome = Outcome()
    simulation: _Lenient | None = None
    try:
        with _bounded(cpu_seconds):
            simulation = _Lenient(documents, config, audit=True)
            result = simulation.run_within(cpu_seconds, float(until + QUIET))
            if keep_text:
                outcome.text = to_json([(None, result)])
    except InvalidInput as error:
        outcome.problems, outcome.invalid = error.problems, True
        outcome.kind = "invalid"
    except InvariantBroken as error:
        outcome.problems = [f"{problem} (at {error.t:g}s)" for problem in error.problems]
        outcome.stories, outcome.kind = error.stories, kind_of(error.problems[0])
    except Hang:
        outcome.problems, outcome.kind = [f"no answer within {cpu_seconds:g} s of CPU"], "hang"
    except Exception as error:  # whatever the scheduler raises is what is looked for
        outcome.problems = traceback.format_exception(error)
        outcome.kind = _place_of(error)
    if simulation is not None:
        outcome.refused = simulation.left_out
    return outcome


def kind_of(problem: str) -> str:
    """The problem without names and figures."""
    return _VARIES.sub("…", _OBJECT.sub(r"\1", problem))


def _place_of(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.filename.rpartition('/')[2]} {frame.name}"


@contextmanager
def _bounded(cpu_seconds: float) -> Iterator[None]:
    """Raises Hang after so much time of this process, however busy the machine is; the timer may be set
    again meanwhile."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)

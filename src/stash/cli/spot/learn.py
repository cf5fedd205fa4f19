"""``stash spot learn``: a job in, a curve of its loss out, replayed on this machine without any fleet."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag, option, seconds_of
from stash.cli.spot.words import JSON_HELP, told

if TYPE_CHECKING:
    from stash.elastic.learning.curve import ReplayMoment

JOB_HELP = "File and name of a stash.spot.Job, like job.py:job."
WORKERS_HELP = "Sizes of the fleets that are replayed."
BATCHES_HELP = "Samples of a worker's iteration; else the job's batch, twice and four times that."
UPDATES_HELP = "Of each replay; else as many as the budget allows."
BOUND_HELP = "Stale-synchronous: iterations that a worker may be ahead of the slowest; else any number."
_TIMES = (1, 2, 4)
"""The job's batch: a worker of several GPUs has several batches."""
_MOST = 256


def learn(
    job: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help=JOB_HELP, show_default=False)],
    output: Annotated[Path | None, option("FILE", "Where the curve goes.", "--output", "-o")] = None,
    workers: Annotated[str, option("N,…", WORKERS_HELP)] = "1,2,4,8",
    batches: Annotated[str | None, option("B,…", BATCHES_HELP)] = None,
    budget: Annotated[str, option("TIME", "What all replays may take.")] = "10min",
    updates: Annotated[int | None, option("N", UPDATES_HELP)] = None,
    bound: Annotated[int | None, option("S", BOUND_HELP, least=0)] = None,
    profile: Annotated[
        Path | None, option("FILE", "A profile of the job: it is checked that both train one model.")
    ] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Learn how a job's loss falls with workers and batches, from short runs on this machine.

    Fleets are replayed in virtual time: the same stale gradients in the same order, on one device.

    Ctrl-C keeps what was replayed.

    stash spot learn job.py:job -o job.curve.json
    """
    from stash.base.records.base import now
    from stash.base.spot.curve import CURVE_SUFFIX
    from stash.base.version import __version__
    from stash.cli.output import output_file, printed
    from stash.derive.spot.pool.from_profile import same_model
    from stash.elastic.job import load_job
    from stash.elastic.learning.curve import LEAST_UPDATES, LearnWish, parameters_of
    from stash.elastic.learning.curve import learn as learned
    from stash.keep.artefact import load
    from stash.keep.curves import save_curve
    from stash.show.spot.learned import document, render, view

    seconds = seconds_of("--budget", budget)
    sizes = _numbers("--workers", workers, _MOST)
    if updates is not None and updates < LEAST_UPDATES:
        raise UserError(f"--updates {updates}: {LEAST_UPDATES} are the least that show a course")
    parts = load_job(job)
    target = output_file(output, Path(job.rpartition(":")[0]).stem, CURVE_SUFFIX)
    many = tuple(parts.batch * times for times in _TIMES) if batches is None else _numbers("--batches", batches)
    if profile is not None:
        same_model(load(profile), str(profile), parameters_of(parts, job), job)
    wish = LearnWish(sizes, many, seconds, updates, bound)
    progress = ReplayProgress()
    try:
        curve = learned(parts, job, wish, __version__, now(), progress.show)
    finally:
        progress.end()
    save_curve(curve, target)
    printed(document(curve) if json else view(curve), render)
    told(f"Saved {target}.", json)
    told(f"Plan with it: stash spot plan PROFILE --curve {shlex.quote(str(target))} --deadline 6h --loss LOSS", json)


def _numbers(option: str, text: str, most: int = 2**31) -> tuple[int, ...]:
    """Of ``1,2,4``, each once, smallest first; raises UserError."""
    found = set()
    for word in text.split(","):
        digits = word.strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) < 11 and 0 < int(digits) <= most):
            raise UserError(
                f"{option} {text!r} cannot be read at {digits!r}; write numbers from 1 to {most:,}, like 1,2,4"
            )
        found.add(int(digits))
    return tuple(sorted(found))


class ReplayProgress:
    """One line on a terminal that is written anew; in a log a line for each replay. On standard error."""

    _PAUSE = 0.5

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._next, self._number, self._width = 0.0, 0, 0

    def show(self, moment: ReplayMoment) -> None:
        now = time.monotonic()
        if self._live and now >= self._next:
            self._next = now + self._PAUSE
            line = _line(moment)[: shutil.get_terminal_size().columns - 1]
            sys.stderr.write("\r" + line.ljust(self._width))
            self._width = len(line)
            sys.stderr.flush()
        elif not self._live and moment.number != self._number:
            self._number = moment.number
            print(_line(moment), file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()


def _line(moment: ReplayMoment) -> str:
    from stash.base.words.counting import counted
    from stash.base.words.rental import span

    fleet = f"{counted(len(moment.fleet), 'worker')} x {moment.fleet[0].samples}"
    return (
        f"replay {moment.number} of {moment.replays}, {span(max(moment.seconds_left, 0.0))} left: {fleet}, "
        f"update {moment.update:,} of {moment.updates:,}, loss {moment.loss:.4g}"
    )

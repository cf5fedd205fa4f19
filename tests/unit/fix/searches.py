"""Searches of changes on simulated jobs, whose launches take no time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stash.fix.screening import find_changes
from stash.fix.script_changes import ScriptChange
from stash.fix.search_state import Search, begin_search, run_search
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.trials import TrialRun

LOADER = {
    "num_workers": 0,
    "prefetch_factor": None,
    "pin_memory": False,
    "persistent_workers": False,
    "iterable": False,
    "same_data": 1,
}
"""What a loader was called with, as it is recorded."""
LAUNCH = 8.0
"""Seconds."""
Turns = Callable[..., tuple[list[dict[int, float]], TrialRun]]
StepSeconds = Callable[[frozenset[str]], float]
Noise = Callable[[], float]


class Job:
    """A script whose step takes ``step(names of changes)`` seconds, with noise; each launch takes ``LAUNCH``.

    What ``breaks`` names fails, what ``other_losses`` names trains something else, and a Ctrl-C comes at
    ``interrupt_at``.
    """

    def __init__(
        self, step: StepSeconds, noise: float = 0.005, breaks: Mapping[str, str] | None = None
    ) -> None:
        self.step, self.noise, self.breaks = step, noise, breaks or {}
        self.random = np.random.default_rng(3)
        self.now = 0.0
        self.launched: list[frozenset[str]] = []
        self.interrupt_at = float("inf")
        self.other_losses: set[str] = set()

    def run(self, changes: Sequence[ScriptChange], steps: int | None = None) -> TrialRun:
        """One launch."""
        names = frozenset(each.name for each in changes)
        self.launched.append(names)
        self.now += LAUNCH
        if self.now > self.interrupt_at:
            raise KeyboardInterrupt
        for name in names & self.breaks.keys():
            return TrialRun(None, elapsed_seconds=LAUNCH, failure=Diagnosis(self.breaks[name]))
        seconds = self.step(names) * float(np.exp(self.random.normal(0, self.noise)))
        loss = 2.0 if names & self.other_losses else 1.0
        evidence = ({"losses": [loss.hex()] * 10, "batches": list(range(10)), "epochs": []},)
        return TrialRun(seconds, steps=30, elapsed_seconds=LAUNCH, evidence=evidence)


def change(name: str, forecast: float | None = None, **fields: Any) -> ScriptChange:
    return ScriptChange(
        name, fields.pop("knob", name.partition("=")[0]), name, forecast=forecast, **fields
    )


def search_job(
    job: Job,
    *changes: ScriptChange,
    within: float = 600.0,
    turns: Turns | None = None,
    first: TrialRun | None = None,
    allowed: frozenset[str] = frozenset(),
) -> Search:
    first = first or job.run([])
    until = job.now + within
    search = begin_search(changes, first, within, takes_turns=turns is not None, allowed=allowed)
    stages = find_changes(search)
    run_search(search, stages, job.run, turns or play_turns(job), lambda: until - job.now)
    return search


def standing(search: Search) -> dict[str, str]:
    return {each.change.name: each.standing for each in search.candidates.values()}


def workers(*numbers: int, **fields: Any) -> list[ScriptChange]:
    """A loader's numbers of workers."""
    return [
        change(f"workers={n}", settings={"loader": {"num_workers": n, "site": "x"}}, **fields)
        for n in numbers
    ]


def flags(*names: str, **fields: Any) -> list[ScriptChange]:
    return [change(name, settings={"flags": {name: True}}, **fields) for name in names]


def play_turns(
    job: Job, *rows: Sequence[float], takes: float = 20.0, asked: list[Any] | None = None
) -> Turns:
    """One launch of ``takes`` seconds whose turns are these rows; ``asked`` gets what is set in them."""

    def turns(
        rungs: Sequence[Mapping[str, Any]], rounds: int, stays: Sequence[ScriptChange]
    ) -> tuple[list[dict[int, float]], TrialRun]:
        job.now += takes
        if asked is not None:
            asked.append(rungs)
        return [dict(enumerate(row)) for row in rows], TrialRun(None)

    return turns


def one_launch(job: Job, noise: float = 0.005) -> Turns:
    """Settings in turns, as the job's step has it; a launch of them takes as long as any."""

    def turns(
        rungs: Sequence[Mapping[str, Any]], rounds: int, stays: Sequence[ScriptChange]
    ) -> tuple[list[dict[int, float]], TrialRun]:
        job.now += LAUNCH
        always = {each.name for each in stays}
        on = [frozenset({*rung.get("flags", {}), *always}) for rung in rungs]
        rows = [
            {
                index: job.step(names) * float(np.exp(job.random.normal(0, noise)))
                for index, names in enumerate(on)
            }
            for _ in range(rounds)
        ]
        return rows, TrialRun(None)

    return turns

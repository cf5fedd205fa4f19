"""Searches of changes on simulated jobs, whose launches take no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.fix.simulated import SimulatedJob, StepSeconds
from stash.fix.change_search import Search
from stash.fix.script_changes import ScriptChange
from stash.fix.tries import Candidate
from stash.fix.turns import Turns
from stash.measure.launcher.trials import TrialRun

LAUNCH = 8.0
"""Seconds."""


class Job(SimulatedJob):
    """A script whose step takes ``step(names of changes)`` seconds, with noise; each launch takes ``LAUNCH``."""

    def __init__(self, step: StepSeconds, noise: float = 0.005, breaks: Mapping[str, str] | None = None) -> None:
        super().__init__(step, lambda: float(self.random.normal(0, noise)), LAUNCH, breaks)
        self.random = np.random.default_rng(3)


def change(name: str, forecast: float | None = None, **fields: Any) -> ScriptChange:
    return ScriptChange(name, fields.pop("knob", name.partition("=")[0]), name, forecast=forecast, **fields)


def searched(job: Job, *changes: ScriptChange, within: float = 600.0, **options: Any) -> Search:
    first = job.run([])
    search = Search([Candidate(each) for each in changes], job.run, job.clock, within, first, **options)
    search.search()
    return search


def standing(search: Search) -> dict[str, str]:
    return {each.change.name: each.standing for each in search.candidates}


def one_launch(job: Job, noise: float = 0.005) -> Turns:
    """Settings in turns, as the job's step has it; a launch of them takes as long as any."""

    def turns(rungs: Sequence[Mapping[str, Any]], rounds: int) -> tuple[list[dict[int, float]], TrialRun]:
        job.now += LAUNCH
        on = [frozenset(rung.get("flags", {})) for rung in rungs]
        rows = [
            {index: job.step(names) * float(np.exp(job.random.normal(0, noise))) for index, names in enumerate(on)}
            for _ in range(rounds)
        ]
        return rows, TrialRun(None)

    return turns

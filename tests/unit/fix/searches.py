"""Searches of changes on simulated jobs, whose launches take no time."""

import numpy as np

from stash.fix.screening import find_changes
from stash.fix.script_changes import ScriptChange
from stash.fix.search_state import begin_search, run_search
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


class Job:
    """A script whose step takes ``step(names of changes)`` seconds, with noise; each launch takes ``LAUNCH``.

    What ``breaks`` names fails, what ``other_losses`` names trains something else, and a Ctrl-C comes at
    ``interrupt_at``.
    """

    def __init__(self, step, noise=0.005, breaks=None):
        self.step, self.noise, self.breaks = step, noise, breaks or {}
        self.random = np.random.default_rng(3)
        self.now = 0.0
        self.launched = []
        self.interrupt_at = float("inf")
        self.other_losses = set()

    def run(self, changes, steps=None):
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


def change(name, forecast=None, **fields):
    return ScriptChange(
        name, fields.pop("knob", name.partition("=")[0]), name, forecast=forecast, **fields
    )


def search_job(
    job,
    *changes,
    within=600.0,
    turns=None,
    first=None,
    allowed=frozenset(),
):
    first = first or job.run([])
    until = job.now + within
    search = begin_search(changes, first, within, takes_turns=turns is not None, allowed=allowed)
    stages = find_changes(search)
    run_search(search, stages, job.run, turns or play_turns(job), lambda: until - job.now)
    return search


def standing(search):
    return {each.change.name: each.standing for each in search.candidates.values()}


def workers(*numbers, **fields):
    """A loader's numbers of workers."""
    return [
        change(f"workers={n}", settings={"loader": {"num_workers": n, "site": "x"}}, **fields)
        for n in numbers
    ]


def flags(*names, **fields):
    return [change(name, settings={"flags": {name: True}}, **fields) for name in names]


def play_turns(job, *rows, takes=20.0, asked=None):
    """One launch of ``takes`` seconds whose turns are these rows; ``asked`` gets what is set in them."""

    def turns(rungs, rounds, stays):
        job.now += takes
        if asked is not None:
            asked.append(rungs)
        return [dict(enumerate(row)) for row in rows], TrialRun(None)

    return turns


def one_launch(job, noise=0.005):
    """Settings in turns, as the job's step has it; a launch of them takes as long as any."""

    def turns(rungs, rounds, stays):
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

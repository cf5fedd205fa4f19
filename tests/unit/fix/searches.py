"""Searches of changes on simulated jobs, whose launches take no time."""

import numpy as np

from stash.fix.change_search import find_changes
from stash.fix.fix_search import Candidate, Search
from stash.fix.script_changes import ScriptChange
from stash.fix.time_budget import TimeBudget
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.trials import TrialRun

LAUNCH = 8.0
"""Seconds."""


class SimulatedJob:
    """A script whose step takes ``step(names of changes)`` seconds, times ``exp(noise())``.

    ``clock`` goes on by ``launch`` seconds each time; what ``breaks`` names fails, what ``other_losses`` names trains
    something else, and a Ctrl-C comes at ``interrupt_at``.
    """

    def __init__(
        self,
        step,
        noise,
        launch,
        breaks=None,
    ):
        self.step, self.noise, self.seconds, self.breaks = step, noise, launch, breaks or {}
        self.now = 0.0
        self.launched = []
        self.interrupt_at = float("inf")
        self.other_losses = set()

    def clock(self):
        return self.now

    def run(self, changes, steps=None):
        """One launch."""
        names = frozenset(each.name for each in changes)
        self.launched.append(names)
        self.now += self.seconds
        if self.now > self.interrupt_at:
            raise KeyboardInterrupt
        for name in names & self.breaks.keys():
            return TrialRun(
                None, elapsed_seconds=self.seconds, failure=Diagnosis(self.breaks[name])
            )
        seconds = self.step(names) * float(np.exp(self.noise()))
        loss = 2.0 if names & self.other_losses else 1.0
        evidence = ({"losses": [loss.hex()] * 10, "batches": list(range(10)), "epochs": []},)
        return TrialRun(seconds, steps=30, elapsed_seconds=self.seconds, evidence=evidence)


class Job(SimulatedJob):
    """A script whose step takes ``step(names of changes)`` seconds, with noise; each launch takes ``LAUNCH``."""

    def __init__(self, step, noise=0.005, breaks=None):
        super().__init__(step, lambda: float(self.random.normal(0, noise)), LAUNCH, breaks)
        self.random = np.random.default_rng(3)


def change(name, forecast=None, **fields):
    return ScriptChange(
        name, fields.pop("knob", name.partition("=")[0]), name, forecast=forecast, **fields
    )


def run_search(job, *changes, within=600.0, **options):
    first = job.run([])
    search = Search(
        [Candidate(each) for each in changes],
        job.run,
        TimeBudget(within, job.clock),
        first,
        **options,
    )
    find_changes(search)
    return search


def standing(search):
    return {each.change.name: each.standing for each in search.candidates}


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

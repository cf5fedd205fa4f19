"""Climb the ladder: decide what to launch next, and when what was measured is kept.

The first launch tries to measure every rung in one run. If the agents find that switching is unsafe, or one
rank stepping alone hangs, the rungs get launches of their own (``isolated``). A script whose loop ends early
is started again until the rounds suffice.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stash.base.errors import JobError, UserError
from stash.base.records import Profile
from stash.measure.host.describe import count_gpus, describe
from stash.measure.launch import isolated
from stash.measure.launch.diagnose import MARK_STEPS, Diagnosis
from stash.measure.launch.engines.base import Cluster
from stash.measure.launch.gathered import Gathered
from stash.measure.launch.job import Job
from stash.measure.launch.launches import Launches, Member, StartedProcess
from stash.measure.launch.measurement import Measurement, Timer
from stash.measure.launch.process import Process, free_folder
from stash.measure.launch.request import Request
from stash.measure.launch.wishes import Result, Watcher, Wishes
from stash.measure.run.folder import RunFolder

_MOST_LAUNCHES = 20
_OVERTURE, _VISITS = 16, 8
"""Steps of warm-up and trial, and blocks of a round, when a loop's few steps are to be shared out."""


class Expedition:
    """One ``stash profile``; ``clock`` and ``start`` (of a launch's processes) can be replaced by a test's own."""

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        wishes: Wishes,
        *,
        clock: Timer = time,
        start: Callable[[Request, RunFolder], StartedProcess] = Process,
    ) -> None:
        host = describe(Path(job.data or wishes.data_root or "."))
        self.measurement = Measurement(job, cluster, wishes, host, count_gpus(), clock)
        shown = Path(tempfile.gettempdir()) / f"stash-{os.getpid()}"  # a name, until something is run
        self.launches = Launches(self.measurement, shown, os.getpid(), start)
        self._most_steps: int | None = None

    @property
    def job(self) -> Job:
        return self.measurement.job

    def request(self) -> Request:
        """The command of the first launch; raises UserError for what cannot be started."""
        return self.launches.request(RunFolder(self.launches.folder).orders)

    def run(self, watcher: Watcher = lambda moment: None) -> Result:
        """Measure until precise, out of budget, interrupted or failed; never raises for what the job does."""
        self.launches.folder, self.launches.watcher = free_folder(), watcher
        try:
            result = self._run()
        except KeyboardInterrupt:
            result = self._result("interrupted", None, interrupted=True)
        if result.failure is None or result.failure.users_mistake:
            shutil.rmtree(self.launches.folder, ignore_errors=True)
            return result
        return replace(result, log=self.launches.log())

    def _run(self) -> Result:
        m = self.measurement
        if m.wishes.isolate:
            return self._isolate("asked for (--isolate)")
        while True:
            failure = self.launches.run(Member(self.launches.orders(self.launches.folder, self._most_steps)))
            gathered = m.gathered
            if gathered.unsafe is not None:
                return self._isolate(gathered.unsafe)
            if failure is not None and self._give_up_resident(failure):
                continue
            if failure is not None:
                return self._result("failed", failure)
            if not gathered.led:
                return self._without_leader()
            if gathered.end == "no rungs":
                return self._result("failed", self._nothing_to_measure())
            if gathered.end == "script ended" and self._shorten_blocks():
                continue
            if gathered.end != "script ended" or m.enough() or not self._worth_another():
                return self._result(m.ended(), self._too_short())
            gathered.notes.append("the training loop ended before the schedule did; the job was started again")

    def _isolate(self, why: str) -> Result:
        m = self.measurement
        m.isolated = why
        m.gathered.skipped.clear()
        m.gathered.rungs = ()
        m.gathered.blocks.clear()
        failure = isolated.climb(m, self.launches)
        return self._result("failed" if failure else m.ended(), failure)

    def _without_leader(self) -> Result:
        if self.launches.steps():
            return Result(None, None, elsewhere=True)
        return self._result("failed", self._no_training())

    def _give_up_resident(self, failure: Diagnosis) -> bool:
        """After a script failed over batches that were on the device already: whether to go on without that rung."""
        m = self.measurement
        gathered, wishes = m.gathered, m.wishes
        at_fault = gathered.phase.name == "resident" and gathered.rounds == 0 and gathered.end != "node lost"
        if not at_fault or "resident" not in wishes.rungs or m.cluster.nnodes > 1:
            return False
        m.wishes = replace(wishes, rungs=tuple(r for r in wishes.rungs if r != "resident"))
        m.gathered = Gathered()
        m.gathered.excused["resident"] = (
            f"the script does not take batches already on the device ({failure.sentence})"
        )
        return True

    def _nothing_to_measure(self) -> Diagnosis:
        wanted = self.measurement.wishes.rungs
        skipped = self.measurement.gathered.skipped.items()
        reasons = "; ".join(f"{name}: {why}" for name, why in skipped if name in wanted)
        return Diagnosis(f"none of the rungs asked for can be measured on this job ({reasons})", users_mistake=True)

    def _no_training(self) -> Diagnosis:
        return Diagnosis(
            f"{self.job.title} ended without a training step: Stash counts steps of torch.optim optimizers, else "
            f"backward passes whose gradients are used, and saw neither; if it trains, {MARK_STEPS}",
            self.launches.last_words(),
        )

    def _shorten_blocks(self) -> bool:
        """After a loop that ended before its first round: whether shorter blocks would fit into it."""
        m = self.measurement
        if self._most_steps is not None or m.cluster.nnodes > 1 or m.complete_rounds():
            return False
        self._most_steps = int((self.launches.steps() - _OVERTURE) / _VISITS / 2)
        return self._most_steps >= 1

    def _worth_another(self) -> bool:
        m = self.measurement
        return (
            m.cluster.nnodes == 1
            and m.complete_rounds() > 0
            and m.launches < _MOST_LAUNCHES
            and m.spent() < m.wishes.budget
        )

    def _too_short(self) -> Diagnosis | None:
        if self.measurement.complete_rounds():
            return None
        return Diagnosis(
            f"the training loop of {self.job.title} ended after {self.launches.steps()} steps, before one round was "
            "measured; let it train longer (more steps or epochs), or measure fewer rungs (--rungs solo,node)"
        )

    def _result(self, ended: str, failure: Diagnosis | None, interrupted: bool = False) -> Result:
        m = self.measurement
        return Result(m.profile(ended) if m.complete_rounds() else None, failure, interrupted)


def measure(job: Job, cluster: Cluster, wishes: Wishes) -> Profile:
    """Profile ``job`` and return the artefact; raises JobError when nothing could be measured."""
    result = Expedition(job, cluster, wishes).run()
    if result.profile is not None:
        return result.profile
    if result.interrupted:
        raise UserError("interrupted before the first round was measured")
    if result.failure is None:
        raise JobError("rank 0 ran on another node: the profile is there")
    raise JobError(f"{result.failure.own_words}\n{result.failure.sentence}".strip())

"""Climb the ladder: start the job, follow what its agents stream, say when it is enough, keep what was measured.

The first launch tries to measure every rung in one run. If the agents find that switching is unsafe, or one
rank stepping alone hangs, the rungs get launches of their own (``isolated``). A script whose loop ends early
is started again until the rounds suffice.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stash.base.errors import JobError, UserError
from stash.base.records import Host, Profile, Settings, Workload
from stash.base.stats import rounds as stats
from stash.derive.stalls import StepTimes, step_matrix
from stash.measure.host.describe import count_gpus, describe
from stash.measure.launch import isolated
from stash.measure.launch.diagnose import Diagnosis, Evidence, diagnose, fell_silent, own_output
from stash.measure.launch.gathered import Tail, Trace
from stash.measure.launch.job import Job
from stash.measure.launch.peers import Peers
from stash.measure.launch.process import Process, free_folder, own_pid
from stash.measure.launch.request import Cluster, Request, request
from stash.measure.launch.wishes import Member, Moment, Result, Running, Wishes
from stash.measure.run.orders import Plan
from stash.measure.run.stream import copy_path

_TICK = 0.1
_ROLL_CALL = 3.0
"""Seconds between looks at the ranks' signs of life; they need the cores more."""
_MIN_ROUNDS = 3
_SILENCE = 60.0
_ALONE = {"resident", "solo", "catch-up", "crowd", "node"}
_MOST_LAUNCHES = 20
_OVERTURE, _VISITS = 16, 8
"""Steps of warm-up and trial, and blocks of a round, when a loop's few steps are to be shared out."""


Watcher = Callable[[Moment], None]


class Expedition:
    """One ``stash profile``: its folder, its launches, and everything they streamed."""

    def __init__(self, job: Job, cluster: Cluster, wishes: Wishes, watcher: Watcher | None = None) -> None:
        self.job, self.cluster, self.wishes = job, cluster, wishes
        self.watcher = watcher or (lambda moment: None)
        self.folder = Path(tempfile.gettempdir()) / f"stash-{own_pid()}"
        self.trace = Trace()
        self.gpus = count_gpus()
        self.host: Host = describe(Path(job.data or wishes.data_root or "."))
        self.started = time.monotonic()
        self.launches = 0
        self.isolated = False
        self.why = "scope switched inside one launch"
        self._first_step: float | None = None
        self._most_steps: int | None = None

    # Describing ---------------------------------------------------------------------------------------

    def request(
        self, plan: Plan | None = None, cluster: Cluster | None = None, launch: Path | None = None
    ) -> Request:
        """The command of one launch; its plan is written if the launch has a folder already."""
        path = (launch or self.folder) / "plan.json"
        if launch is not None:
            (plan or self.plan(launch)).write(path)
        return request(self.job, cluster or self.cluster, path, self.host.cores or 1, self.gpus)

    def plan(self, folder: Path) -> Plan:
        """The orders for a launch that climbs the whole ladder."""
        return Plan(
            folder=str(folder),
            launcher_pid=own_pid(),
            rungs=self.wishes.rungs,
            budget=self.wishes.budget,
            launch=self.launches,
            most_steps=self._most_steps,
            first_round=1 + max((block.round for block in self.trace.blocks), default=-1),
            may_isolate=self.job.kind != "command" and not self.cluster.inherited and self.cluster.nnodes == 1,
            pin=self.gpus == 0 and self.job.kind != "command" and self.cluster.nproc > 1,
            data_root=self.wishes.data_root,
            host=self.host.model_dump(mode="json"),
        )

    def profile(self, ended: str) -> Profile:
        """The artefact of everything streamed so far."""
        settings = Settings(
            precision=self.wishes.precision,
            budget_seconds=self.wishes.budget,
            rungs=self.trace.rungs,
            isolated=self.isolated,
            why=self.why,
            launches=max(1, self.launches),
        )
        workload = Workload(command=self.job.command, name=self.job.title)
        return self.trace.profile(settings, workload, ended, time.monotonic() - self.started)

    # Climbing -----------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Measure until precise, out of budget, interrupted or failed; never raises for what the job does."""
        self.folder = free_folder()
        try:
            result = self._run()
        except KeyboardInterrupt:
            result = self._result("interrupted", None, interrupted=True)
        if result.failure is None or result.failure.users_mistake:
            shutil.rmtree(self.folder, ignore_errors=True)
            return result
        return replace(result, log=self._last.log)

    def _run(self) -> Result:
        if self.wishes.isolate:
            return self._isolate("asked for (--isolate)")
        while True:
            failure = self.launch()
            if self.trace.unsafe is not None:
                return self._isolate(self.trace.unsafe)
            if failure is not None and self._give_up_resident(failure):
                continue
            if failure is not None:
                return self._result("failed", failure)
            if not self.trace.led:
                return self._without_leader()
            if self.trace.end == "no rungs":
                return self._result("failed", self._nothing_to_measure())
            if self.trace.end == "script ended" and self._shorten_blocks():
                continue
            if self.trace.end != "script ended" or self.done() or not self._worth_another():
                return self._result(self._ended(), self._too_short())
            self.trace.notes.append("the training loop ended before the schedule did; the job was started again")

    def _isolate(self, why: str) -> Result:
        self.isolated, self.why = True, why
        self.trace.skipped.clear()
        self.trace.rungs = ()
        self.trace.blocks.clear()
        failure = isolated.climb(self)
        return self._result("failed" if failure else self._ended(), failure)

    def _without_leader(self) -> Result:
        if self._last.heartbeats():
            return Result(None, None, elsewhere=True)
        return self._result("failed", self._no_training())

    def _give_up_resident(self, failure: Diagnosis) -> bool:
        """After a script failed over batches that were on the device already: whether to go on without that rung."""
        at_fault = self.trace.phase[0] == "resident" and self.trace.rounds == 0 and self.trace.end != "node lost"
        if not at_fault or "resident" not in self.wishes.rungs or self.cluster.nnodes > 1:
            return False
        self.wishes = replace(self.wishes, rungs=tuple(r for r in self.wishes.rungs if r != "resident"))
        self.trace = Trace()
        self.trace.excused["resident"] = (
            f"the script does not take batches already on the device ({failure.sentence})"
        )
        return True

    def _nothing_to_measure(self) -> Diagnosis:
        reasons = "; ".join(f"{name}: {why}" for name, why in self.trace.skipped.items() if name in self.wishes.rungs)
        return Diagnosis(f"none of the rungs asked for can be measured on this job ({reasons})", users_mistake=True)

    def _no_training(self) -> Diagnosis:
        return Diagnosis(
            f"{self.job.title} ended without a training step: Stash counts steps of torch.optim optimizers, "
            "and none was taken",
            own_output(self._log()),
        )

    def _shorten_blocks(self) -> bool:
        """After a loop that ended before its first round: whether shorter blocks would fit into it."""
        if self._most_steps is not None or self.cluster.nnodes > 1 or len(self.ladder().rounds):
            return False
        steps = max((s for _, s, _ in self._last.heartbeats().values()), default=0)
        self._most_steps = int((steps - _OVERTURE) / _VISITS / 2)
        return self._most_steps >= 1

    def _worth_another(self) -> bool:
        measured = len(self.ladder().rounds)
        return (
            self.cluster.nnodes == 1
            and measured > 0
            and self.launches < _MOST_LAUNCHES
            and self.spent() < self.wishes.budget
        )

    def _too_short(self) -> Diagnosis | None:
        if len(self.ladder().rounds):
            return None
        steps = max((s for _, s, _ in self._last.heartbeats().values()), default=0)
        return Diagnosis(
            f"the training loop of {self.job.title} ended after {steps} steps, before one round was measured; "
            "let it train longer (more steps or epochs), or measure fewer rungs (--rungs solo,node)"
        )

    def _result(self, ended: str, failure: Diagnosis | None, interrupted: bool = False) -> Result:
        has_rounds = bool(self.trace.ranks) and len(self.ladder().rounds) > 0
        return Result(self.profile(ended) if has_rounds else None, failure, interrupted)

    def _ended(self) -> str:
        if self.trace.end == "script ended":
            return "script ended"
        ladder = self.ladder()
        enough = len(ladder.rounds) >= _MIN_ROUNDS and stats.precise_enough(ladder.matrix, self.wishes.precision)
        return "precision" if enough else "budget"

    def launch(self, members: Sequence[Member] = ()) -> Diagnosis | None:
        """Run one launch (or several side by side) to its end; the value says why it failed, if it did."""
        running = [self._start(member) for member in members or (Member(),)]
        self.launches += 1
        begun = called = time.time()
        try:
            while self._alive(running):
                for each in running:
                    self._follow(each)
                if time.time() - called > _ROLL_CALL:
                    called = time.time()
                    if (lost := self._lost(running)) is not None:
                        return lost
                    silence = self._silence(running, begun)
                    if silence is not None:
                        return self._hung(running, silence)
                if any(self._broken(each) for each in running):
                    break
                time.sleep(_TICK)
            if any(self._broken(each) for each in running) and (lost := self._lost(running)) is not None:
                return lost  # its end broke the connections of our ranks
        finally:
            for each in running:
                each.process.stop()
                if each.peers is not None:
                    each.peers.close()
                self._take(each)
        return next((self._diagnosis(each.process) for each in running if self._broken(each)), None)

    def _start(self, member: Member) -> Running:
        folder = self.folder / f"launch-{self.launches}-{member.offset}"
        folder.mkdir()
        plan = member.plan or self.plan(folder)
        plan = replace(plan, folder=str(folder), launch=self.launches)
        asked = self.request(plan, member.cluster, folder)
        asked = replace(asked, variables={**asked.variables, **member.variables})
        alone = self.cluster.nnodes == 1 and not self.cluster.inherited and self.job.kind != "command"
        peers = None if alone else Peers(folder)
        self._last = Process(asked, folder)
        return Running(self._last, plan, Tail(plan.trace), peers, member.offset)

    def _alive(self, running: list[Running]) -> bool:
        return any(each.process.poll() is None for each in running)

    def _broken(self, each: Running) -> bool:
        """Whether it ended without having said so."""
        code = each.process.poll()
        if code is None or each.ended:
            return False
        return code != 0 or each.plan.trace.exists()

    def _take(self, each: Running) -> list[dict[str, Any]]:
        rows = each.tail.rows()
        for row in rows:
            each.ended = each.ended or row["kind"] == "end"
            self.trace.take(dict(row), each.offset)
        return rows

    def _follow(self, each: Running) -> None:
        rows = self._take(each)
        if self._first_step is None and self.trace.phase[0] != "starting":
            self._first_step = time.monotonic()
        finished = any(row["kind"] == "round" for row in rows)
        enough = (finished and self.done()) or (self.spent() > self.wishes.budget and self.trace.rounds > 0)
        if enough and each.plan.rounds is None:
            each.plan.stop.touch()
        if rows:
            self.watcher(self.moment(finished))

    def moment(self, round_finished: bool) -> Moment:
        """What there is to show now."""
        name, number = self.trace.phase
        profile = self.profile("measuring") if round_finished else None
        return Moment(name, number, self.spent(), profile)

    def ladder(self) -> StepTimes:
        """The complete rounds so far."""
        return step_matrix(self.profile("measuring"))

    def spent(self) -> float:
        """Seconds since the first training step."""
        return 0.0 if self._first_step is None else time.monotonic() - self._first_step

    def done(self) -> bool:
        """Whether enough rounds were measured, or the budget is gone."""
        ladder = self.ladder()
        if len(ladder.rounds) < _MIN_ROUNDS:
            return self.spent() > self.wishes.budget and len(ladder.rounds) > 0
        return self.spent() > self.wishes.budget or stats.precise_enough(ladder.matrix, self.wishes.precision)

    # When things go wrong -----------------------------------------------------------------------------

    def _silence(self, running: list[Running], begun: float) -> float | None:
        """Seconds without a step of any rank, if there were too many of them."""
        signs = [sign for each in running if (sign := each.process.last_sign_of_life()) is not None]
        quiet = time.time() - max(signs, default=begun)
        limit = max(_SILENCE, self.wishes.budget) if signs else self.wishes.patience
        return quiet if quiet > limit else None

    def _lost(self, running: list[Running]) -> Diagnosis | None:
        """What to say when another node is gone; the profile then rests on what this node knows of the rounds."""
        for each in running:
            if each.peers is None:
                continue
            each.peers.greet()
            silence = each.peers.silence(each.process.last_sign_of_life())
            if silence is None:
                continue
            each.peers.tell(silence)
            self._take(each)
            if not self.trace.led:
                for row in Tail(copy_path(each.process.folder)).rows():
                    self.trace.take(row, each.offset)
            steps = max((count for _, count, _ in each.process.heartbeats().values()), default=0)
            failure = fell_silent(silence.nodes, silence.since, steps)
            self.trace.notes.append(failure.sentence)
            self.trace.end = "node lost"
            return failure
        return None

    def _hung(self, running: list[Running], silence: float) -> Diagnosis | None:
        beats = {rank: beat for each in running for rank, beat in each.process.heartbeats().items()}
        if not beats:
            return Diagnosis(
                f"{self.job.title} took no optimizer step within {silence:.0f} s; if it needs longer to start, "
                "give it more with --patience SECONDS",
                own_output(self._log()),
            )
        may_isolate = running[0].plan.may_isolate and not self.isolated
        if self.trace.phase[0] in _ALONE and self.trace.rounds == 0 and may_isolate:
            self.trace.unsafe = "the job hung when ranks stepped without exchanging gradients"
            return None
        slowest = min(beats, key=lambda rank: beats[rank][1])
        return Diagnosis(
            f"no rank of {self.job.title} ended a step for {silence:.0f} s; rank {slowest} got least far "
            f"({beats[slowest][1]} steps, last block: {self.trace.phase[0]})"
        )

    def _diagnosis(self, process: Process) -> Diagnosis:
        batch = _batch_argument(self.job)
        return diagnose(
            Evidence(
                exit_code=process.poll() or 0,
                crashes=process.crashes(),
                output=process.output(),
                steps={rank: steps for rank, (_, steps, _) in process.heartbeats().items()},
                title=self.job.title,
                batch=batch,
            )
        )

    def _log(self) -> str:
        return self._last.output()


def _batch_argument(job: Job) -> int | None:
    """The batch of a workload, which Stash's own --batch can change."""
    words = job.arguments
    if job.target != "stash.lab.zoo.train" or "--batch" not in words:
        return None
    return int(words[words.index("--batch") + 1])


def measure(job: Job, cluster: Cluster, wishes: Wishes, watcher: Watcher | None = None) -> Profile:
    """Profile ``job`` and return the artefact; raises JobError when nothing could be measured."""
    result = Expedition(job, cluster, wishes, watcher).run()
    if result.profile is not None:
        return result.profile
    if result.interrupted:
        raise UserError("interrupted before the first round was measured")
    if result.failure is None:
        raise JobError("rank 0 ran on another node: the profile is there")
    raise JobError(f"{result.failure.own_words}\n{result.failure.sentence}".strip())

"""Run the ladder: decide what to launch next, and when what was measured is kept.

The first launch tries to measure every rung in one run. If the agents find that switching is unsafe, or one rank
stepping alone hangs, the job is started again and only rungs of the whole job are measured. A script whose loop ends
early is started again until the rounds suffice. It is started as it was typed, as one plain process: whether it needs
a launcher, its own error says best.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from stash.core.errors import JobError, UserError
from stash.core.ladder import has_no_exchange, rung
from stash.core.records.profile import Profile
from stash.core.secrets import hide_masked
from stash.core.units import format_count
from stash.measure.host.describe import describe
from stash.measure.host.gpus import count_gpus
from stash.measure.launcher.diagnose import MARK_STEPS, Diagnosis, combine_diagnoses, find_cause
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.folder_lock import PATIENCE_SECONDS, FolderLock
from stash.measure.launcher.guarded import GuardedFiles, killed_run_sentences
from stash.measure.launcher.job import Job, may_train_on_several
from stash.measure.launcher.launches import Launches
from stash.measure.launcher.measurement import Approach, Measurement, Result, Timer, Watcher
from stash.measure.launcher.neighbours import NeighbouringRuns, TemporaryFolder
from stash.measure.launcher.peers import number_nodes
from stash.measure.launcher.process import Process, Request
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import FEWEST_ROUNDS
from stash.ui.project import read_power_price

_MAX_LAUNCHES = 20
_OVERTURE, _VISITS = 16, 8
"""Steps of warm-up and trial, and blocks of a round, when a loop's few steps are to be shared out."""

_FIRST_PART = 4
"""Of a loop's steps, one in so many is timed as typed, where it ended before any block."""
_VARIABLES = "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
_WANTS_LAUNCHER = re.compile(
    rf"environment variable (?:{_VARIABLES}) expected|KeyError: '(?:{_VARIABLES})'"
    rf"|(?:environ|getenv)\b.*\b(?:{_VARIABLES})\b"
    r"|Default process group has not been initialized|No module named 'mpi4py'|torchrun|torch\.distributed\.launch"
)
"""In its traceback, or in what it printed last. (DeepSpeed asks MPI for what no launcher has set.)"""


def restart_as_ranks(cluster: Cluster, failure: Diagnosis) -> Cluster | None:
    """The cluster for a job that failed so as one plain process; None if its error does not ask for a launcher."""
    lines = [
        line for line in failure.own_words.splitlines() if not line.lstrip().startswith('File "')
    ]
    if (
        cluster.nnodes > 1
        or cluster.engine != "local"
        or not _WANTS_LAUNCHER.search("\n".join(lines))
    ):
        return None
    return replace(cluster, engine="torchrun", nproc=cluster.all_devices)


class ProfileSession:
    """One ``stash profile``.

    ``clock``, ``start`` (of launches' processes), ``neighbours`` and ``folder_lock`` may be a test's own.
    ``patience_seconds``: to wait for another command that works in the folder.
    """

    def __init__(
        self,
        job: Job,
        cluster: Cluster,
        wishes: ProfileOptions,
        *,
        clock: Timer = time,
        start: Callable[[Request, RunFolder], Process] = Process,
        neighbours: NeighbouringRuns | None = None,
        folder_lock: FolderLock | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        hide_masked(job.command, job.kept_command)  # in whatever is printed of it from here on
        host = describe(Path(job.data or wishes.data_root or "."))
        self.measurement = Measurement(
            *(job, Approach(cluster, wishes.rungs), wishes, host, count_gpus(), clock),
            dollars_per_kwh=read_power_price(Path.cwd()),
        )
        # a name, until something is run
        shown = Path(tempfile.gettempdir()) / f"stash-{os.getpid()}"
        self._neighbours = neighbours or NeighbouringRuns(cluster.meeting_address(os.environ))
        self.folder_lock = folder_lock or FolderLock(
            Path.cwd(),
            is_shared=cluster.nnodes > 1 or cluster.is_inherited,
            patience_seconds=patience_seconds,
            find_strangers=self._neighbours.list_others,
        )
        """Of where the job works: files there are the job's, or the user's, and nobody else's."""
        self.launches = Launches(self.measurement, shown, start, self._neighbours.list_others)
        self._most_steps: int | None = None
        self._whole_side_work = False
        """Evaluations read all their batches, and checkpoints are written whole."""
        self._endless: bool | None = None
        """Whether the loader is kept from ending; None until that was tried."""
        self._as_typed: Diagnosis | None = None
        """How the job failed that was started as one plain process, if it was started as ranks since."""

    @property
    def job(self) -> Job:
        return self.measurement.job

    def first_request(self) -> Request:
        """The command of the first launch; raises UserError for what cannot be started."""
        return self.launches.make_request()

    def measure_job(self, watcher: Watcher = lambda moment: None) -> Result:
        """Measure until precise, out of budget, interrupted or failed; never raises for what the job does.

        Raises UserError for nodes that do not find each other, and while another command works in the folder.
        """
        result = Result(None, None, interrupted=True)  # while the folder is made, or removed
        with suppress(KeyboardInterrupt), ExitStack() as stack:
            stack.enter_context(self._neighbours)
            locked = stack.enter_context(self.folder_lock).descriptor
            folder = stack.enter_context(TemporaryFolder())
            stack.enter_context(GuardedFiles(folder.path, locked))
            self.measurement.begin(number_nodes(self.measurement.cluster))
            self.launches = self.launches.move(folder.path, watcher)
            swept = killed_run_sentences(folder.swept)
            self.measurement.gathered.note(*swept)
            try:
                result = self._measure_rungs()
            except KeyboardInterrupt:
                self.measurement.keep_first_steps("it was interrupted")
                result = self._make_result("interrupted", None, interrupted=True)
            log, failure = self.launches.log_path(), result.failure
            fails = failure is not None and not failure.users_mistake
            kept = folder.keep_file(log) if fails and log is not None and log.exists() else None
            left = tuple(self.measurement.gathered.left_files)
            result = replace(result, swept=tuple(swept), left_files=left, log=kept)
        return result

    def _measure_rungs(self) -> Result:
        m = self.measurement
        while True:
            gathered, first_steps = m.gathered, None
            if gathered.ledgers:
                first_steps = 0
            elif self._endless:  # blocks are to fit in behind the first steps, where the loop ended
                first_steps = self.launches.steps() // _FIRST_PART
            orders = replace(
                self.launches.make_orders(),
                most_steps=self._most_steps,
                endless=bool(self._endless),
                whole_side_work=self._whole_side_work,
                first_steps=first_steps,
            )
            failure = self.launches.run_launch(orders)
            if gathered.end == "no process group":
                self._start_as_one()
                continue
            if gathered.unsafe is not None:
                if self._measure_whole_job(gathered.unsafe):
                    continue
                return self._make_result("failed", failure or Diagnosis(gathered.unsafe))
            if failure is not None:
                if self._goes_on_after(failure):
                    continue
                m.keep_first_steps(f"the script failed while Stash measured ({failure.sentence})")
                return self._make_result("failed", failure)
            if not gathered.led:
                if self.launches.steps():
                    return Result(None, None, elsewhere=True)
                why = (
                    f"{self.job.title} ended without a training step: Stash counts steps of torch.optim optimizers, "
                    f"else backward passes whose gradients are used, and saw neither; if it trains, {MARK_STEPS}"
                )
                return self._make_result("failed", Diagnosis(why, self.launches.last_words()))
            if gathered.end == "no rungs":
                reasons = "; ".join(
                    f"{name}: {why}"
                    for name, why in gathered.skipped.items()
                    if name in m.approach.rungs
                )
                why = f"none of the rungs asked for can be measured on this job ({reasons})"
                return self._make_result("failed", Diagnosis(why, users_mistake=True))
            if gathered.end != "script ended" or m.is_enough() or not self._can_start_again():
                return self._make_result(m.end_reason(), self._too_short())

    def _goes_on_after(self, failure: Diagnosis) -> bool:
        """Whether the job is to be started again, in another way."""
        return (
            self._give_up_resident(failure)
            or self._give_up_switching(failure)
            or self._start_another_way(failure)
            or self._give_up_endlessness(failure)
            or self._give_up_shortening(failure)
        )

    def _give_up_resident(self, failure: Diagnosis) -> bool:
        """After a script failed over batches that were on the device already: whether to go on without that rung."""
        m, rungs = self.measurement, self.measurement.approach.rungs
        if (
            not self._fails_in_first("resident")
            or m.gathered.end == "node lost"
            or "resident" not in rungs
        ):
            return False
        m.start_over(
            rungs=(name for name in rungs if name != "resident"),
            why=f"the script does not take batches already on the device ({failure.sentence})",
        )
        return True

    def _give_up_switching(self, failure: Diagnosis) -> bool:
        """After a script failed by its own error in a step without exchange: whether to go on without such steps."""
        m, phase = self.measurement, self.measurement.gathered.phase.name
        whole = tuple(name for name in m.approach.rungs if rung(name).exchanges)
        unlike_job = has_no_exchange(phase) and phase not in whole
        if not unlike_job or not self._fails_in_first(phase):
            return False
        if not failure.own_words or not whole or len(m.gathered.ranks) < 2:
            return False
        return self._measure_whole_job(
            f"the script fails where ranks exchange nothing ({failure.sentence})"
        )

    def _measure_whole_job(self, why: str) -> bool:
        """Go on without the rungs in which ranks exchange less than the whole job does; False if no other is left."""
        m = self.measurement
        whole = tuple(name for name in m.approach.rungs if rung(name).exchanges)
        if not whole or whole == m.approach.rungs:
            return False
        note = f"{why}; it was started again, and only steps of the whole job were measured"
        m.start_over(note, rungs=whole, why=why)
        self.launches.say(note)
        return True

    def _fails_in_first(self, phase: str) -> bool:
        """Whether that is under way in the first round, of a job on this machine alone."""
        m = self.measurement
        return m.gathered.phase.name == phase and m.gathered.rounds == 0 and m.cluster.nnodes == 1

    def _start_another_way(self, failure: Diagnosis) -> bool:
        """After a plain process failed before its first step: whether it is to be started as ranks, once."""
        m = self.measurement
        if (
            self._as_typed is not None
            or m.job.kind == "command"
            or m.gathered.led
            or self.launches.steps()
        ):
            return False
        another = restart_as_ranks(m.cluster, failure)
        if another is None:
            return False
        self._as_typed = failure
        ranks, why = format_count(another.nproc, "rank"), find_cause(failure.own_words)
        note = f"the job was started by torchrun, as {ranks}, since as a plain process it failed ({why})"
        self._start(another, note)
        return True

    def _start_as_one(self) -> None:
        """After ranks formed no process group."""
        before = self.measurement.cluster
        note = (
            f"started as {before.nproc} ranks, the script never called init_process_group: those were "
            f"{before.nproc} jobs and not one, so one process was started again, by itself, and measured"
        )
        engine = "local" if self._as_typed is None else "torchrun"
        self._start(replace(before, engine=engine, nproc=1, all_devices=1), note)

    def _start(self, cluster: Cluster, note: str) -> None:
        """Forget what was measured, and note in the profile and print at once how the job is started next."""
        m = self.measurement
        m.start_over(*m.gathered.notes, note, cluster=cluster)
        self.launches.say(note)

    def _can_start_again(self) -> bool:
        """After a training loop that ended too early: first without an end to its loader, then in its own epochs."""
        m = self.measurement
        if m.cluster.nnodes > 1 or m.launches >= _MAX_LAUNCHES:
            return False
        if m.complete_rounds() and m.seconds_spent() >= m.wishes.budget:
            return False
        if self._endless is None:
            self._endless = True
            m.gathered.note(
                "the training loop ended before enough was measured; the job was started again"
            )
            return True
        if m.complete_rounds():
            return True
        if self._most_steps is not None:
            return False
        # it ended before its first round: shorter blocks may fit into it
        self._most_steps = int((self.launches.steps() - _OVERTURE) / _VISITS / 2)
        return self._most_steps >= 1

    def _give_up_endlessness(self, failure: Diagnosis) -> bool:
        """After a script failed that was kept from ending, by an error of its own: whether to go on in its epochs."""
        if (
            not self._endless
            or not failure.own_words
            or self.measurement.gathered.end == "node lost"
        ):
            return False
        self._endless = False
        self.measurement.gathered.note(
            f"longer than its own epochs the script cannot train ({failure.sentence}); it was started again for each"
        )
        return True

    def _give_up_shortening(self, failure: Diagnosis) -> bool:
        """After a script failed by its own error before a verdict: whether to start it again, once, all of it whole."""
        m = self.measurement
        is_steered = bool(m.gathered.ledgers) and m.starts_all_ranks
        if self._whole_side_work or not (is_steered and failure.own_words):
            return False
        if m.complete_rounds() >= FEWEST_ROUNDS:
            return False
        self._whole_side_work = True
        note = (
            f"the script failed while it was measured ({failure.sentence}); it was started again, evaluations got all "
            "their batches, not one, and checkpoints were written, not left empty"
        )
        m.gathered.note(note)
        self.launches.say(note)
        return True

    def _too_short(self) -> Diagnosis | None:
        ended = f"its training loop ended after {self.launches.steps()} steps"
        if self.measurement.complete_rounds() or self.measurement.keep_first_steps(ended):
            return None
        rungs, given_up = self.measurement.gathered.rungs, self.measurement.gathered.given_up
        advice = ""
        if len(rungs) > 2:  # two of them tell the most in the least steps
            replayed = [name for name in rungs if rung(name).replays]
            last = replayed[-1] if len(replayed) > 1 else rungs[1]
            advice = f", or measure fewer rungs (--rungs {rungs[0]},{last})"
        if given_up is not None:
            return Diagnosis(
                f"{self.job.title} became so slow that its first round was given up, after {given_up.seconds:.0f} s "
                f"where {given_up.expected_seconds:.0f} s were expected; raise --budget{advice}"
            )
        return Diagnosis(
            f"the training loop of {self.job.title} ended after {self.launches.steps()} steps, before one round was "
            f"measured; let it train longer (more steps or epochs){advice}"
        )

    def _make_result(
        self, ended: str, failure: Diagnosis | None, interrupted: bool = False
    ) -> Result:
        m = self.measurement
        if failure is not None and self._as_typed is not None and not self.launches.steps():
            failure = combine_diagnoses(self._as_typed, failure, m.cluster.nproc)
        if len(m.gathered.ranks) == 1 < m.cluster.all_devices and may_train_on_several(m.job):
            every = m.cluster.all_devices
            m.gathered.note(
                f"one process was started, as typed; to use all {every} devices: --nproc-per-node {every}"
            )
        return Result(m.profile(ended) if m.complete_rounds() else None, failure, interrupted)


Watching = Callable[[ProfileSession], AbstractContextManager[Watcher]]
"""Shows a session's progress while the context is entered."""


def watch_nothing(session: ProfileSession) -> AbstractContextManager[Watcher]:
    """Shows nothing."""
    return nullcontext(lambda moment: None)


def profile_job(
    job: Job, cluster: Cluster, wishes: ProfileOptions, watching: Watching = watch_nothing
) -> Profile:
    """Profile ``job`` and return the artefact; raises JobError when nothing could be measured."""
    # a program's calls, or a test run's, follow each other
    session = ProfileSession(job, cluster, wishes, patience_seconds=math.inf)
    with session.folder_lock, watching(session) as watcher:
        result = session.measure_job(watcher)
    if result.profile is not None:
        return result.profile
    if result.interrupted:
        raise UserError("interrupted before the first round was measured")
    if result.failure is None:
        raise JobError("rank 0 ran on another node: the profile is there")
    raise JobError(f"{result.failure.own_words}\n{result.failure.sentence}".strip())

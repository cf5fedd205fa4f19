"""One measurement under way: what is wanted, what was gathered so far, and whether that is enough.

Starts nothing and waits for nothing: what to launch next is decided in ``session``, how launches run in ``launches``.
What judges a measurement loads NumPy, and is loaded once there is something to judge: the script is started before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from stash.core.records.circumstances import EnergyUse
from stash.core.records.host import Host
from stash.core.records.profile import Profile, Settings, Workload
from stash.measure.host.energy_counters import Counts, read_packages, sum_energy
from stash.measure.launcher.bystanders import Bystanders
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.gathered import GatheredRun
from stash.measure.launcher.job import Commit, Job, commit_of
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.protocol.messages import Message, RoundsPlanned
from stash.measure.protocol.orders import another_round_fits, latest_end

if TYPE_CHECKING:
    from stash.analysis.breakdown import Breakdown
    from stash.analysis.disturbance import Calming


@dataclass(frozen=True)
class Moment:
    """What live progress shows: the block under way, and seconds since the first step."""

    phase: str
    round: int | None
    elapsed: float
    profile: Profile | None = None
    """What was measured so far; only when a round has just been finished, or the first steps were timed."""
    breakdown: Breakdown | None = None
    """Of that; ``None`` before the first complete round."""
    round_seconds: float | None = None
    """What a round is expected to take, once the agents have planned it."""
    step_seconds: float | None = None
    """What a step takes, roughly; known while the first ones are timed."""
    steps: int | None = None
    """By so many unmodified steps; ``None``: by the last one of warming up."""
    waited_seconds: float | None = None
    """Of which the first rank waited so long for its loaders."""
    notice: str | None = None
    """What happened that whoever waits should know at once."""


Watcher = Callable[[Moment], None]


@dataclass(frozen=True)
class Result:
    """A profile if at least one round finished, and what went wrong if something did."""

    profile: Profile | None
    failure: Diagnosis | None
    interrupted: bool = False
    elsewhere: bool = False
    """Rank 0 ran on another node, which has the profile."""
    log: Path | None = None
    """What the job printed, kept when something went wrong."""
    swept: tuple[str, ...] = ()
    """What was found of runs that were killed; a profile has it in its notes."""
    left_files: tuple[str, ...] = ()
    """Files and folders that the job made and left."""


class Timer(Protocol):
    """What is used of the module ``time``."""

    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


class Approach(NamedTuple):
    """How the job is started, and what it is asked for."""

    cluster: Cluster
    rungs: tuple[str, ...]


@dataclass
class Measurement:
    """The job, where it runs, and all that its launches reported."""

    job: Job
    approach: Approach
    wishes: ProfileOptions
    host: Host
    gpus: int
    clock: Timer = time
    gathered: GatheredRun = field(default_factory=GatheredRun)
    bystanders: Bystanders = field(default_factory=Bystanders)
    launches: int = 0
    """Started so far."""
    commit: Commit = Commit()
    """Of the script's repository, when it was started."""
    dollars_per_kwh: float | None = None

    def __post_init__(self) -> None:
        self.began = self.clock.time()
        """Unix time: what files were there before."""
        self._began = self.clock.monotonic()
        self._first_block: float | None = None
        self._energy: list[Counts] = []
        self._messages = 0
        self._latest: tuple[int, Breakdown | None] = (0, None)
        """The last breakdown, and how many messages it was made of."""
        self._blocks_began: dict[int, float] = {}
        """By launch, when its blocks began, a tick late at most."""

    @property
    def cluster(self) -> Cluster:
        return self.approach.cluster

    def begin(self, cluster: Cluster) -> None:
        """It is about to run on ``cluster``, as its repository is now."""
        self.approach = self.approach._replace(cluster=cluster)
        self.commit = commit_of(self.job)

    def start_over(
        self,
        *notes: str,
        cluster: Cluster | None = None,
        rungs: Iterable[str] | None = None,
        why: str = "",
    ) -> None:
        """Forget all blocks before the job starts again; ``why`` tells what excuses rungs that it drops."""
        before = self.approach
        kept = before.rungs if rungs is None else tuple(rungs)
        self.approach = before._replace(cluster=cluster or before.cluster, rungs=kept)
        self.gathered = GatheredRun()
        self._latest = self._messages, None
        self.gathered.note(*notes)
        self.gathered.excused.update({name: why for name in before.rungs if name not in kept})

    def count_launch(self) -> None:
        """One more was started."""
        self.launches += 1

    @property
    def starts_all_ranks(self) -> bool:
        """Whether this launcher starts every rank of the job, so that it can start them again."""
        return (
            self.job.kind != "command"
            and not self.cluster.is_inherited
            and self.cluster.nnodes == 1
        )

    def add_message(self, message: Message) -> None:
        """Gather a message; from the first block on time counts."""
        if isinstance(message, RoundsPlanned):
            now = self._blocks_began[self.launches - 1] = self.clock.monotonic()
            self._first_block = now if self._first_block is None else self._first_block
        self.gathered.add_message(message)
        self._messages += 1

    def read_energy(self) -> None:
        """Read the counters, if the highest rung's blocks run now."""
        if self.gathered.phase.name == self._top_rung:
            now = self.clock.monotonic()
            packages, gpus = read_packages(now), self.bystanders.gpus.read_energy(now)
            self._energy.append({"packages": packages, "gpus": gpus})

    @property
    def _top_rung(self) -> str:
        return self.gathered.rungs[-1] if self.gathered.rungs else ""

    def _sum_energy(self, on_gpus: bool) -> EnergyUse:
        """Of the leader's blocks of the highest rung."""
        blocks = [
            (self._blocks_began[block.launch] + block.started, block.seconds)
            for block in self.gathered.blocks
            if block.rung == self._top_rung
            and block.rank == 0
            and block.launch in self._blocks_began
        ]
        return sum_energy(
            self._energy,
            [(begun, begun + seconds) for begun, seconds in blocks],
            self._top_rung,
            ("packages", "gpus") if on_gpus else ("packages",),
            self.dollars_per_kwh,
        )

    def seconds_spent(self) -> float:
        """Seconds since the first block."""
        return 0.0 if self._first_block is None else self.clock.monotonic() - self._first_block

    @property
    def out_of_time(self) -> bool:
        """Whether a round under way is given up half done, if one was finished."""
        return self.gathered.rounds > 0 and self.seconds_spent() > latest_end(
            self.gathered.rounds, self.wishes.budget
        )

    def profile(self, ended: str) -> Profile:
        """The artefact of everything gathered so far."""
        from stash.advice.stopping import KNOWN

        settings = Settings(
            precision=self.wishes.noise or KNOWN,
            budget_seconds=self.wishes.budget,
            rungs=tuple(self.gathered.rungs),
            isolated=False,
            why="scope switched inside one launch",
            launches=max(1, self.launches),
            until_decided=self.wishes.noise is None,
            started=self.cluster.nproc,
        )
        workload = Workload(
            command=self.job.kept_command,
            name=self.job.title,
            git_commit=self.commit.name,
            git_dirty=self.commit.dirty,
        )
        elapsed = self.clock.monotonic() - self._began
        before = None if self._first_block is None else self._first_block - self._began
        on_gpus = any(rank.device != "cpu" for rank in self.gathered.ranks.values())
        return self.gathered.profile(
            workload,
            settings=settings,
            ended=ended,
            elapsed_seconds=elapsed,
            seconds_before_blocks=before,
            energy=None if ended == "measuring" else self._sum_energy(on_gpus),
            others=self.bystanders.list_programs(),
            gpu_states=self.bystanders.gpus.list_states(),
        )

    @cached_property
    def _calming(self) -> Calming:
        from stash.analysis.disturbance import Calming

        return Calming()

    def complete_rounds(self) -> int:
        """How many rounds every rank has finished."""
        from stash.analysis.step_times import step_matrix

        calm = self._calming.calm_profile(self.profile("measuring"))
        return len(step_matrix(calm.profile).rounds) if self.gathered.ranks else 0

    def keep_first_steps(self, why: str) -> bool:
        """Where no round was measured: let the job's first steps stand for some; False if there are too few.

        ``why``: a sentence on what kept the rounds from being measured.
        """
        from stash.measure.launcher.first_steps import cut_into_rounds

        rounds = cut_into_rounds(self.gathered.blocks) if self.gathered.ledgers else []
        if not rounds or self.complete_rounds():
            return False
        self.gathered.stand_in(rounds)
        steps = sum(block.steps for block in rounds if block.rank == rounds[0].rank)
        self.gathered.note(
            f"no round was measured, as {why}; this is of the job's first {steps} steps, in which nothing was changed, "
            "and of its ledger"
        )
        return True

    def _make_breakdown(self, profile: Profile) -> Breakdown | None:
        """Of what was measured so far; ``None`` before the first complete round."""
        from stash.analysis.attribution import attribute
        from stash.analysis.step_times import step_matrix

        if self._latest[0] != self._messages:
            calm = self._calming.calm_profile(profile)
            has_round = profile.ranks and step_matrix(calm.profile).rounds
            self._latest = self._messages, attribute(profile, calm=calm) if has_round else None
        return self._latest[1]

    def stop_reason(self) -> str | None:
        """Why measuring may end, as the artefact says it, if what was asked is known or cannot be; else ``None``."""
        from stash.advice.stopping import is_decided, is_settled

        breakdown, precision = self._make_breakdown(self.profile("measuring")), self.wishes.noise
        if breakdown is None:
            return None
        if is_decided(breakdown, precision):
            return "decided" if precision is None else "precision"
        given_up = precision is None and is_settled(
            breakdown, self.seconds_spent(), self.wishes.budget
        )
        return "settled" if given_up else None

    def is_over(self) -> bool:
        """Whether the budget is gone with a round at least."""
        fits = another_round_fits(self.seconds_spent(), self.gathered.took, self.wishes.budget)
        return not fits and self.complete_rounds() > 0

    def is_enough(self) -> bool:
        """Whether the budget is gone with a round at least, or what was asked is known."""
        from stash.advice.stopping import FIRST_SECONDS

        if self.is_over():
            return True
        return self.seconds_spent() >= FIRST_SECONDS and self.stop_reason() is not None

    def end_reason(self) -> str:
        """How the measurement ended, as the artefact says it."""
        if self.gathered.end == "script ended":
            return "script ended"
        return self.stop_reason() or "budget"

    def make_moment(self, round_finished: bool = False, notice: str | None = None) -> Moment:
        """What there is to show now."""
        phase, planned = self.gathered.phase, self.gathered.planned
        profile = self.profile("measuring") if round_finished else None
        return Moment(
            phase.name,
            phase.round,
            self.seconds_spent(),
            profile,
            None if profile is None else self._make_breakdown(profile),
            None if planned is None else planned.round_seconds,
            phase.step_seconds,
            phase.steps,
            phase.waited_seconds,
            notice,
        )

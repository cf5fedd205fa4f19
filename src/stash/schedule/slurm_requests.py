"""ScheduleAdvice as requests to a Slurm that runs already: features, nice values, requeues; and the queue as it is.

GPU types are features of nodes there, as ``--constraint`` names them. Nothing is started: a job that should run gets
its type and a better nice value, one that runs on the wrong type is requeued, and Slurm does the rest.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stash.core.errors import StashError, UserError
from stash.core.parsers import node_names
from stash.schedule.advice_now import ScheduleAdvice
from stash.schedule.records import LabCluster, QueuedJob

RunsProgram = Callable[[Sequence[str]], str]
"""Runs a program and returns what it prints; raises StashError."""
NICE_STEP = 100
_SECONDS = 60.0
_PATIENCE = 30.0
"""Seconds in which a requeued job becomes one that waits."""
_FIELD = re.compile(r"(?:^|\s)([A-Za-z/:]+)=(\S*)")


@dataclass(frozen=True)
class SlurmJob:
    """One job as Slurm shows it."""

    number: str
    name: str
    state: str
    features: str
    nodes: str
    requeues: bool


@dataclass(frozen=True)
class SlurmQueue:
    """The queue: which of the jobs in the file are which of Slurm's."""

    jobs: tuple[QueuedJob, ...]
    """Those with a job of Slurm's, ``on`` what they run on."""
    of_name: dict[str, SlurmJob]


@dataclass(frozen=True)
class SlurmRequest:
    """What is asked for one job."""

    job: str
    commands: tuple[tuple[str, ...], ...]
    note: str = ""


def run(words: Sequence[str]) -> str:
    """What a program of Slurm prints; raises UserError if there is none, StashError if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise UserError(f"--engine slurm: there is no {words[0]} here; run it where Slurm's commands are") from None
    except subprocess.TimeoutExpired:
        raise UserError(
            f"--engine slurm: {words[0]} does not answer within {_SECONDS:.0f} s; is slurmctld up?"
        ) from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"--engine slurm: {' '.join(words)}: {lines[0] if lines else 'it failed'}")
    return done.stdout


def queue(text: str) -> tuple[SlurmJob, ...]:
    """Jobs of ``scontrol --oneliner show job``."""
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if "JobId" in fields:
            found.append(
                SlurmJob(
                    fields["JobId"],
                    fields.get("JobName", ""),
                    fields.get("JobState", ""),
                    _known(fields.get("Features")),
                    _known(fields.get("NodeList")),
                    fields.get("Requeue") == "1",
                )
            )
    return tuple(found)


def _known(text: str | None) -> str:
    return "" if text in (None, "(null)") else str(text)


def current(jobs: Sequence[QueuedJob], cluster: LabCluster, runs: RunsProgram = run) -> SlurmQueue:
    """The jobs of the file that Slurm has, by their number or name; raises UserError if it cannot be reached.

    A running job is on the type of its node, by the cluster's names of nodes, else by the feature that it asked for.
    """
    there = [each for each in queue(runs(("scontrol", "--oneliner", "show", "job")))
             if each.state in ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED")]  # fmt: skip
    named = {each.number: each for each in there} | {each.name: each for each in there}
    kinds = {node.name: node.gpu for node in cluster.nodes}
    found, of_name = [], {}
    for job in jobs:
        slurm = named.get(job.name)
        if slurm is None:
            continue
        of_name[job.name] = slurm
        on = ""
        if slurm.state == "RUNNING":
            known = next((kinds[name] for name in node_names(slurm.nodes) if name in kinds), "")
            features = re.split(r"[&|,*\[\]()]", slurm.features)
            on = known or next((kind for kind in cluster.types if kind in features), "")
        found.append(replace(job, on=on))
    if not found:
        raise UserError(
            "--engine slurm: no job in the file is in Slurm's queue; the column job holds its job numbers or names"
        )
    return SlurmQueue(tuple(found), of_name)


def requests(found: ScheduleAdvice, held: SlurmQueue) -> tuple[SlurmRequest, ...]:
    """One for each job that has to change; those that run come first in the order of nice values."""
    asked = []
    for place, each in enumerate(found.jobs):
        slurm = held.of_name[each.job.name]
        features = each.gpu.replace("+", "|")
        wish = [f"jobid={slurm.number}"]
        if features and features != slurm.features:
            wish.append(f"features={features}")
        wish.append(f"nice={NICE_STEP * place}")
        update = ("scontrol", "update", *wish)
        if slurm.state != "RUNNING":
            asked.append(SlurmRequest(each.job.name, (update,)))
        elif each.change == "stays":
            continue
        elif not each.job.on:
            asked.append(SlurmRequest(each.job.name, (), f"{each.job.name} stays: on which type it runs is unknown"))
        elif not slurm.requeues:
            asked.append(
                SlurmRequest(each.job.name, (), f"{each.job.name} stays: it was submitted with --no-requeue")
            )
        else:
            asked.append(SlurmRequest(each.job.name, (("scontrol", "requeue", slurm.number), update)))
    return tuple(asked)


def apply(
    asked: Sequence[SlurmRequest], runs: RunsProgram = run, clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:  # fmt: skip
    """Have Slurm do it; what was done, a line each. A requeued job takes a moment until it can be changed."""
    done = []
    for each in asked:
        requeued = False
        for words in each.commands:
            deadline = clock() + (_PATIENCE if requeued else 0.0)
            while True:
                try:
                    runs(words)
                    break
                except StashError:
                    if clock() >= deadline:
                        raise
                    sleep(0.5)
            requeued = requeued or words[1] == "requeue"
            done.append(" ".join(words))
    return done

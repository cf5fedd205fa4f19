"""ScheduleAdvice as requests to a Slurm that runs already: features, nice values, requeues; and the queue as it is.

GPU types are features of nodes there, as ``--constraint`` names them. Nothing is started: a job that should run gets
its type and a better nice value, one that runs on the wrong type is requeued, and Slurm does the rest.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from stash.core.errors import StashError, UserError
from stash.core.parsers import node_names
from stash.schedule.advice_now import ManagerRequest, ScheduleAdvice
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
    state: str
    features: str
    nodes: str
    gpus: int
    """That it holds on all of them together, as far as Slurm counts GPUs."""
    requeues: bool


@dataclass(frozen=True)
class SlurmQueue:
    """The queue: which of the jobs in the file are which of Slurm's."""

    jobs: tuple[QueuedJob, ...]
    """Those with a job of Slurm's, ``on`` what they run on."""
    of_name: dict[str, SlurmJob]
    cluster: LabCluster
    """What they can have: without the GPUs that other jobs hold."""
    types: tuple[str, ...]
    """Of the whole cluster."""


def run_slurm(words: Sequence[str]) -> str:
    """What a program of Slurm prints; raises UserError if there is none, StashError if it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise UserError(
            f"--engine slurm: there is no {words[0]} here; run it where Slurm's commands are"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(
            f"--engine slurm: {words[0]} does not answer within {_SECONDS:.0f} s; is slurmctld up?"
        ) from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"--engine slurm: {' '.join(words)}: {lines[0] if lines else 'it failed'}")
    return done.stdout


def parse_queue(text: str) -> tuple[SlurmJob, ...]:
    """Jobs of ``scontrol --oneliner show job``."""
    found = []
    for line in text.splitlines():
        fields: dict[str, str] = {}
        for name, value in _FIELD.findall(line):
            # a job's own words, as its comment, come later and may look like fields
            fields.setdefault(name, value)
        if "JobId" in fields:
            tres = fields.get("AllocTRES") or fields.get("TRES") or ""
            whole = re.search(r"gres/gpu=(\d+)", tres)
            found.append(
                SlurmJob(
                    fields["JobId"],
                    fields.get("JobState", ""),
                    _known_word(fields.get("Features")),
                    _known_word(fields.get("NodeList")),
                    (
                        int(whole[1])
                        if whole
                        else sum(map(int, re.findall(r"gres/gpu:[^=,]+=(\d+)", tres)))
                    ),
                    fields.get("Requeue") == "1",
                )
            )
    return tuple(found)


def _known_word(text: str | None) -> str:
    return "" if text in (None, "(null)") else str(text)


def match_queue(
    jobs: Sequence[QueuedJob], cluster: LabCluster, runs: RunsProgram = run_slurm
) -> SlurmQueue:
    """The jobs of the file that Slurm has, by their numbers.

    A job that holds nodes is on their type, by the cluster's names of nodes. Raises UserError if Slurm cannot be
    reached, or has none of them.
    """
    there = [
        each
        for each in parse_queue(runs(("scontrol", "--oneliner", "show", "job")))
        if each.state in ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED")
    ]
    numbers = {each.number: each for each in there}
    kinds = {node.name: node.gpu for node in cluster.nodes}
    of_name = {job.name: numbers[job.name] for job in jobs if job.name in numbers}
    found = []
    for job in jobs:
        if job.name in of_name:
            slurm = of_name[job.name]
            held = () if slurm.state == "PENDING" else node_names(slurm.nodes)
            on = next((kinds[name] for name in held if name in kinds), "")
            found.append(replace(job, on=on))
    if not found:
        raise UserError(
            "--engine slurm: no job in the file is in Slurm's queue; the column job holds job numbers"
        )
    # What others do not hold, whole nodes where Slurm counts no GPUs.
    counted = any(each.gpus for each in there)
    taken = Counter[str]()
    for each in there:
        if each.state != "PENDING" and each not in of_name.values():
            names = list(node_names(each.nodes))
            share = -(-each.gpus // len(names)) if counted else sys.maxsize
            taken.update(dict.fromkeys(names, share))
    nodes = (replace(node, gpus=node.gpus - taken[node.name]) for node in cluster.nodes)
    left = tuple(node for node in nodes if node.gpus > 0)
    if not left:
        raise UserError(
            f"--engine slurm: jobs that are not in the file hold all GPUs of {cluster.name}"
        )
    return SlurmQueue(tuple(found), of_name, replace(cluster, nodes=left), cluster.types)


def make_requests(found: ScheduleAdvice, held: SlurmQueue) -> tuple[ManagerRequest, ...]:
    """One for each job that has to change; those that run come first in the order of nice values."""
    asked = []
    for place, each in enumerate(found.jobs):
        name, slurm = each.job.name, held.of_name[each.job.name]
        holds = slurm.state != "PENDING"
        if holds and each.change == "stays":
            continue
        features = each.gpu or slurm.features
        if each.gpu and not set(re.split(r"[&|]", slurm.features)).issubset(("", *held.types)):
            note = f"its constraint {slurm.features} asks for more than a type"
        elif holds and not each.job.on:
            note = "on which type it runs is unknown"
        elif holds and not slurm.requeues:
            note = "it was submitted with --no-requeue"
        else:
            wish = [f"features={features}"] if features != slurm.features else []
            update = (
                "scontrol",
                "update",
                f"jobid={slurm.number}",
                *wish,
                f"nice={NICE_STEP * place}",
            )
            requeue = (("scontrol", "requeue", slurm.number),) if holds else ()
            asked.append(ManagerRequest(name, (*requeue, update)))
            continue
        asked.append(ManagerRequest(name, (), f"{name} stays: {note}"))
    return tuple(asked)


def apply_requests(
    asked: Sequence[ManagerRequest],
    runs: RunsProgram = run_slurm,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Have Slurm do it, and say each thing once it is done. A requeued job takes a moment until it can be changed."""
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
            yield " ".join(words)

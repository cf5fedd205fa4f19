"""A choice as it is started: the profiled command on machines yet to be rented, as a SkyPilot task.

A script or module gets torchrun; a torchrun of the job's own keeps its options but those that name nodes and ranks,
and so does ``accelerate launch``. Any other launcher is left as it was typed, with a note of what is to be done. The
task is YAML that ``sky launch`` takes, and that starts nothing by itself (docs.skypilot.co, reference/yaml-spec, and
running-jobs/distributed-jobs for the variables that its nodes find). What cannot be known (where the data lie,
secrets, how the job takes a batch) stands in the comments on top as things to do. Reads no cloud.
"""

from __future__ import annotations

import math
import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from stash.catalog.facts import Instance
from stash.catalog.offers import Catalog
from stash.catalog.sky import AUTOSTOP, CLOUDS, plain_name, resources, task_yaml
from stash.core.errors import UserError
from stash.core.formatting import dollars_interval, join_names, span_interval
from stash.core.printable import printable_line
from stash.core.records.profile import Profile
from stash.core.secrets import HIDDEN, MASK
from stash.core.units import format_bytes
from stash.plan.bill import BillFacts
from stash.plan.records import Choice

_PYTHON = re.compile(r"(.*/)?python[\d.]*")
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_WHERE_RANKS_ARE = frozenset(
    (
        "nnodes",
        "nproc-per-node",
        "node-rank",
        "master-addr",
        "master-port",
        "local-addr",
        "rdzv-backend",
        "rdzv-endpoint",
        "rdzv-id",
        "rdzv-conf",
        "num-machines",
        "num-processes",
        "machine-rank",
        "main-process-ip",
        "main-process-port",
    )
)
"""Options of torchrun and accelerate that say how many ranks there are and where they meet."""
_FLAGS = frozenset(("standalone", "multi-gpu", "use-env"))
"""Of those, the ones without a value."""


_NODES, _NODE = '"$SKYPILOT_NUM_NODES"', '"$SKYPILOT_NODE_RANK"'
_FIRST = '"$(echo "$SKYPILOT_NODE_IPS" | head -n1)"'
_PORT = 29_500
"""Shell words for what each node finds out of itself: numbers, and where rank 0 listens."""


@dataclass(frozen=True)
class Relaunch:
    """A line of shell for every node, and what a person has to know or do before it is run."""

    line: str
    notes: tuple[str, ...] = ()


def relaunch(command: Sequence[str], nodes: int, devices: int, per_node: str) -> Relaunch:
    """``command`` as it was profiled, on ``nodes`` machines with ``devices`` (in shell ``per_node``) ranks each."""
    words = list(command)
    if not words:
        return Relaunch("", ("the profile does not hold the job's command: write it into run",))
    launcher, job = _split_command(words)
    if launcher is None:
        note = f"`{shlex.join(words[:2])}` starts the job, and how to give it {nodes} machines is unknown"
        notes = (f"{note}: edit run",) if nodes > 1 else (f"{note}: look at run",)
        return Relaunch(shlex.join(words), notes)
    if not launcher and nodes * devices == 1:
        return Relaunch(shlex.join(["python", *job]))
    if launcher[:2] == ["accelerate", "launch"]:
        options = [
            *(["--multi_gpu"] if nodes * devices > 1 else []),
            f"--num_machines={_NODES}",
            f"--num_processes={nodes * devices}",
            f"--machine_rank={_NODE}",
            f"--main_process_ip={_FIRST}",
            f"--main_process_port={_PORT}",
            *map(shlex.quote, _drop_rank_options(launcher[2:])),
        ]
        return Relaunch(_lines(["accelerate launch", *options, shlex.join(job)]))
    # Without the dashes torchrun takes the script's --log or --max for abbreviations of its own options.
    dashed = ["-m", "--", *job[1:]] if job[0] in ("-m", "--module") else ["--", *job]
    options = [
        f"--nnodes={_NODES}",
        f"--nproc-per-node={per_node}",
        f"--node-rank={_NODE}",
        f"--master-addr={_FIRST}",
        f"--master-port={_PORT}",
        *map(shlex.quote, _drop_rank_options(launcher[1:])),
    ]
    return Relaunch(_lines(["torchrun", *options, shlex.join(dashed)]))


def _split_command(words: list[str]) -> tuple[list[str] | None, list[str]]:
    """The launcher's words (none where Python starts the job, ``None`` where it is another) and the job's."""
    if words[0] == "-m" or words[0].endswith(".py"):
        return [], words
    python = _PYTHON.fullmatch(words[0]) is not None
    if python and words[1:2] == ["-m"] and words[2:3] and words[2] in _TORCHRUN_MODULES:
        return _split_at_job(["torchrun", *words[3:]])
    if words[0].rpartition("/")[2] == "torchrun":
        return _split_at_job(["torchrun", *words[1:]])
    if words[0].rpartition("/")[2] == "accelerate" and words[1:2] == ["launch"]:
        return _split_at_job(["accelerate", *words[1:]])
    if python:
        rest = [word for word in words[1:] if word != "-u"] if words[1:2] == ["-u"] else words[1:]
        if rest and (rest[0] == "-m" or rest[0].endswith(".py")):
            return [], rest
    return None, []


def _split_at_job(words: list[str]) -> tuple[list[str] | None, list[str]]:
    """Cut where the launcher's options end: at ``--``, ``-m`` or a script."""
    for number, word in enumerate(words):
        if word == "--":
            return words[:number], words[number + 1 :]
        if word in ("-m", "--module") or word.endswith(".py"):
            return words[:number], words[number:]
    return None, []


def _drop_rank_options(options: Sequence[str]) -> list[str]:
    """A launcher's options without those that say where ranks are."""
    kept, skip = [], False
    for word in options:
        name, equals, _ = word.lstrip("-").replace("_", "-").partition("=")
        if skip and not word.startswith("-"):
            skip = False
            continue
        skip = False
        if word.startswith("--") and name in _FLAGS:
            continue
        if word.startswith("--") and name in _WHERE_RANKS_ARE:
            skip = not equals
            continue
        kept.append(word)
    return kept


def _lines(words: Sequence[str]) -> str:
    """One command over several lines, indented below its first word."""
    return " \\\n  ".join(words)


# The SkyPilot task

_USUAL_DISK, _SYSTEM = 256, 45
"""GiB: SkyPilot's default disk, and its default image on AWS (sky/clouds/aws.py, DEFAULT_AMI_GB)."""
_WIDTH = 100


def sky_task(
    choice: Choice, profile: Profile, catalog: Catalog, facts: BillFacts, file: str = "task.yaml"
) -> str:
    """The task of ``choice``; ``file`` is what it will be called. Raises UserError for what SkyPilot cannot rent."""
    rented = choice.rented
    if rented.cloud not in CLOUDS:
        raise UserError(
            f"{rented.instance} ({rented.cloud}) is nothing that SkyPilot rents; start the job yourself"
        )
    instance = catalog.instance(f"{rented.cloud}/{rented.instance}")
    devices = str(rented.devices) if rented.device is None else '"$SKYPILOT_NUM_GPUS_PER_NODE"'
    body, started = task_body(
        profile, rented.nodes, rented.devices, devices, _resources(choice, instance, facts)
    )
    return (
        _header(
            choice,
            task_name(profile),
            file,
            (*started.notes, *_manual_steps(choice, profile, facts)),
        )
        + body
    )


def task_body(
    profile: Profile, nodes: int, ranks: int, devices: str, wanted: dict[str, object]
) -> tuple[str, Relaunch]:
    """The task's YAML for the resources that are ``wanted``; ``devices`` are shell words for a node's ``ranks``."""
    started = relaunch(profile.workload.command, nodes, ranks, devices)
    known = [
        f"{name} {profile.software[name]}"
        for name in ("python", "torch")
        if name in profile.software
    ]
    measured = [f"# Profiled with {printable_line(join_names(known))}."] if known else []
    install = "if [ -f requirements.txt ]; then pip install -r requirements.txt; fi"
    task: dict[str, object] = {
        "name": task_name(profile),
        "workdir": ".",
        "num_nodes": nodes,
        "resources": wanted,
        "setup": "\n".join([*measured, install, ""]),
        "run": started.line + "\n",
    }
    return task_yaml(task), started


def task_name(profile: Profile) -> str:
    """The job's name as SkyPilot takes one: letters, digits and dashes, a letter first."""
    workload = profile.workload.name
    plain = plain_name(workload.removesuffix(".py"))
    return plain if plain[:1].isalpha() else plain_name(f"train-{plain}")


def _resources(choice: Choice, instance: Instance, facts: BillFacts) -> dict[str, object]:
    rented = choice.rented
    wanted = resources(instance, rented.cloud, rented.price.region, rented.price.paid_as == "spot")
    if choice.transport not in (None, "sockets"):
        wanted["network_tier"] = "best"
    held = (facts.dataset_bytes or 0.0) + (facts.image_bytes or 0.0)
    needed = math.ceil(held / 2**30) + _SYSTEM
    if (
        needed > _USUAL_DISK
    ):  # where the usual one has no room for data and image besides the system
        wanted["disk_size"] = needed
    if rented.price.paid_as != "spot":
        wanted["autostop"] = AUTOSTOP
    return wanted


def _manual_steps(choice: Choice, profile: Profile, facts: BillFacts) -> list[str]:
    """What only a person can see to, in sentences."""
    rented, command = choice.rented, profile.workload.command
    settings = (
        ("samples a device and pass", choice.setting.batch),
        ("passes a step", choice.setting.accumulate),
        ("loader workers a rank", choice.setting.workers),
    )
    changes = [f"{value:,} {name}" for name, value in settings if value is not None]
    notes = []
    if changes:
        notes.append(
            f"the forecast is of {join_names(changes)}: set them in the job's own arguments"
        )
    if profile.world_size == 1 and rented.nodes * rented.devices > 1:
        notes.append(
            "the job was profiled on one device: it has to train with DistributedDataParallel to use more"
        )
    if any(MASK in word or HIDDEN in word for word in command):
        notes.append(
            f"the command lacks words that may be secrets ({MASK} and {HIDDEN} stand for them): pass them with "
            "`secrets:`, and write in those that are none"
        )
    size = "" if facts.dataset_bytes is None else f" ({format_bytes(facts.dataset_bytes)})"
    notes.append(
        f"the data{size} have to be where the job looks for them: with `file_mounts:`, or a line of setup"
    )
    if rented.price.paid_as == "spot":
        notes.append(
            "spot machines may be taken away: the job has to save checkpoints where a new one finds them"
        )
    if rented.price.paid_as == "reserved":
        notes.append("the price is that of your reservation: name it in ~/.sky/config.yaml")
    return notes


def _header(choice: Choice, name: str, file: str, notes: Sequence[str]) -> str:
    rented = choice.rented
    where = rented.cloud if rented.price.region is None else f"{rented.cloud} {rented.price.region}"
    dated = f" of {rented.price.as_of}" if rented.price.as_of else ", undated"
    price = f"${rented.price.dollars_per_hour.value:,.4g}/h each ({rented.price.paid_as}{dated})"
    start = (
        f"sky jobs launch {file}"
        if rented.price.paid_as == "spot"
        else f"sky launch -c {name} {file}"
    )
    lines = [
        *_wrap_line(f"{choice.name}, {where}, {price}.", ""),
        f"Forecast: {span_interval(choice.seconds)}, {dollars_interval(choice.dollars)}.",
        "Written by `stash recommend`; nothing was started. To start it:",
        f"    {start}",
        "Before you do:",
        *(part for note in notes for part in _wrap_line(note, "- ")),
    ]
    return "".join(f"# {line}\n" for line in lines)


def _wrap_line(line: str, bullet: str) -> list[str]:
    return textwrap.wrap(
        printable_line(line),
        _WIDTH,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_on_hyphens=False,
        break_long_words=False,
    )

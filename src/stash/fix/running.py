"""``stash run``: a script with the environment that ``stash fix`` chose."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from stash.core.errors import UserError
from stash.core.fix_records import FILE, Fix
from stash.core.printable import printable_line
from stash.fix.space import SETTABLE
from stash.measure.launcher.engines import launch_command
from stash.measure.launcher.folder_lock import FolderLock
from stash.measure.launcher.job import Job
from stash.measure.ranks import RankOptions, resolve_cluster


def kept_variables(fix: Fix) -> dict[str, str]:
    """Environment variables that set what is kept outside the script.

    Raises UserError for any that `stash fix` itself would not write: a record may come from somebody else.
    """
    found: dict[str, str] = {}
    for each in fix.kept:
        for name, value in each.variables.items():
            pattern = SETTABLE.get(name)
            if pattern is None or not re.fullmatch(pattern, value):
                raise UserError(
                    f"the record of {fix.workload} sets {printable_line(f'{name}={value}', 80)}, which `stash fix` "
                    "never does, so nothing was started: run `stash fix` yourself"
                )
        found |= each.variables
    return found


def start_command(
    fix: Fix, job: Job, options: RankOptions
) -> tuple[tuple[str, ...], dict[str, str]]:
    """What is started and with which variables; raises UserError for a record that sets nothing from outside."""
    new = kept_variables(fix)
    if not new:
        raise UserError(
            f"`stash fix` chose no environment variables for {fix.workload}: apply the patch and start it as before"
        )
    if job.kind == "command":
        return (job.target, *job.arguments), new
    ranks = fix.engine == "torchrun"
    if ranks and options.nproc_per_node is None:
        options = replace(options, nproc_per_node=fix.ranks)
    where = resolve_cluster(options, ranks=ranks)
    return launch_command(job, where), new


def start_job(record: Path, job: Job, options: RankOptions) -> None:
    """Become the job; raises UserError."""
    words, new = start_command(FILE.load(record), job, options)
    with FolderLock(Path.cwd(), is_shared=True) as folder_lock:
        folder_lock.hand_on()
        print(
            " ".join(f"{name}={value}" for name, value in new.items()), file=sys.stderr, flush=True
        )
        os.execvpe(words[0], words, {**os.environ, **new})

"""Scripts that time their own steps, run without Stash: what ``bench.fix`` holds promises to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SECONDS = 6.0
"""Of a run, about."""
LONGEST = 900.0
"""Seconds of any command, after which a job counts as failed."""


@dataclass(frozen=True)
class Arm:
    """A script that the stopwatch runs, with words of its command line and variables."""

    script: str
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def stopwatch(
    folder: Path, arms: Mapping[str, Arm], expected: Mapping[str, float], rounds: int
) -> dict[str, list[float]]:
    """Seconds of a step as each script times itself, round by round; ``expected``: about so many, for equal times."""
    times: dict[str, list[float]] = {arm: [] for arm in arms}
    for name, arm in arms.items():
        (folder / f"{name.replace(' ', '_')}.py").write_text(arm.script)
    for number in range(rounds):
        for name, arm in list(arms.items())[:: 1 if number % 2 == 0 else -1]:
            steps = str(max(20, round(SECONDS / expected[name])))
            command = (*TORCHRUN, f"{name.replace(' ', '_')}.py", "--steps", steps, *arm.words)
            times[name].append(
                float(call(command, folder, arm.variables, r"seconds a step ([\d.e-]+)"))
            )
    return times


def call(
    command: Sequence[str],
    folder: Path,
    variables: Mapping[str, str] | None = None,
    wanted: str = "",
) -> str:
    """What a command printed, or the part that is ``wanted``; with that it may have failed: gloo's threads at times
    abort a script that is done. Raises RuntimeError with all it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **(variables or {})}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(command)}: not done after {LONGEST:.0f} s") from None
    found = re.search(wanted, done.stdout) if wanted else None
    if found is None and (wanted or done.returncode):
        raise RuntimeError(
            f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return found[1] if found is not None else done.stdout

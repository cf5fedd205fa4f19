"""The machine that benchmarks run on, and what a command or a call costs there.

Loads neither torch nor numpy: the child of a large process starts with that process's peak of memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"
STASH = (sys.executable, "-m", "stash")


def machine() -> str:
    """One line on what this is measured on."""
    from stash.measure.host.describe import describe

    host = describe()
    gpus = f", {len(host.gpus)} x {host.gpus[0].name}" if host.gpus else ""
    return (
        f"{date.today()}, {host.cores} cores of {host.cpu}{gpus}, Linux {host.kernel}, "
        f"torch {version('torch')}, python {sys.version.split()[0]}"
    )


def arguments(text: str | None, **options: tuple[object, str]) -> argparse.Namespace:
    """Parse the command line of a benchmark: of each option its default, whose type it has, and its help.

    A list stands for any number of names, not for an option; it is what is taken without any.
    """
    spec = sys.modules["__main__"].__spec__
    parser = argparse.ArgumentParser(
        prog=None if spec is None else f"python -m {spec.name.removesuffix('.__main__')}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, (default, help_text) in options.items():
        flag, shown = f"--{name.replace('_', '-')}", help_text.replace("%", "%%")
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true", help=shown)
        elif isinstance(default, list):
            parser.add_argument(name, nargs="*", default=default, help=shown)
        else:
            parser.add_argument(flag, type=type(default), default=default, help=shown)
    return parser.parse_args()


def cost(command: list[str]) -> tuple[float, float, float]:
    """Seconds on the wall and of processor time, and peak resident MB, of a child process; raises if it fails."""
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command} failed with status {status}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def run(
    command: Sequence[str],
    folder: Path | None = None,
    seconds: float = 900.0,
    text: str | None = None,
    **more: str,
) -> str:
    """What a command prints that is given ``text``; raises RuntimeError with its last words if it fails or goes on.

    ``more`` are variables of its environment. Stash is what the caller's environment has, else this repository's.
    """
    usual = {
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        "PYTHONPATH": os.environ.get("PYTHONPATH") or str(ROOT / "src"),
    }
    shown = " ".join(command[1:7])
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **usual, **more},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            input=text,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{shown} … was not done after {seconds:.0f} s") from None
    if done.returncode:
        raise RuntimeError(
            f"{shown} … ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}"
        )
    return done.stdout

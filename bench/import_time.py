"""What ``import stash`` and ``stash --version`` cost, beside an empty interpreter; and how soon a profile answers.

In turns, in one run. ``import stash`` is what it adds to an empty interpreter, a command is all that its user waits;
beside other work the processor time tells more. The first answer of ``stash profile`` is its first look at unmodified
steps, beyond the seconds in which the script by itself comes to its first step.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from bench.machine import arguments, cost
from bench.table import report, table

RUNS = 20
STASH = str(Path(sys.executable).with_name("stash"))
COMMANDS = {
    "empty": [sys.executable, "-c", "pass"],
    "`import stash`": [sys.executable, "-c", "import stash"],
    "`stash --version`": [STASH, "--version"],
    "`stash --help`": [STASH, "--help"],
}


TINY = Path(__file__).with_name("tiny.py")
ANSWERS = 7
_ONE_STEP = f"""
import os, runpy, torch
torch.optim.SGD.step = lambda *_: os._exit(0)
runpy.run_path({str(TINY)!r})
"""


def first_answer_seconds() -> float:
    """From the command to the first look at what it profiles."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        words = [STASH, "profile", "--budget", "4", str(TINY)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with subprocess.Popen(words, cwd=folder, text=True, **quiet) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "first look" in line:
                    took = time.perf_counter() - began
                    process.stderr.read()
                    return took
    raise SystemExit("the profile ended without a first look")


def main() -> None:
    arguments(__doc__)
    own = [cost([sys.executable, "-c", _ONE_STEP])[0] for _ in range(ANSWERS)]
    answers = [first_answer_seconds() for _ in range(ANSWERS)]
    beyond = [answer - median(own) for answer in answers]
    runs = [{name: cost(words)[:2] for name, words in COMMANDS.items()} for _ in range(RUNS)]
    rows = []
    for name in list(COMMANDS)[1:]:
        base = [run["empty"] if name == "`import stash`" else (0.0, 0.0) for run in runs]
        wall, busy = (
            [run[name][part] - other[part] for run, other in zip(runs, base, strict=True)]
            for part in (0, 1)
        )
        low, _, high = quantiles(wall, n=4)
        half = f"{low * 1e3:.1f} to {high * 1e3:.1f} ms"
        rows.append([name, f"{median(wall) * 1e3:.1f} ms", half, f"{median(busy) * 1e3:.1f} ms"])
    low, _, high = quantiles(beyond, n=4)
    rows.append(
        [
            f"first answer beyond the script's {median(own):.2f} s",
            f"{median(beyond) * 1e3:.0f} ms",
            f"{low * 1e3:.0f} to {high * 1e3:.0f} ms of {ANSWERS}",
            "",
        ]
    )
    report(table(("what", "median", f"half of {RUNS} runs", "processor time"), rows))


if __name__ == "__main__":
    main()

"""What ``import stash`` and ``stash --version`` cost, beside an empty interpreter.

In turns, in one run. ``import stash`` is what it adds to an empty interpreter, a command is all that its user waits;
beside other work the processor time tells more.
"""

from __future__ import annotations

import sys
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


def main() -> None:
    arguments(__doc__)
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
    report(table(("what", "median", f"half of {RUNS} runs", "processor time"), rows))


if __name__ == "__main__":
    main()

"""What ``import stash`` costs, and that it loads no torch; against an empty interpreter, interleaved."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np

from bench.machine import machine
from bench.table import table

RUNS = 20


def seconds(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def main() -> None:
    pairs = [(seconds("pass"), seconds("import stash")) for _ in range(RUNS)]
    cost = float(np.median([with_stash - empty for empty, with_stash in pairs]))
    loaded = subprocess.run(
        [sys.executable, "-c", "import stash, sys; print('torch' in sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    rows = [[f"{cost * 1e3:.1f} ms", loaded, str(RUNS)]]
    print(machine(), table(["median cost of `import stash`", "torch loaded", "pairs"], rows), sep="\n\n")


if __name__ == "__main__":
    main()

"""What ``import stash`` costs, and that it loads no torch; against an empty interpreter, interleaved."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from bench.machine import arguments, cost
from bench.table import report, table

RUNS = 20


def main() -> None:
    arguments(__doc__)
    programs = ("pass", "import stash")
    pairs = [[cost([sys.executable, "-c", program])[0] for program in programs] for _ in range(RUNS)]
    added = median(with_stash - empty for empty, with_stash in pairs)
    asked = [sys.executable, "-c", "import stash, sys; print('torch' in sys.modules)"]
    loaded = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    heads = ("median cost of `import stash`", "torch loaded", "pairs")
    report(table(heads, [[f"{added * 1e3:.1f} ms", loaded, RUNS]]))


if __name__ == "__main__":
    main()

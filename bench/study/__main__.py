"""Run the paper's grid on an emulated fleet, keep what it found, and write its tables on one page.

Runs what is left (root, 20 minutes on two cores); once the grid is whole, it is kept and written.
"""

from __future__ import annotations

import sys

from bench.machine import ROOT, arguments
from bench.study import page, runs
from bench.table import deliver, page_path


def main() -> int:
    options = arguments(
        __doc__,
        page=(False, "run nothing: write the page from what was kept"),
        out=(page_path("study"), "where to write it; - prints"),
    )
    if not options.page:
        code = runs.run()
        if code:  # tables of a part of it would not be those of the paper's grid
            return code
        print(f"kept {runs.keep()} cells in {runs.KEPT.relative_to(ROOT)}")
    deliver(page.page(), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Run the paper's grid on an emulated fleet, keep what it found, and write ``docs/study.md``.

python -m bench.study            run what is left (root, 20 minutes on two cores); once it is whole, keep and write
python -m bench.study --page     write the page from what was kept
"""

from __future__ import annotations

import argparse
import sys

from bench.machine import ROOT
from bench.study import page, runs

PAGE = ROOT / "docs" / "study.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.study", description=__doc__)
    parser.add_argument("--page", action="store_true", help="run nothing")
    if not parser.parse_args().page:
        code = runs.run()
        if code:  # tables of a part of it would not be those of the paper's grid
            return code
        print(f"kept {runs.keep()} cells in {runs.KEPT.relative_to(ROOT)}")
    PAGE.write_text(page.page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

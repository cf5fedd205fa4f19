"""Run the paper's grid on an emulated fleet, keep what it found, and write ``docs/study.md``.

python -m bench.study            run what is left of it (root, 20 minutes on two cores), keep, write
python -m bench.study --page     write the page from what was kept
"""

from __future__ import annotations

import argparse
import sys

from bench.common import ROOT
from bench.study import page, runs

PAGE = ROOT / "docs" / "study.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.study", description=__doc__)
    parser.add_argument("--page", action="store_true", help="run nothing")
    code = 0
    if not parser.parse_args().page:
        code = runs.run()
        print(f"kept {runs.keep()} cells in {runs.KEPT.relative_to(ROOT)}")
    PAGE.write_text(page.page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Judge choices against the truth, and write ``docs/recommendation.md``.

python -m bench.plan [--print] [--seeds N]
"""

from __future__ import annotations

import argparse

from bench.common import ROOT
from bench.plan.page import page

PAGE = ROOT / "docs" / "recommendation.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plan", description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the page instead of writing it")
    parser.add_argument("--seeds", type=int, default=20, help="splits of published tables, of each kind (default 20)")
    options = parser.parse_args()
    text = page(options.seeds)
    if options.print:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

"""Compare predictions with measurements they were not fitted to, and write ``docs/validation.md``.

python -m bench.predict [--print]
"""

from __future__ import annotations

import argparse

from bench.common import ROOT
from bench.predict.report import page

PAGE = ROOT / "docs" / "validation.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.predict", description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the page instead of writing it")
    text = page()
    if parser.parse_args().print:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

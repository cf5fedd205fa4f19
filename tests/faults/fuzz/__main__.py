"""Reads changed files of every format: ``python -m tests.faults.fuzz [--mutations N] [--format NAME]``.

Exit status 1 if one of them came to anything but text or a sentence. ``--only N`` plays one of them again, and
``--keep FOLDER`` keeps those that failed.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))  # as pytest's settings do

from tests.faults.fuzz.formats import FORMATS
from tests.faults.fuzz.play import play


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz", description=__doc__)
    parser.add_argument("--mutations", type=int, default=10_000, metavar="N", help="of each format")
    parser.add_argument("--format", default="", help="formats whose name contains this")
    parser.add_argument("--only", type=int, metavar="N", help="the one of this number")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="where to put files that failed"
    )
    options = parser.parse_args()
    numbers = range(options.mutations) if options.only is None else [options.only]
    print("| format | mutations | failed | seconds |\n| --- | --- | --- | --- |")
    failed = 0
    for form in [form for form in FORMATS if options.format in form.name]:
        failed += _played(form, numbers, options.keep)
    return 1 if failed else 0


def _played(form, numbers, keep):
    began = time.monotonic()
    problems = play(form, numbers, keep)
    print(
        f"| {form.name} | {len(numbers)} | {len(problems)} | {time.monotonic() - began:.0f} |",
        flush=True,
    )
    for number, problem in problems:
        print(f"{form.name} {number}: {problem}", file=sys.stderr)
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())

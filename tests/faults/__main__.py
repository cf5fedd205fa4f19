"""Plays the fault matrix and prints its table: ``python -m tests.faults [--only TEXT] [--kind KIND]``.

Exit status 1 if a case failed. ``docs/reliability.md`` sums it up.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))  # as pytest's settings do

from tests.faults.cases import all_cases
from tests.faults.driver import play

_FOLDER = "faults-"
"""What a case's folder begins with."""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--kind", default="", help="cases of this kind")
    parser.add_argument(
        "--side-by-side", type=int, default=2, metavar="N", help="cases played at once"
    )
    options = parser.parse_args()
    _signals_as_in_a_terminal()
    cases = [
        case for case in all_cases() if options.only in case.name and options.kind in case.kind
    ]
    played = [case for case in cases if case.needs()]
    with ThreadPoolExecutor(options.side_by_side) as pool:
        verdicts = list(pool.map(_played, played))
    print(f"{summary(verdicts)}\n\n{table(verdicts)}")
    failed = sum(bool(verdict.problems) for verdict in verdicts)
    print(
        f"\n{len(played)} cases at {_commit()}: {len(played) - failed} passed, {failed} failed, "
        f"{len(cases) - len(played)} cannot be played on this machine."
    )
    return 1 if failed else 0


def _signals_as_in_a_terminal():
    """What nohup and a shell's ``&`` let be ignored, the cases' processes would ignore too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def _played(case):
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        verdict = play(case, Path(folder))
    print(
        f"{case.kind}: {case.name}: {'; '.join(verdict.problems) or 'held'}",
        file=sys.stderr,
        flush=True,
    )
    return verdict


def summary(verdicts):
    """In Markdown: how many cases of each kind held, and how long they took to end."""
    rows = ["| kind | cases | held | median s to the end | longest |", "| --- " * 5 + "|"]
    for kind in dict.fromkeys(v.case.kind for v in verdicts):
        of_kind = [v for v in verdicts if v.case.kind == kind]
        seconds = [v.seconds for v in of_kind]
        held = sum(not v.problems for v in of_kind)
        rows.append(
            f"| {kind} | {len(of_kind)} | {held} | {median(seconds):.0f} | {max(seconds):.0f} |"
        )
    return "\n".join(rows)


def table(verdicts):
    """In Markdown: case, outcome, seconds to the end, rounds kept, what was said."""
    rows = [
        "| kind | case | outcome | exit | s | rounds kept | its last line |",
        "| --- " * 7 + "|",
    ]
    for v in verdicts:
        outcome = "**" + "; ".join(v.problems) + "**" if v.problems else "held"
        kept = "–" if v.rounds is None else str(v.rounds)
        text = _without_folder(v.last_line)[:140].replace("`", "'")  # what is cut is no code
        cells = [v.case.kind, v.case.name, outcome, str(v.code), f"{v.seconds:.0f}", kept, text]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _without_folder(text):
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/{_FOLDER}\w+/(?:work/)?", "", text)


def _commit():
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "no commit"


if __name__ == "__main__":
    sys.exit(main())

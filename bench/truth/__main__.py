"""Profile jobs whose stalls are known beforehand and compare: ``python -m bench.truth [--only TEXT]``.

Runs the cases of ``cases`` with the command a user would type and prints, for every stall: the truth by hand, the
same by an independent stopwatch (``stopwatch``), the estimate, its interval, the error in points of the step; then
mean and largest error, whether the right causes were named, and how often the intervals held the truth. Needs root.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bench.machine import arguments
from bench.table import progress, report, table
from bench.truth.cases import find_cases
from bench.truth.suite import Result, run

HEADS = (
    "case",
    "stall",
    "by hand (ms)",
    "stopwatch (ms)",
    "estimate (ms)",
    "95 % interval",
    "error (points)",
    "error to stopwatch",
    "holds",
    "holds stopwatch",
    "s",
    "named",
    "right",
)
HELD = {True: "yes", False: "no", None: ""}


def cells(r: Result) -> list[str]:
    """A stall of a case, in milliseconds."""
    known = [r.truth, r.timed, r.estimate, r.low, r.high]
    times = ["" if each is None else f"{each * 1e3:.1f}" for each in known]
    off = ["" if each is None else f"{each:+.2f}" for each in (r.points, r.timed_points)]
    held = [HELD[r.holds(r.truth)], HELD[r.holds(r.timed)], f"{r.used:.0f}"]
    interval = " to ".join(filter(None, times[3:]))
    says = [r.named or "nothing", "yes" if r.right else "**no**"]
    return [r.case, r.stall, *times[:3], interval, *off, *held, *says]


def summary(results: Sequence[Result]) -> str:
    """Errors over all stalls, coverage of the intervals, causes, time."""
    runs = {(r.case, r.used): r for r in results}.values()
    worst = max(results, key=lambda r: abs(r.points))
    used = [r.used for r in runs]
    timed = {r.case for r in results if r.timed is not None}
    by_hand, by_stopwatch = (
        _coverage(map(hold, results))
        for hold in (lambda r: r.holds(r.truth), lambda r: r.holds(r.timed))
    )
    return "\n".join(
        (
            f"{len(runs)} profiles of {len({r.case for r in results})} cases, {len(results)} stalls.",
            f"Error against the truth by hand: {_errors([r.points for r in results])} "
            f"({worst.case}: {worst.stall}).",
            f"Error against the stopwatch ({len(timed)} cases): "
            f"{_errors([r.timed_points for r in results])}.",
            f"Error against the truth by hand in ms, median (range): {_errors_by_stall(results)}.",
            f"95 % intervals that hold the truth by hand: {by_hand}; that hold the stopwatch's: {by_stopwatch}.",
            f"Right causes, verdict and slow rank: {sum(r.right for r in runs)} of {len(runs)}.",
            f"Seconds per answer: median {np.median(used):.0f}, most {max(used):.0f}.",
        )
    )


def _errors_by_stall(results: Sequence[Result]) -> str:
    errors: dict[str, list[float]] = {}
    for r in results:
        errors.setdefault(r.stall, []).append((r.estimate - r.truth) * 1e3)
    return ", ".join(
        f"{stall} {np.median(found):+.2f} ({min(found):+.2f} to {max(found):+.2f})"
        for stall, found in errors.items()
    )


def _errors(points: Sequence[float | None]) -> str:
    known = np.abs([p for p in points if p is not None])
    if not len(known):
        return "not asked for"
    return (
        f"mean {known.mean():.2f} points of the step, median {np.median(known):.2f}, "
        f"95th percentile {np.percentile(known, 95):.2f}, largest {known.max():.2f}"
    )


def _coverage(held: Iterable[bool | None]) -> str:
    known = [one for one in held if one is not None]
    return f"{np.mean(known):.1%} of {len(known)}" if known else "not asked for"


def main() -> None:
    """Run the cases and print as they come."""
    options = arguments(
        __doc__,
        only=("", "cases whose name contains this"),
        budget=(15.0, "seconds of measuring per case"),
        no_stopwatch=(False, "only the truth by hand: half the time"),
        save=("", "append the results to this file, one JSON object a line"),
    )
    results = []
    for case in find_cases(options.only):
        try:
            found = run(case, options.budget, timed=not options.no_stopwatch)
        except RuntimeError as error:
            print(f"FAILED {error}", file=sys.stderr, flush=True)
            continue
        results += found
        worst = max(found, key=lambda r: abs(r.points))
        verdict = f"{'right' if worst.right else 'WRONG'} ({worst.named})"
        progress(
            case.name,
            f"worst {worst.stall} {worst.points:+.2f} points",
            verdict,
            f"{worst.used:.0f} s",
        )
        if options.save:
            with Path(options.save).open("a") as file:
                file.writelines(json.dumps(asdict(result)) + "\n" for result in found)
    if not results:
        sys.exit(f"no case whose name contains {options.only!r} was run")
    report(table(HEADS, map(cells, results)), summary(results))


if __name__ == "__main__":
    main()

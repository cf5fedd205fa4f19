"""Decisions judged on an emulated fleet, where every candidate can be run and the best is known.

    python -m bench.plan.fleet --plan              what would be run, and for how long; without root
    python -m bench.plan.fleet --only "even on"    candidates whose name contains this (root)
    python -m bench.plan.fleet                     all that are not kept yet (root; three quarters of an hour)
    python -m bench.plan.fleet --judge             decides and judges, from what is kept alone: seconds, without root

Each model is profiled on one cheap type, all candidates are forecast from that, and then each is run. ``--judge``
asks ``derive.plan`` one goal after the other, from those profiles, and holds its choices against ``data/fleet.csv``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

from bench.common import ROOT
from bench.plan import fleet_runs
from bench.plan.emulated import CANDIDATES, MODELS, Candidate, profiled
from stash.core.errors import StashError

OVERHEAD = 20
"""Seconds of a run beside its steps: setting up and verifying links and disks, starting ranks, ending them."""


def missing(words: str) -> list[Candidate]:
    """What is to be run: candidates that no line is kept of."""
    kept = fleet_runs.rows()
    return [each for each in CANDIDATES if words in each.name and each.name not in kept]


def show_plan(wanted: list[Candidate], budget: float, seconds: float) -> None:
    models = [model for model in MODELS if not fleet_runs.profile_path(model).exists()]
    for model in models:
        print(f"{profiled(model).name:22} a profile to forecast from, {budget:.0f} s")
    for each in wanted:
        print(f"{each.name:22} ${each.dollars_per_hour:.2f}/h, {seconds:.0f} s of steps")
    minutes = (len(models) * (budget + OVERHEAD) + len(wanted) * (seconds + OVERHEAD)) / 60
    print(f"{len(models)} profiles and {len(wanted)} runs, about {minutes:.0f} minutes")


def run_all(wanted: list[Candidate], budget: float, seconds: float) -> list[str]:
    """Run what is wanted, each twice at most; the sentences about those that could not be run."""
    failed: list[str] = []
    for model in MODELS:
        own = [each for each in wanted if each.model == model]
        base = (
            _tried(profiled(model).name, lambda model=model: fleet_runs.start_of(model, budget), failed)
            if own
            else None
        )
        if base is None:
            continue
        for each in own:
            line = _tried(each.name, lambda each=each, base=base: fleet_runs.run(each, base, seconds), failed)
            if line is not None:
                print(
                    f"{each.name:22} measured {line['measured_step']}, forecast {line['forecast_step']}", flush=True
                )
    return failed


Answer = TypeVar("Answer")


def _tried(name: str, do: Callable[[], Answer], failed: list[str]) -> Answer | None:
    """What ``do`` returns; ``None`` and a sentence more in ``failed`` where it fails twice."""
    for last in (False, True):
        try:
            return do()
        except (RuntimeError, StashError, OSError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            if last:
                failed.append(f"{name} could not be run: {str(error).splitlines()[0]}")
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.plan.fleet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", action="store_true", help="print what would be run")
    parser.add_argument("--judge", action="store_true", help="decide from what is kept, and judge")
    parser.add_argument("--only", default="", metavar="WORDS", help="candidates whose name contains this")
    parser.add_argument("--budget", type=float, default=120.0, metavar="SECONDS", help="of a profile (default 120)")
    parser.add_argument("--seconds", type=float, default=16.0, help="of steps of a run (default 16)")
    options = parser.parse_args()
    if options.judge:
        from bench.plan.fleet_judge import page

        print(page())
        return 0
    wanted = missing(options.only)
    if options.plan:
        show_plan(wanted, options.budget, options.seconds)
        return 0
    failed = run_all(wanted, options.budget, options.seconds)
    print(f"kept in {fleet_runs.TABLE.relative_to(ROOT)}; --judge says what the choices were worth")
    print("\n".join(failed), end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

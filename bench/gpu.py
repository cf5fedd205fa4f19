"""What a GPU can show of Stash's numbers, against truth made on it: `python bench/gpu.py --minutes 8 --out FILE`.

Every check runs by itself, and the next one whatever becomes of it; FILE holds the tables so far at any moment. Exits
with 1 if a truth is missed or a check fails, and with 2 where there is no GPU. `--device cpu` rehearses the bench
on a machine without one, and proves nothing about GPUs. The checks are in ``gpu_checks``, the job in ``gpu_job``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

if TYPE_CHECKING:
    from bench.gpu_checks import Ground, Row

NEEDED = ("torch", "numpy", "pydantic", "typer", "rich", "psutil", "pynvml", "yaml", "cloudpickle")
PROFILES = 20
"""Of all checks together; each has its share of the time, most of which goes to starting up and to the truth."""


@dataclass
class Outcome:
    """What came of one check."""

    name: str
    rows: list[Row] = field(default_factory=list)
    failed: str | None = None
    left_out: str | None = None

    @property
    def holds(self) -> bool:
        return self.failed is None and all(row.holds for row in self.rows)


def why_not(device: str) -> str | None:
    """What is missing to run here, in one sentence; ``None`` if nothing is."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        return f"missing: {', '.join(missing)}; install them, or put a folder that holds them on PYTHONPATH"
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        return "PyTorch sees no CUDA device on this machine; run it on one with a GPU, or rehearse with --device cpu"
    return None


def run(
    checks: dict[str, Callable[[Ground], list[Row]]],
    ground: Ground,
    seconds: float,
    done: Callable[[Outcome], None],
) -> list[Outcome]:
    """Every check, each on its own; those not begun after ``seconds`` are left out. ``done`` gets each outcome."""
    from bench.gpu_checks import NotHereError

    until, outcomes = time.monotonic() + seconds, []
    for name, check in checks.items():
        outcome = Outcome(name)
        try:
            if time.monotonic() > until:
                raise NotHereError("the time was over")
            outcome.rows = check(ground)
        except NotHereError as why:
            outcome.left_out = str(why)
        except Exception as error:  # whatever it is, the checks that follow are worth having
            outcome.failed = f"{type(error).__name__}: {error}"
        outcomes.append(outcome)
        done(outcome)
    return outcomes


def report(outcomes: Sequence[Outcome], hardware: str) -> str:
    """The tables, a row a figure."""
    from bench.table import table

    rows = [(outcome.name, row) for outcome in outcomes for row in outcome.rows]
    known = [row for _, row in rows if row.truth is not None]
    failed = [f"- {each.name} failed: {each.failed}" for each in outcomes if each.failed]
    left_out = [f"- {each.name} was not run: {each.left_out}" for each in outcomes if each.left_out]
    counts = f"{sum(row.holds for row in known)} of {len(known)} figures hold"
    summary = f"{counts}; {len(failed)} of {len(outcomes)} checks failed."
    figures = table(
        ("check", "what", "truth", "found", "apart", "at most", ""),
        [[name, *_cells(row)] for name, row in rows],
    )
    return (
        "\n\n".join(
            [
                hardware,
                figures,
                *(["\n".join([*failed, *left_out])] if failed or left_out else []),
                summary,
            ]
        )
        + "\n"
    )


def _cells(row: Row) -> list[str]:
    def format_value(value: float | None) -> str:
        return "" if value is None else f"{value:.4g} {row.unit}".strip()

    if row.truth is None:
        return [row.what, "", format_value(row.found), "", "", ""]
    apart = None if row.found is None else row.found - row.truth
    verdict = "holds" if row.holds else "**missed**"
    return [
        row.what,
        format_value(row.truth),
        format_value(row.found) or "unknown",
        format_value(apart),
        format_value(row.within),
        verdict,
    ]


def hardware(device: str) -> str:
    """The machine and the day."""
    import torch

    from bench.machine import machine

    how = (
        f"CUDA {torch.version.cuda}"
        if device == "cuda"
        else "Rehearsed on a CPU, which proves nothing about GPUs"
    )
    return f"{how}. {machine()}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="no check begins after them")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the tables there too, after every check"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu rehearses")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="checks whose name contains one of these, with commas",
    )
    options = parser.parse_args(arguments)
    missing = why_not(options.device)
    if missing is not None:
        print(missing, file=sys.stderr)
        return 2
    import torch

    from bench.gpu_checks import CHECKS, Ground
    from bench.gpu_fix import rows

    checks = {**CHECKS, "fix": rows}  # what takes longest is last, should the time end
    chosen = {
        name: check
        for name, check in checks.items()
        if any(part in name for part in options.only.split(","))
    }
    budget = max(4.0, 60 * options.minutes / PROFILES / 3)
    where, outcomes = hardware(options.device), []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        print(
            f"{outcome.name}: {outcome.failed or outcome.left_out or 'done'}",
            file=sys.stderr,
            flush=True,
        )
        if options.out is not None:
            options.out.write_text(report(outcomes, where))

    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(options.device, Path(folder), budget, max(1, torch.cuda.device_count()))
        run(chosen, ground, 60 * options.minutes, done)
    print(report(outcomes, where))
    return 0 if outcomes and all(outcome.holds for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

"""``stash characterize``: runs a study's cells wherever they are to be measured, and goes on where it was left.

What it does is ``study_run``'s business, which is loaded when the command is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stash.core import parsers
from stash.ui.options import Options, argument, flag, option, quiet_flag


@dataclass(frozen=True, kw_only=True)
class CharacterizeOptions(Options):
    """One call of ``stash characterize``."""

    study: Path = argument("STUDY", "The study file, like study.yaml.", Path)
    dry_run: bool = flag("Print the matrix, its cost and all commands without running them.")
    max_dollars: float | None = option(
        "DOLLARS", "Stop at this bill, including earlier runs of the study.", parsers.dollars
    )
    retry: bool = flag("Run failed cells once more.")
    quiet: bool = quiet_flag()


def characterize(options: CharacterizeOptions) -> None:
    """Measure every workload, batch and machine of a study file.

    Finished cells are never run again: after Ctrl-C, a crash or a limit, the same command continues.

    Rented machines are released at the end, also after errors.

    Examples:
      stash characterize study.yaml --dry-run
      stash characterize study.yaml --max-dollars 40
    """
    from stash.study.study_run import run_study

    run_study(options)

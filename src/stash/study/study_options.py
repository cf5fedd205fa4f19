"""The options of ``stash characterize``."""

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

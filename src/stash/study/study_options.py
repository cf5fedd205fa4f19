"""The options of ``stash characterize``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stash.core import parsers
from stash.core.errors import UserError
from stash.ui.options import Options, argument, flag, json_flag, option

FEATURES_ON = "p3.8xlarge"
"""Where the study of model features is run, unless it is said."""


@dataclass(frozen=True, kw_only=True)
class CharacterizeOptions(Options):
    """One call of ``stash characterize``."""

    study: Path | None = argument("STUDY", "A study file, like study.yaml.", Path, default=None)
    dry_run: bool = flag("Print the matrix, what it takes and all that would be run, and stop.")
    json: bool = json_flag("With --dry-run: print it as JSON for other programs.")
    max_dollars: float | None = option(
        "DOLLARS",
        "A hard stop; counts what is running, and earlier runs of the study.",
        parsers.dollars,
    )
    max_hours: float | None = option("HOURS", "A hard stop of this run.", parsers.hours)
    """In seconds."""
    retry: bool = flag("Run cells that failed once more.")
    instances: Path | None = option("FILE", "Your own instances in YAML.", Path)
    features: bool = flag(
        "The paper's study of model features (ResNets, VGGs): writes STUDY, else features.yaml, if there is none, "
        "and runs it."
    )
    on: str | None = option(
        "PLACE", f"With --features: an instance of the catalog, emulated here ({FEATURES_ON}), or `here` for this "
        "machine.",
    )  # fmt: skip

    def check(self) -> None:
        if self.json and not self.dry_run:
            raise UserError("--json prints what would be run; add --dry-run")

"""The options of ``stash characterize``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stash.core import parsers
from stash.core.errors import UserError
from stash.ui.options import Options, argument, flag, json_flag, option, quiet_flag

FEATURES_ON = "p3.8xlarge"
"""Where the study of model features is run, unless it is said."""


@dataclass(frozen=True, kw_only=True)
class CharacterizeOptions(Options):
    """One call of ``stash characterize``."""

    study: Path | None = argument("STUDY", "The study file, like study.yaml.", Path, default=None)
    dry_run: bool = flag("Print the matrix, its cost and all commands without running them.")
    json: bool = json_flag("With --dry-run: print JSON.")
    max_dollars: float | None = option(
        "DOLLARS",
        "Stop at this bill, including earlier runs of the study.",
        parsers.dollars,
    )
    retry: bool = flag("Run failed cells once more.")
    instances: Path | None = option("FILE", "Read your own machines and prices from this YAML file.", Path)
    features: bool = flag(
        "Run the paper's study of model features (ResNets, VGGs). A missing STUDY (default features.yaml) is "
        "written first."
    )
    quiet: bool = quiet_flag()
    on: str | None = option("PLACE", f"With --features: emulate an instance, like {FEATURES_ON}, or measure `here`.")

    def check(self) -> None:
        if self.json and not self.dry_run:
            raise UserError("--json prints what would be run; add --dry-run")

"""Weights & Biases' runs: facts as configuration, rounds as history, figures as summary, the profile as an artifact.

The run has the profile's id, so that a profile exported again is the same run. With ``WANDB_MODE=offline`` nothing is
sent: ``wandb sync`` does that later.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import zip_longest
from typing import Any

from stash.report.export.exported_runs import ExportedRun


def write(runs: Sequence[ExportedRun], project: str, url: str | None = None) -> int:
    """Log to ``project``, of the server at ``url`` (else W&B's own choice); how many.

    Raises ImportError without wandb, and whatever wandb raises.
    """
    wandb: Any = import_module("wandb")
    for run in runs:
        settings = wandb.Settings(console="off", silent=True, **({} if url is None else {"base_url": url}))
        with wandb.init(
            project=project, id=run.id, name=run.title, config=run.facts, notes=run.verdict, settings=settings,
            resume="allow" if settings.mode != "offline" else None,
        ) as logged:  # fmt: skip
            for number, values in enumerate(zip_longest(*run.rounds.values())):
                each = zip(run.rounds, values, strict=True)
                logged.log(
                    {f"rounds/{rung}_seconds": value for rung, value in each if value is not None}, step=number
                )
            logged.summary.update({**run.figures, "verdict": run.verdict, "created": run.created})
            kept = wandb.Artifact(f"stash-{run.id[:10]}", type="stash-profile")
            with kept.new_file(f"{run.id}.stash.json", mode="wb") as file:
                file.write(run.artefact)
            logged.log_artifact(kept)
    return len(runs)

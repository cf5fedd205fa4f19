"""``stash export``: profiles handed to MLflow, Weights & Biases, TensorBoard, or written as OpenMetrics text.

Parses, prepares what is handed over, hands it over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import StashError, UserError, one_line
from stash.base.printable import printable_line
from stash.cli.options import PublicOption, flag, option
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.show.export import ExportedRun

TOOLS = {"mlflow": "MLflow", "wandb": "Weights & Biases", "tensorboard": "TensorBoard", "openmetrics": "OpenMetrics"}
RUNS_HELP = "Profiles: files, or ids of the store."


def export(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help=RUNS_HELP, show_default=False)],
    to: Annotated[str, option("TOOL", f"One of {', '.join(TOOLS)}.", "--to")],
    output: Annotated[
        Path | None, option("PATH", "TensorBoard's folder; OpenMetrics' file, else it is printed.", "-o", "--output")
    ] = None,
    project: Annotated[str, option("NAME", "MLflow's experiment; W&B's project.")] = "stash",
    url: Annotated[str | None, option("URL", "MLflow's tracking server, or W&B's; else as they are set up.")] = None,
    redact: Annotated[bool, flag("--redact", "Leave out names of machines, paths and addresses.")] = False,
    public: PublicOption = False,
    store: StoreOption = None,
) -> None:
    """Hand profiles to another tool: what was measured, on what, and the verdict.

    [bold]Examples[/bold]

      stash export today.stash.json --to mlflow --url http://mlflow:5000
      WANDB_MODE=offline stash export *.stash.json --to wandb --project speed
      stash export *.stash.json --to tensorboard -o tb/
      stash export 3f9a --to openmetrics --public -o /var/lib/node_exporter/stash.prom
    """
    from stash.cli.runs import profile_of
    from stash.keep.redaction import redacted
    from stash.show.export.runs import exported

    if to not in TOOLS:
        raise UserError(f"--to {to}: it is one of {', '.join(TOOLS)}")
    _refuse_what_does_not_fit(to, output, url)
    found = {place: profile for profile, place in (profile_of(word, store) for word in runs)}
    told = [exported(redacted(profile) if redact else profile) for profile in found.values()]
    if to == "openmetrics":
        _text(told, output, public)
        return
    try:
        said = _handed_over(told, to, output, project, url)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != to:
            raise
        raise UserError(f"--to {to} needs a package that is not installed: pip install 'stash-ddl[{to}]'") from None
    except StashError:
        raise
    except Exception as error:  # whatever the tool's own package raises
        raise StashError(f"{TOOLS[to]} did not take the profiles: {one_line(error)}") from error
    print(printable_line(said))


def _refuse_what_does_not_fit(to: str, output: Path | None, url: str | None) -> None:
    if to == "tensorboard" and output is None:
        raise UserError("--to tensorboard needs a folder: --output tb/, which `tensorboard --logdir tb/` shows")
    if to in ("mlflow", "wandb") and output is not None:
        raise UserError(f"--output {output}: {TOOLS[to]} has a place of its own; say which with --url and --project")
    if to in ("tensorboard", "openmetrics") and url is not None:
        raise UserError(f"--url {url}: {TOOLS[to]} goes into files; say where with --output")


def _handed_over(runs: Sequence[ExportedRun], to: str, output: Path | None, project: str, url: str | None) -> str:
    """What was done, as a sentence."""
    if to == "tensorboard":
        from stash.show.export import tensorboard

        assert output is not None
        tensorboard.write(runs, output)
        return f"Runs in {output}: {len(runs)}; `tensorboard --logdir {output}` shows them"
    if to == "mlflow":
        from stash.show.export import mlflow

        new = mlflow.write(runs, project, url)
        return f"New runs in MLflow's experiment {project}: {new}; there already: {len(runs) - new}"
    from stash.show.export import wandb

    return f"Runs in W&B's project {project}: {wandb.write(runs, project, url)}"


def _text(runs: Sequence[ExportedRun], output: Path | None, public: bool) -> None:
    from stash.base.files import write_whole
    from stash.show.export.openmetrics import render

    text = render(runs)
    if output is None:
        print(text, end="")
        return
    try:
        write_whole(output, text, mode=0o666 if public else None)
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}; choose another place") from None

"""The ``stash`` command: gathers the commands, prints errors, picks exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from stash.catalog.command import app as catalog_app
from stash.cli.show_command import figures, report, show
from stash.core.errors import StashError
from stash.core.printable import printable, printable_line, shortened
from stash.core.secrets import masked_text
from stash.lab.command import dataset_app, testbed_app, zoo
from stash.measure.command import probe, profile
from stash.measure.restore_command import restore, restore_what_is_left
from stash.plan.check_command import check_plan
from stash.plan.command import recommend
from stash.report.command import check, compare, export
from stash.spot.commands.app import app as spot_app
from stash.store.command import app as store_app
from stash.store.command import list_command, query
from stash.study.command import characterize
from stash.study.features_command import features
from stash.ui.arguments import ProfileCommand, readers_may_leave
from stash.ui.options import App
from stash.whatif.command import whatif

# Some versions of typer carry a click of their own, so its error classes are reached through typer's.
_ClickException: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
_MAX_CHARACTERS = 4_000
"""Of an error: a job's exception can be any length; the log that is named beside it has the whole."""

app = App(
    name="stash",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_MEASURE, _LOOK, _CHOOSE, _KEEP, _AROUND = (
    "Measure", "Look at what was measured", "Predict, and choose what to rent", "Keep and hand on", "Around it",
)  # fmt: skip
app.command(cls=ProfileCommand, context_settings={"allow_interspersed_args": False}, rich_help_panel=_MEASURE)(
    profile
)
app.command(rich_help_panel=_MEASURE)(probe)
app.command(rich_help_panel=_MEASURE)(characterize)
app.command(rich_help_panel=_LOOK)(show)
app.command(rich_help_panel=_LOOK)(report)
app.command(rich_help_panel=_LOOK)(figures)
app.command(rich_help_panel=_LOOK)(compare)
app.command(rich_help_panel=_LOOK)(check)
app.command(rich_help_panel=_CHOOSE)(recommend)
app.command("check-plan", rich_help_panel=_CHOOSE)(check_plan)
app.command(rich_help_panel=_CHOOSE)(whatif)
app.command(rich_help_panel=_CHOOSE)(features)
app.add_typer(spot_app, name="spot", rich_help_panel=_CHOOSE)
app.command("list", rich_help_panel=_KEEP)(list_command)
app.command(rich_help_panel=_KEEP)(query)
app.command(rich_help_panel=_KEEP)(export)
app.add_typer(store_app, name="store", rich_help_panel=_KEEP)
app.add_typer(catalog_app, name="catalog", rich_help_panel=_AROUND)
app.command(rich_help_panel=_AROUND)(restore)
app.command(rich_help_panel=_AROUND)(zoo)
app.add_typer(dataset_app, name="dataset", rich_help_panel=_AROUND)
app.add_typer(testbed_app, name="testbed", rich_help_panel=_AROUND)


def _version(wanted: bool) -> None:
    if wanted:
        from stash.core.version import __version__

        print(f"stash {__version__}")
        raise typer.Exit


@app.callback()
def stash(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Where does my training time go? Profile a PyTorch job; every millisecond gets a name."""
    if ctx.invoked_subcommand != "restore":
        restore_what_is_left()


def main() -> None:
    """Run the command and exit."""
    with readers_may_leave():
        code = _run()
    # An interrupt that passed through an ``exec`` (every dataclass is made by one) is forgotten by the next: under -m
    # Python would die of SIGINT instead of ending with the code.
    exec("")
    if sys.flags.inspect:  # PYTHONINSPECT: Python would show the end as an error, and ask for more
        os._exit(code)
    sys.exit(code)


def _run() -> int:
    """The command's exit code, its error printed."""
    try:
        return app(standalone_mode=False) or 0
    except StashError as error:
        said = printable(masked_text(shortened(str(error), _MAX_CHARACTERS)))
        print(f"error: {said}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except _ClickException as error:
        error.message = printable_line(error.message)
        error.show()
        return 2

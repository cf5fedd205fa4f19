"""The ``stash`` command: a table of the commands, errors printed, exit codes picked."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stash.core.errors import StashError, UserError, error_document
from stash.core.printable import printable, printable_line, shortened, strict_json
from stash.core.secrets import masked_text
from stash.measure.restore_command import restore_what_is_left
from stash.ui.arguments import readers_may_leave
from stash.ui.commands import App, LazyCommand, LazyGroup

# Some versions of typer carry a click of their own, so its error classes are reached through typer's.
_ClickException: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
_MAX_CHARACTERS = 4_000
"""Of an error: a job's exception can be any length; the log that is named beside it has the whole."""

_MEASURE, _LOOK, _CHOOSE, _KEEP, _AROUND = (
    "Measure", "Look at what was measured", "Predict, and choose what to rent", "Keep and hand on", "Around it",
)  # fmt: skip
COMMANDS: Mapping[str, LazyCommand] = {
    name: LazyCommand(f"stash.{module}", function, panel, help)
    for name, module, function, panel, help in (
        ("profile", "measure.command", "profile", _MEASURE,
         "Profile a training job: every millisecond of a step attributed to compute or to a stall."),
        ("probe", "measure.command", "probe", _MEASURE,
         "Find out what this machine really has: its links measured, beside what its type should have."),
        ("characterize", "study.command", "characterize", _MEASURE,
         "Measure workloads × batches × machines: one study file in, profiles in a store out."),
        ("show", "cli.show_command", "show", _LOOK,
         "Show where a step's time goes: every stall with its interval, what dominates, what to do next."),
        ("report", "cli.show_command", "report", _LOOK,
         "Write a report to forward: one HTML file that needs nothing beside it, with every chart's table."),
        ("figures", "cli.show_command", "figures", _LOOK,
         "Write every chart of a report, ready for paper: fonts embedded, colours that the colour-blind tell apart."),
        ("compare", "report.command", "compare", _LOOK,
         "Say what differs between runs of a job, stall by stall, and whether more than chance is shown."),
        ("check", "report.command", "check", _LOOK,
         "Check that a job keeps its limits: exit code 0 if it does, 1 if it does not, 3 if unknown."),
        ("recommend", "plan.command", "recommend", _CHOOSE,
         "Say what to rent for a job: the cheapest in time, or the fastest for the money, and which dollars are "
         "stalls."),
        ("check-plan", "plan.check_command", "check_plan", _CHOOSE,
         "Hold a plan against what was measured later: which intervals held, and which assumption failed."),
        ("whatif", "whatif.command", "whatif", _CHOOSE,
         "Say what a step would be on machines never touched, beside what was measured, and how sure that is."),
        ("features", "study.features_command", "features", _CHOOSE,
         "Say how the communication stall grows with a model's layers and gradients, and how wrong that is."),
        ("spot", "spot.commands.app", "app", _CHOOSE,
         "Training on rented machines through parameter servers: how fast, how long, and which are cheapest."),
        ("list", "store.command", "list_command", _KEEP,
         "List the profiles and probes of a store, or of any folder, the newest first."),
        ("query", "store.command", "query", _KEEP, "Ask a store, or a folder of profiles, a question in SQL."),
        ("export", "report.command", "export", _KEEP,
         "Hand profiles to another tool: what was measured, on what, and the verdict."),
        ("store", "store.command", "app", _KEEP,
         "Keep profiles and probes in a folder, or wherever fsspec reaches: add, compact, verify."),
        ("mcp", "mcp_server.command", "mcp", _AROUND,
         "Serve Stash's tools to an agent, by the Model Context Protocol on standard input and output."),
        ("catalog", "catalog.command", "app", _AROUND,
         "List what can be rented, cheapest first, with the price, its date and its source."),
        ("restore", "measure.restore_command", "restore", _AROUND,
         "Put back the files that a profile had replaced when it was killed."),
        ("zoo", "lab.command", "zoo", _AROUND, "List the workloads that come with Stash."),
        ("dataset", "lab.command", "dataset_app", _AROUND,
         "Make data sets that are as large, and as slow to read, as real ones."),
        ("testbed", "lab.command", "testbed_app", _AROUND,
         "An emulated cluster on this machine: namespaces as hosts, links with set rates."),
    )
}  # fmt: skip


class _Commands(LazyGroup):
    table = COMMANDS


app = App(
    name="stash",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
        text = printable(masked_text(shortened(str(error), _MAX_CHARACTERS)))
        if error.as_json:
            print(strict_json(error_document(error.code, text)))
        print(f"error: {text}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except _ClickException as error:
        error.message = printable_line(error.message)
        if getattr(error, "as_json", False):
            print(strict_json(error_document(UserError.code, error.format_message())))
        error.show()
        return 2

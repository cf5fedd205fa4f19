"""The ``stash`` command: a table of the commands, errors printed, exit codes picked."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from stash.cli import completion
from stash.core.errors import StashError, UserError, error_document
from stash.core.printable import printable, printable_line, shortened, strict_json
from stash.ui.arguments import readers_may_leave
from stash.ui.commands import App, LazyCommand, LazyGroup

# Some versions of typer carry a click of their own, so its error classes are reached through typer's.
_ClickException: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
_MAX_CHARACTERS = 4_000
"""Of an error: a job's exception can be any length; the log that is named with it has the whole."""

_MEASURE, _READ, _CHOOSE, _SHARE, _AROUND = (
    "Measure", "Read what was measured", "Predict, and choose what to rent", "Keep and share",
    "Experiment, and clean up",
)  # fmt: skip
COMMANDS: Mapping[str, LazyCommand] = {
    name: LazyCommand(f"stash.{module}", function, panel, help)
    for name, module, function, panel, help in (
        ("profile", "measure.command", "profile", _MEASURE,
         "Profile a training job: every millisecond of a step attributed to compute or to a stall."),
        ("fix", "fix.command", "fix", _MEASURE,
         "Make a training script faster: try changes on it, prove what they save, write a patch."),
        ("probe", "measure.command", "probe", _MEASURE,
         "Find out what this machine really has: its links measured, next to what its type should have."),
        ("watch", "monitor.command", "watch", _MEASURE,
         "Watch a training run to its end: stalls and stragglers while it lasts, and alerts when they change."),
        ("characterize", "study.command", "characterize", _MEASURE,
         "Measure workloads × batches × machines: one study file in, profiles in a store out."),
        ("show", "cli.show_command", "show", _READ,
         "Show where a step's time goes: every stall with its interval, what dominates, what to do next."),
        ("report", "cli.report_command", "report", _READ,
         "Write a report to forward: one HTML file that needs nothing else, or Markdown, or each chart as a "
         "picture."),
        ("compare", "report.command", "compare", _READ,
         "Say what differs between runs of a job, stall by stall, and whether more than chance is shown."),
        ("check", "cli.check_command", "check", _READ,
         "Check that a job keeps its limits, or its plan: exit code 0 if it does, 1 if it does not, 3 if unknown."),
        ("recommend", "plan.command", "recommend", _CHOOSE,
         "Say what to rent for a job: the cheapest in time, or the fastest for the money, and which dollars are "
         "stalls."),
        ("whatif", "cli.whatif_command", "whatif", _CHOOSE,
         "Say what a step would be on machines never touched, next to what was measured, and how sure that is."),
        ("catalog", "catalog.command", "app", _CHOOSE,
         "List what can be rented, cheapest first, with the price, its date and its source."),
        ("spot", "spot.commands.app", "app", _CHOOSE,
         "Training on rented machines through parameter servers: how fast, how long, and which are cheapest."),
        ("schedule", "schedule.command", "app", _CHOOSE,
         "Schedule many jobs on unlike GPUs: which policy pays, what to run where, whether the cluster is worth it."),
        ("market", "market.command", "app", _CHOOSE,
         "Replay a job over recorded prices and availability: which rule to follow, its cost, and what to do now."),
        ("list", "store.command", "list_command", _SHARE,
         "List the profiles and probes of a store, or of any folder, the newest first."),
        ("query", "store.command", "query", _SHARE, "Ask a store, or a folder of profiles, a question in SQL."),
        ("export", "report.command", "export", _SHARE,
         "Hand profiles to another tool: what was measured, on what, and the verdict."),
        ("store", "store.command", "app", _SHARE,
         "Keep profiles and probes in a folder, or wherever fsspec reaches: add, verify."),
        ("lab", "lab.command", "app", _AROUND,
         "Workloads, data sets and an emulated cluster: what experiments on this machine need."),
        ("mcp", "mcp_server.command", "mcp", _AROUND,
         "Serve Stash's tools to an agent, by the Model Context Protocol on standard input and output."),
        ("run", "fix.command", "run", _AROUND,
         "Run a script with the environment variables and CPU affinity that `stash fix` chose."),
        ("restore", "measure.restore_command", "restore", _AROUND,
         "Put back the files that a profile had replaced when it was killed."),
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


def _at_once(*names: str, does: Callable[..., None], help: str) -> Any:
    """An option that does something else in place of a command."""
    return typer.Option(*names, metavar="", callback=does, is_eager=True, expose_value=False, help=help)


_TAB = "Let the Tab key of this shell (bash, zsh, fish) complete commands and options."


@app.callback()
def stash(
    ctx: typer.Context,
    version: Annotated[bool, _at_once("--version", "-V", does=_version, help="Print the version.")] = False,
    install_completion: Annotated[bool, _at_once("--install-completion", does=completion.install, help=_TAB)] = False,
    show_completion: Annotated[
        bool, _at_once("--show-completion", does=completion.show, help="Print the script that does.")
    ] = False,
) -> None:
    """Where does my training time go? Profile a PyTorch job; every millisecond gets a name."""
    if ctx.invoked_subcommand != "restore":
        from stash.measure.restore_command import restore_what_is_left

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
    completion.prepare()
    try:
        return app(standalone_mode=False, complete_var=completion.ASKED) or 0
    except StashError as error:
        from stash.core.secrets import masked_text

        text = printable(masked_text(shortened(str(error), _MAX_CHARACTERS)))
        if error.as_json:
            print(strict_json(error_document(error.code, text)))
        print(f"error: {text}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        named = printable_line(shortened(os.fsdecode(error.filename or ""), 200))
        print(f"error: {named} is longer than any name of a file can be; name another", file=sys.stderr)
        return UserError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except _ClickException as error:
        text = printable_line(_sentence(error))
        if getattr(error, "as_json", False):
            print(strict_json(error_document(UserError.code, text)))
        print(f"error: {text}", file=sys.stderr)
        return 2


def _sentence(error: Any) -> str:
    """What the parser refused, in the voice of all errors: what happened, and what to type."""
    words = error.ctx.command_path.split() if getattr(error, "ctx", None) is not None else []
    command = " ".join(["stash", *words[words.index("stash") + 1 if "stash" in words else 1 :]])
    text = error.format_message().rstrip(".")
    return f"{command}: {text[:1].lower()}{text[1:]}; type `{command} --help` for what there is"

"""The ``stash`` command: a table of the commands, errors printed, exit codes picked."""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stash.core.errors import StashError, UserError, error_document
from stash.core.printable import (
    choose_colours,
    has_colours,
    printable,
    printable_line,
    shorten_text,
    strict_json,
)
from stash.ui.arguments import readers_may_leave
from stash.ui.commands import HELP_ALL, App, LazyCommand, LazyGroup

# Some versions of typer carry a click of their own, so its error classes are reached through typer's.
_ClickException: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)
_GUESSES = re.compile(r"[.\s]*\(?(?:Did you mean|Possible options:)(?: one of:)?(.*)$", re.DOTALL)
"""How the parser names what may have been meant."""
_MAX_CHARACTERS = 4_000
"""Of an error: a job's exception can be any length; the log that is named with it has the whole."""

_MEASURE, _READ, _CHOOSE, _SHARE, _AROUND = (
    "Measure",
    "Read what was measured",
    "Predict, and choose what to rent",
    "Keep and share",
    "Experiment, and clean up",
)
COMMANDS: Mapping[str, LazyCommand] = {
    name: LazyCommand(f"stash.{module}", function, panel, help)
    for name, module, function, panel, help in (
        (
            "profile",
            "measure.command",
            "profile",
            _MEASURE,
            "Profile a training job: split every step into compute and stalls.",
        ),
        (
            "fix",
            "fix.command",
            "fix",
            _MEASURE,
            "Make a training script faster: try changes, prove savings, write a patch.",
        ),
        (
            "probe",
            "measure.command",
            "probe",
            _MEASURE,
            "Measure this machine and its links, and say whether to keep it.",
        ),
        (
            "watch",
            "monitor.command",
            "watch",
            _MEASURE,
            "Watch a training run to its end: stalls, stragglers and alerts.",
        ),
        (
            "characterize",
            "study.command",
            "characterize",
            _MEASURE,
            "Measure every workload, batch and machine of a study file.",
        ),
        (
            "show",
            "cli.show_command",
            "show",
            _READ,
            "Show where a step's time goes and what to do next.",
        ),
        (
            "report",
            "cli.report_command",
            "report",
            _READ,
            "Write a report to share: one HTML file, Markdown or pictures.",
        ),
        (
            "trace",
            "trace.command",
            "trace",
            _READ,
            "Read profiler traces: what exchange and waiting cost, which rank is late.",
        ),
        (
            "compare",
            "report.command",
            "compare",
            _READ,
            "Compare runs of a job, stall by stall, with intervals.",
        ),
        (
            "check",
            "plan.check_command",
            "check",
            _READ,
            "Check a job against limits, a baseline or a plan.",
        ),
        (
            "recommend",
            "plan.command",
            "recommend",
            _CHOOSE,
            "Recommend what to rent for a job, by deadline and cost.",
        ),
        (
            "whatif",
            "whatif.whatif_options",
            "whatif",
            _CHOOSE,
            "Predict a step on other machines or with other settings.",
        ),
        (
            "catalog",
            "catalog.command",
            "app",
            _CHOOSE,
            "List machines to rent, cheapest first, with dates and sources of prices.",
        ),
        (
            "spot",
            "spot.commands.app",
            "app",
            _CHOOSE,
            "Plan and run training on spot machines with parameter servers.",
        ),
        (
            "schedule",
            "schedule.command",
            "app",
            _CHOOSE,
            "Schedule many jobs on different GPU types, and compare policies.",
        ),
        (
            "market",
            "market.command",
            "app",
            _CHOOSE,
            "Replay a job over recorded spot prices, and choose a policy.",
        ),
        (
            "list",
            "store.command",
            "list_command",
            _SHARE,
            "List the profiles and probes of a store or folder, newest first.",
        ),
        (
            "query",
            "store.command",
            "query",
            _SHARE,
            "Query a store or a folder of profiles with SQL.",
        ),
        (
            "export",
            "report.command",
            "export",
            _SHARE,
            "Export profiles to MLflow, W&B, TensorBoard or OpenMetrics.",
        ),
        (
            "store",
            "store.command",
            "app",
            _SHARE,
            "Add profiles and probes to a store, and verify it.",
        ),
        (
            "lab",
            "lab.command",
            "app",
            _AROUND,
            "Set up experiments on this machine: workloads, data sets, an emulated cluster.",
        ),
        (
            "mcp",
            "mcp_server.command",
            "mcp",
            _AROUND,
            "Serve Stash's tools to an agent over the Model Context Protocol.",
        ),
        (
            "run",
            "fix.command",
            "run",
            _AROUND,
            "Run a script with the environment `stash fix` chose.",
        ),
        (
            "restore",
            "measure.restore_command",
            "restore",
            _AROUND,
            "Put back the files that a killed profile had replaced.",
        ),
    )
}


class _Commands(LazyGroup):
    table = COMMANDS

    @property
    def uncommon(self) -> frozenset[str]:
        return frozenset(name for name, command in COMMANDS.items() if command.panel == _AROUND)


app = App(
    name="stash",
    cls=_Commands,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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
        bool,
        typer.Option(
            "--version",
            "-V",
            metavar="",
            callback=_version,
            is_eager=True,
            expose_value=False,
            help="Print the version.",
        ),
    ] = False,
    color: Annotated[
        str, typer.Option(metavar="WHEN", help="Use colours: auto, always or never.")
    ] = "auto",
    help_all: Annotated[bool, HELP_ALL] = False,
) -> None:
    """Where does my training time go? Profile a PyTorch job; every millisecond gets a name."""
    if color not in ("auto", "always", "never"):
        raise UserError(f"--color {color}: use auto, always or never")
    choose_colours(color)
    if ctx.invoked_subcommand != "restore":
        from stash.measure.restore_command import restore_what_is_left

        restore_what_is_left()


def main() -> None:
    """Run the command and exit."""
    try:
        with readers_may_leave():
            code = _run()
    finally:
        choose_colours("auto")  # for who calls this again
    # An interrupt that passed through an ``exec`` (every dataclass is made by one) is forgotten by the next: under -m
    # Python would die of SIGINT instead of ending with the code.
    exec("")
    if sys.flags.inspect:  # PYTHONINSPECT: Python would show the end as an error, and ask for more
        os._exit(code)
    sys.exit(code)


def _run() -> int:
    """The command's exit code, its error printed."""
    try:
        return app(standalone_mode=False, prog_name="stash") or 0
    except StashError as error:
        from stash.core.secrets import mask_text

        text = printable(mask_text(shorten_text(str(error), _MAX_CHARACTERS)))
        if error.as_json:
            print(strict_json(error_document(error.code, text)))
        _print_error(text)
        return error.exit_code
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        named = printable_line(shorten_text(os.fsdecode(error.filename or ""), 200))
        _print_error(f"{named} is longer than any name of a file can be; name another")
        return UserError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except _ClickException as error:
        if (
            type(error).__name__ == "NoArgsIsHelpError"
        ):  # its message is the help, which is no error
            error.show()
            return 2
        text = printable_line(_sentence(error))
        if getattr(error, "as_json", False):
            print(strict_json(error_document(UserError.code, text)))
        _print_error(text)
        return 2


def _print_error(text: str) -> None:
    """One sentence on standard error, its first word red where colours are wanted."""
    colour = has_colours(sys.stderr.isatty(), os.environ)
    print("\x1b[1;31merror:\x1b[0m" if colour else "error:", text, file=sys.stderr)


def _sentence(error: Any) -> str:
    """What the parser refused, in the voice of all errors: what happened, and what to type."""
    words = error.ctx.command_path.split() if getattr(error, "ctx", None) is not None else []
    command = " ".join(["stash", *words[words.index("stash") + 1 if "stash" in words else 1 :]])
    text = error.format_message()
    guesses = _GUESSES.search(text)
    if guesses is not None:
        names = re.findall(r"(?:--?)?\w[\w-]*(?=['),?]|$)", guesses[1])
        text = f"{text[: guesses.start()]} (did you mean {' or '.join(names)}?)"
    text = text.rstrip(".")
    next_command = _suggest_command(error, command) or f"{command} --help` to see what there is"
    return f"{command}: {text[:1].lower()}{text[1:]}; type `{next_command}"


_UNKNOWN_FILE = re.compile(r"No such command '(.*)'", re.DOTALL)
_NEEDS_FILE = {
    "show": "train.stash.json",
    "report": "train.stash.json",
    "compare": "before.stash.json after.stash.json",
    "check": "train.stash.json --max prep=10%",
    "export": "train.stash.json --to tensorboard",
}


def _suggest_command(error: Any, command: str) -> str:
    """The rest of ``type `...``, where it is known better than the help: empty where it is not."""
    text, words = error.format_message(), command.split()
    typed = _UNKNOWN_FILE.search(text)
    if typed is not None and words == ["stash"]:
        name = printable_line(typed[1])
        if name.endswith(".py"):
            return f"stash profile {shlex.quote(name)}` to see where its time goes"
        if name.endswith((".json", ".jsonl")):
            return f"stash show {shlex.quote(name)}` to read it"
        return ""
    if type(error).__name__ == "MissingParameter" and words[1:] and words[1] in _NEEDS_FILE:
        command = f"{' '.join(words)} {_NEEDS_FILE[words[1]]}"
        return f"{command}`; `stash profile train.py` writes such a file"
    if "'--with'" in text and words == ["stash", "run"]:
        return "stash run --with train.fix.json train.py`; `stash fix train.py` writes the first"
    return ""

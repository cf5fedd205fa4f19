"""``stash show``: reads a profile and prints where its step's time went; or what a probe, a plan or a run's log says.

Parses, loads, shows: everything it says comes from ``stash.derive`` and ``stash.show``.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.cli.options import flag, option
from stash.cli.output import print_probe, print_profile
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.base.records import Probe, Profile
    from stash.cli.runs import FoundRun

FILE_HELP = (
    "A *.stash.json file of `stash profile`, a *.host.json of `stash probe`, a *.plan.json, a *.spotlog.json of "
    "`stash spot run`; or a store's id."
)
JSON_HELP = "Print the breakdown as JSON, for other programs; its keys are a contract (docs/format.md)."


def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help=FILE_HELP, show_default=False)],
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
    explain: Annotated[bool, flag("--explain", "Say also what each word of a profile's report means.")] = False,
    redact: Annotated[bool, flag("--redact", "Leave out names of machines, paths and addresses.")] = False,
    output: Annotated[
        Path | None, option("FILE", "With --redact: save what is left, to be passed on.", "-o", "--output")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Show where a step's time goes: every stall with its interval, what dominates, what to do next.

    Examples:

        stash show resnet18.stash.json

        stash show resnet18.stash.json --json | jq '.stalls[] | {name, seconds}'

        stash show resnet18.stash.json --redact -o shared.stash.json
    """
    from stash.base.records import Probe, Profile
    from stash.cli.runs import found as run_of
    from stash.keep.plans import is_plan
    from stash.keep.spotlogs import is_spot_log

    made = "a plan" if is_plan(file) else "a log of a run" if is_spot_log(file) else None
    if made is not None:
        if redact or explain:
            refused = "--redact" if redact else "--explain"
            raise UserError(f"{refused} is about profiles, and {file} is {made}; leave it out")
        (_print_plan if made == "a plan" else _print_spot_log)(file, json)
        return
    if output is not None and not redact:
        raise UserError(f"--output {output} belongs to --redact: it saves what is left of a profile to be passed on")
    with no_garbage():
        run = run_of(str(file), store)
        found = _fit_to_share(run, output) if redact else run.artefact
        if explain and (json or isinstance(found, Probe)):
            raise UserError("--explain is about the report of a profile; type `stash show NAME.stash.json --explain`")
        if isinstance(found, Profile):
            print_profile(found, json, source=Path(file), explain=explain)
        else:
            from stash.keep.catalog import load as load_catalog

            print_probe(found, load_catalog(), saved=Path(file), json=json)


def _print_plan(file: str, json: bool) -> None:
    """A saved plan as `stash recommend` printed it."""
    from stash.cli.output import printed
    from stash.keep.fleets import is_fleet_plan
    from stash.keep.plans import load_plan
    from stash.show.plan.contract import document
    from stash.show.plan.terminal import render
    from stash.show.plan.view import view

    if is_fleet_plan(Path(file)):
        _print_fleet_plan(Path(file), json)
        return
    plan = load_plan(file)
    printed(document(plan) if json else view(plan), render)


def _print_fleet_plan(file: Path, json: bool) -> None:
    """A saved plan as `stash spot plan` printed it."""
    from stash.cli.output import printed
    from stash.keep.fleets import read_plan
    from stash.show.spot.planned import document, render, view

    plan = read_plan(file)
    printed(document(plan) if json else view(plan, file.name), render)


def _print_spot_log(file: str, json: bool) -> None:
    """A run's log as `stash spot run` ended."""
    from stash.cli.output import printed
    from stash.keep.spotlogs import load_spot_log
    from stash.show.spot.ran import document, render, view

    log = load_spot_log(file)
    printed(document(log) if json else view(log), render)


def _fit_to_share(run: FoundRun, output: Path | None) -> Profile | Probe:
    """The artefact without names and paths, saved if there is a file to save it to."""
    from stash.cli.output import output_file
    from stash.keep.artefact import save
    from stash.keep.redaction import redacted

    found = redacted(run.artefact)
    if output is not None:
        if str(output.resolve()) == run.place:
            raise UserError(
                f"--output {output} is the profile itself, which would lose its names; choose another file"
            )
        save(found, output_file(output, "", ""))
        print(printable_line(f"Saved {output}: no names of machines, no paths, no addresses."), file=sys.stderr)
    return found


@contextmanager
def no_garbage() -> Iterator[None]:
    """A large job's blocks are all needed to the end: looking for garbage among them would take half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""``stash show``: reads a profile and prints where its step's time went, or a probe and what a machine has.

Parses, loads, shows: everything it says comes from ``stash.derive`` and ``stash.show``.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag
from stash.cli.output import print_probe, print_profile
from stash.cli.storing import StoreOption

FILE_HELP = "A *.stash.json file of `stash profile`, or a *.host.json file of `stash probe`; or an id of the store."
JSON_HELP = "Print the breakdown as JSON, for other programs; its keys are a contract (docs/format.md)."


def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help=FILE_HELP, show_default=False)],
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
    explain: Annotated[bool, flag("--explain", "Say also what each word of a profile's report means.")] = False,
    store: StoreOption = None,
) -> None:
    """Show where a step's time goes: every stall with its interval, what dominates, what to do next.

    Examples:

        stash show resnet18.stash.json

        stash show resnet18.stash.json --json | jq '.stalls[] | {name, seconds}'
    """
    from stash.base.records import Probe, Profile
    from stash.cli.runs import found as run_of

    with _no_garbage():
        found = run_of(file, store).artefact
        if explain and (json or isinstance(found, Probe)):
            raise UserError("--explain is about the report of a profile; type `stash show NAME.stash.json --explain`")
        if isinstance(found, Profile):
            print_profile(found, json, source=Path(file), explain=explain)
        else:
            from stash.keep.catalog import load as load_catalog

            print_probe(found, load_catalog(), saved=Path(file), json=json)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """A large job's blocks are all needed to the end: looking for garbage among them would take half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

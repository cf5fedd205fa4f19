"""``stash show``: reads a profile and prints where its step's time went, or a probe and what a machine has.

Parses, calls the library, renders: everything it says comes from ``stash.derive.stalls`` and ``stash.show``.
"""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stash.base.records import Profile

FILE_HELP = "A *.stash.json file of `stash profile`, or a *.host.json file of `stash probe`."
JSON_HELP = "Print the breakdown as JSON, for other programs; its keys are a contract (docs/format.md)."


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=FILE_HELP, show_default=False)],
    json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Show where a step's time goes: every stall with its interval, what dominates, what to do next.

    Examples:

        stash show resnet18.stash.json

        stash show resnet18.stash.json --json | jq '.stalls[] | {name, seconds}'
    """
    from stash.keep.artefact import is_probe, load, load_probe

    if is_probe(file):
        from stash.cli.probe import print_probe
        from stash.keep.catalog import load as load_catalog

        print_probe(load_probe(file), load_catalog(), saved=file, json=json)
        return
    print_profile(load(file), json, source=file)


def print_profile(profile: Profile, json: bool = False, source: Path | None = None) -> None:
    """Print a profile's breakdown, as a report or as the JSON of the contract."""
    from stash.derive.advise import verdict
    from stash.derive.stalls import attribute

    breakdown = attribute(profile, None if source is None else str(source))
    advice = verdict(breakdown, profile)
    if json:
        from stash.show.profile.contract import document

        print(jsonlib.dumps(document(breakdown, advice), indent=1, ensure_ascii=False))
        return
    from stash.show.profile.terminal import render
    from stash.show.profile.view import view

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size().columns
    print(render(view(breakdown, advice, profile), width, colour), end="")

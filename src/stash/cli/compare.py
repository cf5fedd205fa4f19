"""``stash compare``: two sides of profiles, what differs between them, and whether that is shown.

Parses, loads, shows: what it says comes from ``stash.derive.comparison`` and ``stash.show.comparison``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag

if TYPE_CHECKING:
    from stash.base.records import Profile
    from stash.derive.comparison import DifferingFact

FILES_HELP = "Profiles: the first is compared with each other one; with the word vs, all before it with all after it."
JSON_HELP = "Print the comparison as JSON, a list of one document per pair; its keys are a contract (docs/format.md)."
ANYWAY_HELP = "Compare even different jobs (another workload, batch, precision, number of ranks, or rungs)."


def compare(
    files: Annotated[list[str], typer.Argument(metavar="BEFORE... [vs] AFTER...", help=FILES_HELP)],
    anyway: Annotated[bool, flag("--anyway", ANYWAY_HELP)] = False,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
) -> None:
    """Say what differs between runs of a job, stall by stall, and whether more than chance is shown.

    Examples:

        stash compare monday.stash.json today.stash.json

        stash compare before-*.stash.json vs after-*.stash.json
    """
    from stash.cli.output import print_comparisons
    from stash.derive.comparison import incomparable

    profiles: dict[str, Profile] = {}
    pairs = sides(files)
    for names in (name for pair in pairs for side in pair for name in side):
        profiles.setdefault(names, read(names))
    loaded = [([profiles[name] for name in before], [profiles[name] for name in after]) for before, after in pairs]
    different = [incomparable(before, after) for before, after in loaded]
    refused = next((index for index, facts in enumerate(different) if facts), None)
    if refused is not None and not anyway:
        raise UserError(_refusal(pairs[refused], different[refused]))
    print_comparisons(pairs, loaded, different, json)


def read(name: str) -> Profile:
    """The profile of that file; raises UserError if it is a probe."""
    from stash.base.records import Profile
    from stash.keep.artefact import load_any

    found = load_any(Path(name))
    if not isinstance(found, Profile):
        raise UserError(f"{name} is a probe of a machine; give the *.stash.json files of `stash profile`")
    return found


Side = tuple[str, ...]


def sides(words: Sequence[str]) -> list[tuple[Side, Side]]:
    """The pairs of sides that the words of the command line ask for; raises UserError."""
    if "vs" in words:
        at = words.index("vs")
        pairs = [(tuple(words[:at]), tuple(words[at + 1 :]))]
    else:
        pairs = [((words[0],), (name,)) for name in words[1:]]
    if not pairs or not all(before and after for before, after in pairs):
        raise UserError("stash compare needs two profiles, like `stash compare monday.stash.json today.stash.json`")
    for before, after in pairs:
        twice = _in_both(before, after)
        if twice is not None:
            raise UserError(f"{twice} is on both sides: a profile does not differ from itself")
    return pairs


def _in_both(before: Side, after: Side) -> str | None:
    places = [Path(name).resolve() for name in (*before, *after)]
    repeated = [name for name, place in zip((*before, *after), places, strict=True) if places.count(place) > 1]
    return repeated[0] if repeated else None


def _refusal(pair: tuple[Side, Side], facts: Sequence[DifferingFact]) -> str:
    told = ", ".join(f"{fact.name} ({fact.before} and {fact.after})" for fact in facts)
    return f"{pair[0][0]} and {pair[1][0]} are different jobs, in {told}; compare them all the same with --anyway"

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
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.derive.comparison import DifferingFact

FILES_HELP = "Profiles: the first is compared with each other one; with the word vs, all before it with all after it."
JSON_HELP = "Print the comparison as JSON, a list of one document per pair; its keys are a contract (docs/format.md)."
ANYWAY_HELP = "Compare even different jobs (another workload, batch, precision, number of ranks, or rungs)."


def compare(
    files: Annotated[list[str], typer.Argument(metavar="BEFORE... [vs] AFTER...", help=FILES_HELP)],
    anyway: Annotated[bool, flag("--anyway", ANYWAY_HELP)] = False,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
    store: StoreOption = None,
) -> None:
    """Say what differs between runs of a job, stall by stall, and whether more than chance is shown.

    Examples:

        stash compare monday.stash.json today.stash.json

        stash compare before-*.stash.json vs after-*.stash.json
    """
    from stash.cli.output import print_comparisons
    from stash.cli.runs import profile_of
    from stash.derive.comparison import incomparable

    pairs = sides(files)
    words = dict.fromkeys(word for pair in pairs for side in pair for word in side)
    runs = {word: profile_of(word, store) for word in words}
    for before, after in pairs:
        _refuse_itself((*before, *after), [runs[word][1] for word in (*before, *after)])
    loaded = [([runs[name][0] for name in before], [runs[name][0] for name in after]) for before, after in pairs]
    different = [incomparable(before, after) for before, after in loaded]
    refused = next((index for index, facts in enumerate(different) if facts), None)
    if refused is not None and not anyway:
        raise UserError(_refusal(pairs[refused], different[refused]))
    print_comparisons(pairs, loaded, different, json)


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
        words_of_both = (*before, *after)
        _refuse_itself(words_of_both, [str(Path(name).resolve()) for name in words_of_both])
    return pairs


def _refuse_itself(names: Side, places: Sequence[str]) -> None:
    """Raise UserError if one place has two of the names: by their paths before they are read, by their ids after."""
    twice = next((name for name, place in zip(names, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is on both sides: a profile does not differ from itself")


def _refusal(pair: tuple[Side, Side], facts: Sequence[DifferingFact]) -> str:
    told = ", ".join(f"{fact.name} ({fact.before} and {fact.after})" for fact in facts)
    return f"{pair[0][0]} and {pair[1][0]} are different jobs, in {told}; compare them all the same with --anyway"

"""``stash check``: limits that profiles must keep, for pipelines; an exit code for each of three answers.

Parses, loads, prints one line a limit.
"""

from __future__ import annotations

from typing import Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag, option
from stash.cli.storing import StoreOption

FILES_HELP = "Profiles of one job, of `stash profile`; several tell how launches differ."


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=FILES_HELP, show_default=False)],
    most: Annotated[list[str] | None, option("NAME=VALUE", "A limit: network=15%, step=250ms.", "--max")] = None,
    least: Annotated[list[str] | None, option("NAME=VALUE", "A limit from below: samples/s=90.", "--min")] = None,
    against: Annotated[list[str] | None, option("FILE", "A baseline's profile; may be repeated.")] = None,
    slower: Annotated[str | None, option("PERCENT", "How much slower than it a step may be.")] = None,
    json: Annotated[bool, flag("--json", "Print the decisions as JSON.")] = False,
    store: StoreOption = None,
) -> None:
    """Check that a job keeps its limits: exit code 0 if it does, 1 if it does not, 3 if nobody can tell.

    A limit passes or fails only if the whole 95 % interval does; where it holds the limit, a longer profile tells.

    Examples:

        stash check today.stash.json --max network=15% --max step=250ms

        stash check today.stash.json --against monday.stash.json --slower 5%
    """
    from stash.cli.output import print_decisions
    from stash.cli.runs import profile_of
    from stash.derive.comparison import (
        CANNOT_TELL,
        FAILS,
        PASSES,
        held,
        incomparable,
        not_slower,
        overall,
        parse,
        parse_slower,
    )
    from stash.derive.stalls import attribute

    limits = [parse("--max", text) for text in most or []] + [parse("--min", text) for text in least or []]
    if (against is None) is not (slower is None):
        raise UserError("--against FILE and --slower PERCENT belong together: give both, or neither")
    if not limits and against is None:
        raise UserError(
            "stash check needs a limit, like --max network=15% or --against monday.stash.json --slower 5%"
        )
    profiles = [profile_of(name, store)[0] for name in files]
    runs = [attribute(profile, name) for profile, name in zip(profiles, files, strict=True)]
    decisions = [held(limit, runs) for limit in limits]
    if against is not None and slower is not None:
        baseline = [profile_of(name, store)[0] for name in against]
        facts = incomparable(baseline, profiles)
        if facts:
            told = ", ".join(f"{fact.name} ({fact.before} and {fact.after})" for fact in facts)
            raise UserError(f"--against {against[0]}: it is another job, in {told}")
        before = [attribute(profile, name) for profile, name in zip(baseline, against, strict=True)]
        decisions.append(not_slower(parse_slower(slower), before, runs))
    print_decisions(decisions, json)
    raise typer.Exit({PASSES: 0, FAILS: 1, CANNOT_TELL: 3}[overall(decisions)])

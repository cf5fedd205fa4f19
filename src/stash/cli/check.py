"""``stash check``: limits that profiles must keep, for pipelines; an exit code for each of three answers.

Parses, loads, prints one line a limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import flag, option
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.base.records import Profile
    from stash.derive.comparison import Decision, Limit, Requirement, Tolerance

FILES_HELP = "Profiles of one job, of `stash profile`; several tell how launches differ."


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=FILES_HELP, show_default=False)],
    most: Annotated[list[str] | None, option("NAME=VALUE", "A limit: network=15%, step=250ms.", "--max")] = None,
    least: Annotated[list[str] | None, option("NAME=VALUE", "A limit from below: samples/s=90.", "--min")] = None,
    against: Annotated[list[str] | None, option("FILE", "A baseline's profile; may be repeated.")] = None,
    slower: Annotated[
        list[str] | None, option("[NAME=]PERCENT", "How much longer than its the step, or a stall, may be.")
    ] = None,
    require: Annotated[
        list[str] | None, option("NAME=VALUE", "A fact that must be so: ranks=8, precision=bfloat16.")
    ] = None,
    junit: Annotated[
        Path | None, option("FILE", "Write the decisions as JUnit XML, for a pipeline's report.")
    ] = None,
    json: Annotated[bool, flag("--json", "Print the decisions as JSON.")] = False,
    store: StoreOption = None,
) -> None:
    """Check that a job keeps its limits: exit code 0 if it does, 1 if it does not, 3 if nobody can tell.

    A limit passes or fails only if the whole 95 % interval does; where it holds the limit, a longer profile tells.

    Examples:

        stash check today.stash.json --max network=15% --max step=250ms

        stash check today.stash.json --against monday.stash.json --slower 5% --junit stash.xml

        stash check today.stash.json --require ranks=8 --require precision=bfloat16 --min samples/s=900
    """
    from stash.cli.output import print_decisions, save_junit
    from stash.cli.runs import profile_of
    from stash.derive.comparison import CANNOT_TELL, FAILS, PASSES, overall, parse, parse_requirement, parse_slower

    limits = [parse("--max", text) for text in most or []] + [parse("--min", text) for text in least or []]
    tolerances = [parse_slower(text) for text in slower or []]
    requirements = [parse_requirement(text) for text in require or []]
    if bool(against) is not bool(tolerances):
        raise UserError("--against FILE and --slower PERCENT belong together: give both, or neither")
    if not (limits or tolerances or requirements):
        raise UserError(
            "stash check needs a limit, like --max network=15% or --against monday.stash.json --slower 5%"
        )
    profiles = {name: profile_of(name, store)[0] for name in files}
    baseline = {name: profile_of(name, store)[0] for name in against or []}
    decisions = _decided(profiles, limits, requirements, baseline, tolerances)
    print_decisions(decisions, json)
    if junit is not None:
        save_junit(decisions, next(iter(profiles.values())).workload.name, junit)
    raise typer.Exit({PASSES: 0, FAILS: 1, CANNOT_TELL: 3}[overall(decisions)])


def _decided(
    profiles: Mapping[str, Profile],
    limits: Sequence[Limit],
    requirements: Sequence[Requirement],
    baseline: Mapping[str, Profile],
    tolerances: Sequence[Tolerance],
) -> list[Decision]:
    """What becomes of every limit, in the order of the options; raises UserError if the baseline is another job."""
    from stash.derive.comparison import held, incomparable, not_slower, required
    from stash.derive.stalls import attribute

    facts = incomparable(list(baseline.values()), list(profiles.values())) if baseline else ()
    if facts:
        differing = ", ".join(f"{fact.name} ({fact.before} and {fact.after})" for fact in facts)
        raise UserError(f"--against {next(iter(baseline))}: it is another job, in {differing}")
    before, after = ([attribute(profile, name) for name, profile in side.items()] for side in (baseline, profiles))
    return [
        *(required(requirement, profiles) for requirement in requirements),
        *(held(limit, after) for limit in limits),
        *(not_slower(tolerance, before, after) for tolerance in tolerances),
    ]

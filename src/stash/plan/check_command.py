"""``stash check``: a job held against its limits, or against its plan; an exit code for pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from stash.core.errors import UserError
from stash.core.files import write_whole
from stash.core.output_files import is_same
from stash.core.printable import printable_line
from stash.report.output import print_output
from stash.store.storing import find_run, profile_of, require_profile, store_option
from stash.ui.options import Options, argument, check_one_format, json_flag, markdown_flag, option

if TYPE_CHECKING:
    from stash.analysis.limits import Decision, Limit, Requirement, Tolerance
    from stash.core.records.profile import Profile

_OF_LIMITS = ("max", "min", "against", "slower", "require")


def _check_limit(name: str, text: str) -> None:
    from stash.analysis.limits import parse_limit

    parse_limit(name, text)


def _check_requirement(text: str) -> None:
    from stash.analysis.limits import parse_requirement

    parse_requirement(text)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Options):
    """One call of ``stash check``."""

    files: tuple[str, ...] = argument(
        "[PLAN] RUN...",
        "Profiles of one job; several show how launches differ. Or a plan and one profile measured on the "
        "planned machines.",
        many=True,
    )
    max: tuple[str, ...] = option(
        "NAME=VALUE",
        "Set an upper limit: network=15%, step=250ms.",
        many=True,
        project=partial(_check_limit, "--max"),
    )
    min: tuple[str, ...] = option(
        "NAME=VALUE",
        "Set a lower limit: samples/s=90.",
        many=True,
        project=partial(_check_limit, "--min"),
    )
    against: tuple[str, ...] = option(
        "FILE", "Compare with this baseline profile; repeatable.", many=True
    )
    slower: tuple[str, ...] = option(
        "[NAME=]PERCENT", "Set the maximum slowdown of the step or of one stall.", many=True
    )
    require: tuple[str, ...] = option(
        "NAME=VALUE",
        "Require a fact: ranks=8, precision=bfloat16.",
        many=True,
        project=_check_requirement,
    )
    instance: str | None = option(
        "NAME", "With a plan: name the profiled machine type, if unknown."
    )
    junit: Path | None = option("FILE", "Write the decisions to this file as JUnit XML.", Path)
    json: bool = json_flag("Print JSON; docs/format.md documents its keys.")
    markdown: bool = markdown_flag()
    store: str | None = store_option()

    def check(self) -> None:
        check_one_format(self)
        if self.junit is not None and any(
            is_same(self.junit, each) for each in (*self.files, *self.against)
        ):
            raise UserError(f"--junit {self.junit} is what is checked; choose another file")


def check(options: CheckOptions) -> None:
    """Check a job against limits, a baseline or a plan.

    The exit code is 0 if all limits hold, 1 if one does not, and 3 if that is unknown. A limit passes or fails only
    if the whole 95 % interval does; if the limit lies inside the interval, measure a longer profile.

    A plan holds if the step is as planned or faster, and deadline and budget are met.

    Examples:
      stash check today.stash.json --max network=15% --max step=250ms
      stash check today.stash.json --against monday.stash.json --slower 5% --junit stash.xml
      stash check today.stash.json --require ranks=8 --require precision=bfloat16 --min samples/s=900
      stash check train.plan.json on-p3.stash.json
    """
    from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, overall_verdict
    from stash.plan.records import is_plan

    of_plan = any(is_plan(file) for file in options.files)
    workload, decisions = _check_plan(options) if of_plan else _check_limits(options)
    from stash.report.comparison_page import decisions as document
    from stash.report.comparison_page import decisions_page
    from stash.ui.terminal import plain_text, screen_format

    if options.json:
        print_output(document(decisions, overall_verdict(decisions)))
    elif options.markdown:
        print_output(decisions_page(decisions, overall_verdict(decisions), workload), markdown=True)
    else:
        _, colour = screen_format()
        for decision in decisions:
            line = printable_line(f"{decision.verdict}: {decision.sentence} ({decision.limit})")
            print(line if colour else plain_text(line))
    if options.junit is not None:
        from stash.report.junit import render_junit

        try:
            write_whole(options.junit, render_junit(decisions, workload))
        except OSError as error:
            raise UserError(
                f"--junit {options.junit}: {error.strerror or error}; choose another place"
            ) from None
    raise typer.Exit({PASSES: 0, FAILS: 1, CANNOT_TELL: 3}[overall_verdict(decisions)])


_Checked = tuple[str, "Sequence[Decision]"]
"""A job's name, and what became of each limit."""


def _check_plan(options: CheckOptions) -> _Checked:
    """The plan's own limits; raises UserError."""
    from stash.analysis.attribution import attribute
    from stash.catalog.layers import load
    from stash.plan.checking import check_plan, find_choice
    from stash.plan.records import is_plan, load_plan

    if refused := options.list_given(*_OF_LIMITS):
        raise UserError(
            f"{refused[0]} is about profiles alone, and a plan has limits of its own; leave one out"
        )
    if len(options.files) != 2 or not is_plan(options.files[0]):
        raise UserError(
            "a plan is checked with one profile of what it rented: `stash check train.plan.json on-p3.stash.json`"
        )
    file, run = options.files
    plan, (profile, _) = load_plan(file), profile_of(run, options.store)
    breakdown = attribute(profile, run)
    try:
        choice = find_choice(plan, profile, breakdown.samples_per_step, load(), options.instance)
    except UserError as error:
        raise UserError(f"{file} and {run}: {error}") from None
    return plan.workload, check_plan(plan, choice, breakdown)


def _check_limits(options: CheckOptions) -> _Checked:
    """The limits that were given; raises UserError."""
    from stash.analysis.limits import (
        check_requirement,
        judge_limit,
        not_slower,
        parse_limit,
        parse_requirement,
        parse_slower,
    )
    from stash.core.trace_records import Trace

    if options.instance is not None:
        raise UserError(
            f"--instance {options.instance} belongs to a plan, like `stash check train.plan.json RUN`"
        )
    limits = [parse_limit("--max", text) for text in options.max] + [
        parse_limit("--min", text) for text in options.min
    ]
    tolerances = [parse_slower(text) for text in options.slower]
    requirements = [parse_requirement(text) for text in options.require]
    if bool(options.against) is not bool(tolerances):
        raise UserError(
            "--against FILE and --slower PERCENT belong together: give both, or neither"
        )
    if not (limits or tolerances or requirements):
        raise UserError(
            "stash check needs a limit, like --max network=15% or --against monday.stash.json --slower 5%"
        )
    runs = {name: find_run(name, options.store) for name in (*options.files, *options.against)}
    if all(isinstance(run.artefact, Trace) for run in runs.values()):
        traces, before = (
            [cast(Trace, runs[name].artefact) for name in names]
            for names in (options.files, options.against)
        )
        return traces[0].workload, [
            *(check_requirement(requirement, traces) for requirement in requirements),
            *(judge_limit(limit, traces) for limit in limits),
            *(not_slower(tolerance, before, traces) for tolerance in tolerances),
        ]
    profiles = {name: require_profile(name, runs[name]) for name in options.files}
    baseline = {name: require_profile(name, runs[name]) for name in options.against}
    workload = next(iter(profiles.values())).workload.name
    return workload, _judge_profiles(profiles, baseline, limits, tolerances, requirements)


def _judge_profiles(
    profiles: Mapping[str, Profile],
    baseline: Mapping[str, Profile],
    limits: Sequence[Limit],
    tolerances: Sequence[Tolerance],
    requirements: Sequence[Requirement],
) -> list[Decision]:
    """What becomes of every limit, in the order of the options; raises UserError if the baseline is another job."""
    from stash.analysis.attribution import attribute
    from stash.analysis.comparison import comparable_sides, incomparable
    from stash.analysis.limits import check_requirement, judge_limit, not_slower

    facts = incomparable(list(baseline.values()), list(profiles.values())) if baseline else ()
    if facts:
        differing = ", ".join(f"{fact.name} ({fact.before} and {fact.after})" for fact in facts)
        raise UserError(
            f"--against {next(iter(baseline))}: it is another job, in {differing}",
            code="different_jobs",
        )
    runs = [attribute(profile, name) for name, profile in profiles.items()]
    sides = comparable_sides(baseline, profiles) if baseline else None
    return [
        *(check_requirement(requirement, profiles.values()) for requirement in requirements),
        *(judge_limit(limit, runs) for limit in limits),
        *(not_slower(tolerance, *sides) for tolerance in tolerances if sides is not None),
    ]

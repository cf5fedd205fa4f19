"""``stash recommend``: profiles and catalog loaded, the plan made, shown and saved. Starts nothing, asks no cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stash.analysis.attribution import attribute
from stash.catalog.layers import load as load_catalog
from stash.core.errors import StashError, UserError
from stash.core.output_files import output_file
from stash.core.printable import print_written
from stash.plan.plan_options import PlanOptions, TrainedJob, bill_facts, make_constraints, make_goal
from stash.plan.recommend import recommend as planned_rental
from stash.predict.forecasting import base_of
from stash.store.storing import profile_of

if TYPE_CHECKING:
    from stash.catalog.offers import Catalog
    from stash.core.records.profile import Profile
    from stash.plan.bill import BillFacts
    from stash.plan.records import RentalPlan
    from stash.predict.passes import Base


def recommend(options: PlanOptions) -> None:
    """Recommend what to rent for a job, by deadline and cost.

    The exit code is 1 if nothing meets the deadline and the cost; the nearest that can be met are then named.

    Examples:
      stash recommend train.stash.json --epochs 90 --samples 1281167 --deadline 24h
      stash recommend train.stash.json --samples 50M --max-dollars 300 --cloud aws,gcp
      stash recommend runs/*.stash.json --epochs 90 --dataset imagenet --pareto -o choice.html
    """
    targets = [output_file(path, "", path.suffix) for path in options.output]
    found = make_plan(options)
    plan = found.plan
    # if there is none, nothing is printed but that
    task = None if options.launch is None else _make_task(found)
    named = (
        plan.chosen_choice.rented.instance
        if options.explain and plan.chosen_choice is not None
        else options.explain_type
    )
    from stash.plan.explained import explain_type
    from stash.plan.page import document, page
    from stash.report.output import print_output

    if named is not None:
        print_output(explain_type(plan, named))
    else:
        print_output(document(plan) if options.json else page(plan, options.pareto))
    for target in targets:
        _write(plan, target, options.pareto, options.json)
    if task is not None:
        _write_task(*task, options.json)
    if plan.chosen_choice is None:
        raise typer.Exit(1)


def _write(plan: RentalPlan, target: Path, pareto: bool, data_on_stdout: bool) -> None:
    """One file, by its ending; said on stderr where standard output is for a program."""
    from stash.core.output_files import write_output
    from stash.plan.page import page
    from stash.plan.records import PLAN_SUFFIX, save_plan
    from stash.report.output import file_of

    if target.name.endswith(PLAN_SUFFIX):
        save_plan(plan, target)
    else:
        write_output(target, file_of(page(plan, pareto), target.suffix))
    print_written(target, data_on_stdout)


def _make_task(found: PlanResult) -> tuple[Path, str, str]:
    """The chosen one as a SkyPilot task: its file, its text, its name; raises StashError where nothing is chosen."""
    from stash.plan.launch import sky_task, task_name

    chosen = found.plan.chosen_choice
    if chosen is None:
        raise StashError(
            "--launch sky: nothing keeps deadline and budget, so there is no choice to write down"
        )
    target = output_file(None, task_name(found.profile), ".sky.yaml")
    return (
        target,
        sky_task(chosen, found.profile, found.catalog, found.bill, target.name),
        chosen.name,
    )


def _write_task(target: Path, text: str, name: str, data_on_stdout: bool) -> None:
    """Next to no earlier one."""
    from stash.core.output_files import write_output

    write_output(target, text, new=True)
    print_written(target, data_on_stdout, f", a SkyPilot task of {name}; nothing was started")


@dataclass(frozen=True)
class PlanResult:
    """A plan, and what it was made of."""

    plan: RentalPlan
    profile: Profile
    """The first of those it was made from: all are of one job."""
    catalog: Catalog
    bill: BillFacts


def make_plan(options: PlanOptions) -> PlanResult:
    """The plan; raises UserError."""
    names = list(options.runs)
    if not names:
        raise UserError(
            "what is to be trained? Name a profile: stash recommend train.stash.json --epochs 90"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; name each file once")
    bases = _load_bases(names, options.store)
    now = datetime.now().astimezone()
    wanted = make_goal(options, TrainedJob.read_base(bases[0]), now)
    catalog = load_catalog(options.instances)
    bill = bill_facts(options, bases[0].profile.workload.dataset_bytes, catalog)
    plan = planned_rental(
        bases,
        wanted,
        make_constraints(options),
        catalog,
        bill,
        names,
        now.date(),
        listed=() if options.explain_type is None else (options.explain_type,),
    )
    return PlanResult(plan, bases[0].profile, catalog, bill)


def _load_bases(names: Sequence[str], store: str | None) -> list[Base]:
    """The catalog of a base only describes the machines that were profiled."""
    profiles = [profile_of(name, store)[0] for name in names]
    return [
        base_of(profile, attribute(profile, name), catalog=load_catalog)
        for profile, name in zip(profiles, names, strict=True)
    ]

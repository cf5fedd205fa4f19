"""``stash check-plan``: a plan held against a later profile on what was rented; an exit code for pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from stash.core.errors import UserError
from stash.store.storing import store_option
from stash.ui.options import Options, argument, json_flag, option

if TYPE_CHECKING:
    from stash.plan.checking import PlanCheck
    from stash.plan.records import RentalPlan
    from stash.plan.residuals import Residuals


@dataclass(frozen=True, kw_only=True)
class CheckPlanOptions(Options):
    """One call of ``stash check-plan``."""

    plan: str = argument("PLAN", "A plan, of `stash recommend`.")
    run: str = argument("RUN", "A profile of the same job, measured later on a machine of the plan.")
    instance: str | None = option("NAME", "The type it was measured on, where the profile does not tell.")
    json: bool = json_flag("Print the check as JSON; its keys are a contract (docs/format.md).")
    store: str | None = store_option()


def check_plan(options: CheckPlanOptions) -> None:
    """Hold a plan against what was measured later: which intervals held, and which assumption failed.

    Exit code 0 if the step is as planned or faster and deadline and budget hold, 1 if not, 3 if unknown.

    Examples:

        stash check-plan train.plan.json on-p3.stash.json

        stash recommend train.stash.json --epochs 90 --calibrate-with train.plan.json:on-p3.stash.json
    """
    from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, overall
    from stash.plan.checked_page import document, page
    from stash.report.output import printed

    loaded, check = _checked(options.plan, options.run, options.instance, options.store)
    printed(document(loaded, check) if options.json else page(loaded, check, (options.plan, options.run)))
    raise typer.Exit({PASSES: 0, FAILS: 1, CANNOT_TELL: 3}[overall(check.decisions)])


def read_residuals(pairs: Sequence[tuple[str, str]], store: str | None = None) -> Residuals:
    """What earlier plans turned out to be, of each one's file and a profile of what it rented; raises UserError."""
    from stash.plan.residuals import Residuals

    found = [_checked(file, run, None, store)[1].residuals for file, run in pairs]
    return Residuals(
        found=tuple(each for residuals in found for each in residuals.found),
        left_out=tuple(each for residuals in found for each in residuals.left_out),
    )


def _checked(file: str, run: str, instance: str | None, store: str | None) -> tuple[RentalPlan, PlanCheck]:
    """The plan, and what became of it; raises UserError."""
    from stash.analysis.attribution import attribute
    from stash.catalog.layers import load as load_catalog
    from stash.plan.checking import check_plan as check
    from stash.plan.matching import choice_of
    from stash.plan.records import load_plan
    from stash.predict.forecasting import base_of
    from stash.store.storing import profile_of

    plan = load_plan(file)
    profile, _ = profile_of(run, store)
    base = base_of(profile, attribute(profile, run), catalog=load_catalog)
    try:
        matched = choice_of(plan, profile, base.breakdown.samples_per_step, load_catalog(), instance)
    except UserError as error:
        raise UserError(f"{file} and {run}: {error}") from None
    return plan, check(plan, matched, base)

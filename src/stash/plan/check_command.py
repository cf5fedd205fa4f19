"""``stash check-plan``: a plan held against a later profile on what was rented; an exit code for pipelines.

Parses, loads, shows: what it says comes from ``stash.plan`` and ``stash.plan``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stash.core.errors import UserError
from stash.store.storing import StoreOption
from stash.ui.options import flag, option

if TYPE_CHECKING:
    from stash.plan.checking import PlanCheck
    from stash.plan.records import RentalPlan
    from stash.plan.residuals import Residuals

PLAN_HELP = "A plan, of `stash recommend`."
RUN_HELP = "A profile of the same job, measured later on a machine of the plan."
INSTANCE_HELP = "The type it was measured on, where the profile does not tell."
JSON_HELP = "Print the check as JSON; its keys are a contract (docs/format.md)."


def check_plan(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help=PLAN_HELP, show_default=False)],
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP, show_default=False)],
    instance: Annotated[str | None, option("NAME", INSTANCE_HELP)] = None,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
    store: StoreOption = None,
) -> None:
    """Hold a plan against what was measured later: which intervals held, and which assumption failed.

    Exit code 0 if the step is as planned or faster and deadline and budget hold, 1 if not, 3 if unknown.

    Examples:

        stash check-plan train.plan.json on-p3.stash.json

        stash recommend train.stash.json --epochs 90 --calibrate-with train.plan.json:on-p3.stash.json
    """
    from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, overall
    from stash.plan.checked_page import document, page
    from stash.report.output import printed

    loaded, check = _checked(plan, run, instance, store)
    printed(document(loaded, check) if json else page(loaded, check, (plan, run)))
    raise typer.Exit({PASSES: 0, FAILS: 1, CANNOT_TELL: 3}[overall(check.decisions)])


def read_residuals(pairs: Sequence[str], store: str | None = None) -> Residuals:
    """What plans turned out to be, of words like ``train.plan.json:run.stash.json``; raises UserError."""
    from stash.plan.records import PLAN_SUFFIX
    from stash.plan.residuals import Residuals

    found = []
    for word in pairs:
        plan, ending, run = word.partition(f"{PLAN_SUFFIX}:")
        if not ending:
            plan, ending, run = word.partition(":")
        if not (plan and ending and run):
            raise UserError(
                f"--calibrate-with {word}: give a plan and a profile, like train.plan.json:run.stash.json"
            )
        file = plan + ending.removesuffix(":")
        found.append(_checked(file, run, None, store)[1].residuals)
    return Residuals(
        found=tuple(each for residuals in found for each in residuals.found),
        left_out=tuple(each for residuals in found for each in residuals.left_out),
    )


def _checked(file: str, run: str, instance: str | None, store: str | None) -> tuple[RentalPlan, PlanCheck]:
    """The plan, and what became of it; raises UserError."""
    from stash.analysis.attribution import attribute
    from stash.catalog.layers import load as load_catalog
    from stash.plan.checking import check_plan as check
    from stash.plan.checking import choice_of
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

"""A plan and a later profile of what it rented, read and held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stash.core.errors import UserError

if TYPE_CHECKING:
    from stash.plan.checking import PlanCheck
    from stash.plan.records import RentalPlan
    from stash.plan.residuals import Residuals


def read_residuals(pairs: Sequence[tuple[str, str]], store: str | None = None) -> Residuals:
    """What earlier plans turned out to be, of each one's file and a profile of what it rented; raises UserError."""
    from stash.plan.residuals import Residuals

    found = [checked(file, run, None, store)[1].residuals for file, run in pairs]
    return Residuals(
        found=tuple(each for residuals in found for each in residuals.found),
        left_out=tuple(each for residuals in found for each in residuals.left_out),
    )


def checked(file: str, run: str, instance: str | None, store: str | None) -> tuple[RentalPlan, PlanCheck]:
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

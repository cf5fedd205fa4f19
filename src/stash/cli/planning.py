"""From the words of ``stash recommend`` to a plan: profiles and catalog loaded, options read, ``derive.plan`` asked.

Knows where files are and in which order mistakes are told; prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stash.base.errors import UserError

if TYPE_CHECKING:
    from stash.base.plan import RentalPlan
    from stash.base.records import Profile
    from stash.derive.plan.asked_work import TrainedJob
    from stash.derive.plan.bill import BillFacts
    from stash.derive.predict.whatif.base import Base
    from stash.keep.catalog import Catalog


@dataclass(frozen=True)
class PlanRequest:
    """One call of ``stash recommend``."""

    runs: Sequence[str]
    """Files, or ids of a store."""
    study: Path | None
    store: str | None
    typed: Mapping[str, str]
    """Options of the goal and its constraints by name, as they were typed."""
    quotas: Sequence[str]
    instances: Path | None
    explain: str | None
    rules: bool
    """Whether other ways to choose stand beside the plan."""
    calibrate: Sequence[str]
    """Earlier plans and profiles of what they rented, like ``train.plan.json:run.stash.json``."""


@dataclass(frozen=True)
class Planned:
    """A plan, and what it was made of."""

    plan: RentalPlan
    profile: Profile
    """The first of those it was made from: all are of one job."""
    catalog: Catalog
    bill: BillFacts


def planned(asked: PlanRequest) -> Planned:
    """The plan; raises UserError."""
    from stash.cli.check_plan import read_residuals
    from stash.derive.plan.asked import constraints, goal
    from stash.derive.plan.asked_bill import bill_facts
    from stash.derive.plan.recommend import recommend
    from stash.derive.plan.residuals import calibrated
    from stash.keep.catalog import load
    from stash.show.plan.explain import type_of

    names = _names(asked)
    bases = _bases(names, asked.store)
    now = datetime.now().astimezone()
    wanted = goal(asked.typed, _job(bases[0]), now)
    catalog = load(asked.instances)
    residuals = read_residuals(list(asked.calibrate), asked.store)
    bill = bill_facts(asked.typed, bases[0].profile.workload.dataset_bytes, catalog)
    plan = recommend(
        bases,
        wanted,
        constraints(asked.typed, asked.quotas, catalog),
        catalog,
        bill,
        names,
        now.date(),
        listed=() if asked.explain is None else (type_of(asked.explain),),
        rules=asked.rules,
        calibrate=(lambda drawn, draws: calibrated(drawn, residuals, draws)) if residuals.found else None,
    )
    told = tuple(f"--calibrate-with leaves out {sentence}" for sentence in residuals.left_out)
    plan = plan.model_copy(update={"warnings": (*plan.warnings, *told)})
    return Planned(plan, bases[0].profile, catalog, bill)


def _names(asked: PlanRequest) -> list[str]:
    """The runs that were named, and those of the study's folder."""
    from stash.base.records import SUFFIX

    found = list(asked.runs)
    if asked.study is not None:
        if not asked.study.is_dir():
            raise UserError(f"--study {asked.study}: there is no such folder")
        files = sorted(str(path) for path in asked.study.rglob(f"*{SUFFIX}"))
        if not files:
            raise UserError(f"--study {asked.study}: no *{SUFFIX} is in it; `stash profile` makes one")
        found += files
    if not found:
        raise UserError("what is to be trained? Name a profile: stash recommend train.stash.json --epochs 90")
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; name each file once")
    return found


def _bases(names: Sequence[str], store: str | None) -> list[Base]:
    """The catalog of a base only describes the machines that were profiled."""
    from stash.cli.runs import profile_of
    from stash.derive.plan.one_job import refuse_different_jobs
    from stash.derive.predict.whatif.forecasting import base_of
    from stash.derive.stalls import attribute
    from stash.keep.catalog import load

    profiles: list[Profile] = [profile_of(name, store)[0] for name in names]
    refuse_different_jobs(profiles, names)
    return [
        base_of(profile, attribute(profile, name), catalog=load)
        for profile, name in zip(profiles, names, strict=True)
    ]


def _job(base: Base) -> TrainedJob:
    from stash.derive.plan.asked_work import TrainedJob

    sizes = [loader.samples for loader in base.profile.workload.loaders if loader.samples is not None]
    return TrainedJob(base.breakdown.samples_per_step, sizes[0] if len(sizes) == 1 else None)

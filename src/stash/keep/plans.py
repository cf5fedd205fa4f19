"""Loads and saves plans, ``*.plan.json``: what was weighed, what was chosen, and what that rests on.

Knows the versions of their schema. A plan has the manners of a profile's file (``documents``), and is no artefact: it
holds nothing that was measured, so stores do not keep it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from stash.base.errors import ArtefactError
from stash.base.plan import PLAN_SCHEMA, PLAN_SUFFIX, Choice, RentalPlan
from stash.base.records import Record
from stash.base.stats.intervals import Interval
from stash.keep import documents
from stash.keep.documents import Document, DocumentKind, others

MIGRATIONS: dict[int, Callable[[Document], Document]] = {}
"""``MIGRATIONS[n]`` turns a plan of schema n into one of schema n + 1."""
_KIND = DocumentKind(
    name="plan",
    suffix=PLAN_SUFFIX,
    command="stash recommend",
    version="plan_schema",
    is_not="is not a plan:",
    folder="is a folder, not a plan",
    others="; plans there, newest first:",
)


def save_plan(plan: RentalPlan, path: str | os.PathLike[str]) -> None:
    """Write ``plan`` to ``path``, replacing it in one step, for its owner alone; raises ArtefactError."""
    documents.save_text(documents.lined(plan.model_dump(mode="json"), ("choices",)), Path(path), _KIND)


def load_plan(path: str | os.PathLike[str]) -> RentalPlan:
    """The plan saved at ``path``, of this or any older schema; raises ArtefactError."""
    source = Path(path)
    plan = documents.load_record(source, _KIND, RentalPlan, PLAN_SCHEMA, MIGRATIONS)
    contradiction = next(_contradictions(plan), None)
    if contradiction is not None:
        raise ArtefactError(f"{source} {_KIND.is_not} {contradiction}; {others(_KIND)}")
    return plan


def is_plan(word: str | os.PathLike[str]) -> bool:
    """Whether ``word`` is the name of a plan's file: by its ending, or by how what is there begins."""
    return documents.is_one(word, _KIND)


def _contradictions(item: object, name: str = "") -> Iterator[str]:
    """Numbers that no forecast can have, by the names of their fields: whoever shows a plan computes with them."""
    if isinstance(item, Interval):
        if not item.holds_itself:
            yield f"{name} ({item.value:g}) is not within its interval, {item.low} to {item.high}"
    elif isinstance(item, Record):
        for field, value in item:
            yield from _contradictions(value, f"{name}.{field}" if name else field)
    elif isinstance(item, tuple):
        for number, value in enumerate(item):
            yield from _contradictions(value, f"{name}.{number}")
    elif isinstance(item, float) and not math.isfinite(item):
        yield f"{name} is {item}, which is no number"
    if isinstance(item, Choice):
        above_zero = {"samples_per_step": item.samples_per_step, "steps": item.steps,
                      "step": item.step.value, "seconds": item.seconds.value}  # fmt: skip
        yield from (f"{name}.{field} is {value:g}, not above 0" for field, value in above_zero.items() if value <= 0)

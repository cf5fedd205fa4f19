"""The way in: profiles, a goal and what may be rented in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from stash.base.plan import Constraints, Goal, RentalPlan
from stash.derive.plan.bill import BillFacts
from stash.derive.predict.target import Target
from stash.derive.predict.whatif import Base
from stash.keep.catalog import Catalog


def recommend(
    bases: Sequence[Base],
    goal: Goal,
    constraints: Constraints,
    catalog: Catalog,
    bill: BillFacts,
    files: Sequence[str],
    now: date,
    *,
    machines: Mapping[str, Target] | None = None,
    listed: Sequence[str] = (),
) -> RentalPlan:
    """What to rent for ``goal``: chosen, tied, the front, and what lost, each with its reason.

    ``files`` name the profiles of ``bases``, and ``now`` is the day that prices' ages are counted to. ``machines`` are
    instance types whose node was measured or described: their facts replace those of the catalog. Types in ``listed``
    are among the choices however bad they are. Raises UserError.
    """
    raise NotImplementedError

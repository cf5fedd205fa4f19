"""What a remedy saves: the measured step less the forecast of the step after it, by the functions of ``stash
whatif``.

So advice and what-if never disagree. A gain that nobody can predict is ``None``, and no other number stands in for
it.
"""

from __future__ import annotations

from collections.abc import Mapping

from stash.base.errors import StashError
from stash.derive.predict.whatif.base import Base
from stash.derive.predict.whatif.changes import Alteration
from stash.derive.predict.whatif.forecasting import AS_IT_IS, lost, what_if

_DIGITS = 12
"""A picosecond: sums that cancel."""


def gain(
    base: Base,
    wanted: Alteration = AS_IT_IS,
    less: Mapping[str, float] | None = None,
    done: Alteration = AS_IT_IS,
) -> float | None:
    """Seconds saved for as many samples as a step has now, with what surfaces counted; ``None`` if unknown.

    A step of k times the samples is compared with k of today's steps. ``less`` is that of ``what_if``; what is
    ``done`` already is so before and after.
    """
    both = done.model_copy(update=wanted.model_dump(exclude_none=True))
    before, after = _speed(base, done, None), _speed(base, both, less)
    if before is None or after is None:
        return None
    (slow, samples), (fast, as_many) = before, after
    if not samples or not as_many:
        if wanted.accumulate is not None or wanted.batch is not None:
            return None
        samples = as_many = 1.0
    return round(slow - fast * samples / as_many, _DIGITS)


def _speed(base: Base, wanted: Alteration, less: Mapping[str, float] | None) -> tuple[float, float | None] | None:
    """Seconds and samples of a step; ``None`` if a part of it cannot be predicted."""
    try:
        told = what_if(base, wanted, less)
    except StashError:
        return None
    return None if lost(base, told) else (told.breakdown.step_seconds, told.breakdown.samples_per_step)

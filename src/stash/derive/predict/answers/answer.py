"""One answered question: a forecast beside its measurement, with all that is said of the two.

Gathers what the other modules of this room tell, for whoever shows it. Computes nothing of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stash.derive.predict.answers.limits import Diminishing, diminishing, effects_on_training, next_bottleneck
from stash.derive.predict.answers.memory import Fit, memory_fit
from stash.derive.predict.answers.sufficing import Suffices, suffices
from stash.derive.predict.answers.unrecorded import Unanswered, unanswered
from stash.derive.predict.forecast.breakdown import Forecast
from stash.derive.predict.whatif.base import Base
from stash.derive.predict.whatif.changes import changes
from stash.derive.predict.whatif.forecasting import lost, what_if
from stash.derive.stalls.breakdown import Breakdown, Missing, Stall


@dataclass(frozen=True)
class WhatIf:
    """What was asked of which profile, and the answer."""

    workload: str
    typed: Mapping[str, str]
    """Options as they were given, by name."""
    measured: Breakdown
    told: Forecast
    lost: tuple[Missing, ...]
    """Stalls that the profile tells and nobody can predict there: then the step is at least what the others add up
    to."""
    next: Stall
    enough: tuple[Diminishing, ...]
    data: Suffices | None
    fit: Fit | None
    on_device: bool
    """Whether the job runs on accelerators."""
    training: tuple[str, ...]
    unanswered: tuple[Unanswered, ...]
    """Questions that this profile lacks a fact for."""
    as_measured: bool
    """Whether what was asked for is what was measured, so that there is nothing to predict."""


def answered(base: Base, typed: Mapping[str, str]) -> WhatIf:
    """The whole answer to one question; raises UserError."""
    wanted = changes(typed)
    told = what_if(base, wanted)
    unknown = lost(base, told)
    return WhatIf(
        workload=base.profile.workload.name,
        typed=dict(typed),
        measured=base.breakdown,
        told=told,
        lost=unknown,
        next=next_bottleneck(told),
        enough=() if unknown else diminishing(base, wanted),
        data=suffices(base, wanted),
        fit=memory_fit(base, wanted, told),
        on_device=base.target.device is not None,
        training=tuple(effects_on_training(base, wanted, told)),
        unanswered=unanswered(base.profile),
        as_measured=bool(typed)
        and told.target == base.target
        and all(part.origin == "measured" for part in told.grounds),
    )

"""The parts of a forecast: stalls as draws of seconds, with what each was made of, and those that nobody can predict.

Records only. How they add up to a breakdown is ``breakdown``'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stash.derive.predict.target.cluster import Target
from stash.derive.predict.uncertainty.draws import Array
from stash.derive.predict.uncertainty.quantity import Origin, Used
from stash.derive.stalls.breakdown import (
    Missing,
)


@dataclass(frozen=True, eq=False)
class Predicted:
    """One stall as draws of seconds per step, ``[draws]``, and what they were made of."""

    name: str
    seconds: Array
    origin: Origin
    facts: tuple[Used, ...] = ()
    beyond: tuple[str, ...] = ()
    """Where the model left the range in which it was calibrated: one sentence each."""
    spread_known: bool = True
    """Whether the draws hold all there is to be uncertain about; if not, the ends are unknown."""


@dataclass(frozen=True, eq=False)
class PredictedStalls:
    """The stalls that were predicted, and those that do not exist or that nobody can predict."""

    parts: tuple[Predicted, ...]
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, eq=False)
class StallDraws:
    """One changed job: its stalls as draws, the stalls it cannot have or nobody can predict, samples of a step."""

    target: Target
    parts: tuple[Predicted, ...]
    missing: tuple[Missing, ...]
    samples: float | None

    @property
    def step(self) -> Array:
        """Seconds of a step, ``[draws]``; a lower bound while a part of it is missing that is possible."""
        total: Array = np.sum([part.seconds for part in self.parts], axis=0)
        return total

    @property
    def unknown(self) -> tuple[Missing, ...]:
        """Stalls that the target can have and nobody can predict; those that another one contains are not."""
        return unknown_of(self.missing)


def unknown_of(missing: Sequence[Missing]) -> tuple[Missing, ...]:
    return tuple(each for each in missing if each.possible and each.contained_in is None)

"""What ranks wait for their slowest, predicted from half of a recording of real steps for its other half.

Split: by time, in alternate stretches of 500 steps of ``bench/noise/two_ranks.csv.gz``, each half for the other. Two
ranks really ran side by side; more of them are steps of the unseen half drawn at random, so that they test the tail
beyond what was seen, and not whether many ranks are independent.
"""

from __future__ import annotations

import numpy as np

from bench import recorded
from bench.noise.steps import TWO_RANKS
from bench.predict.errors import Prediction, summary
from stash.predict.draws import Array, Draws
from stash.predict.stragglers import largest_of, seen_again

_STRETCH = 500
_KEPT = 250
"""Steps that a profile would have seen: so many calibrate."""
_GROUPS = 2000
DRAWS = Draws()
RANKS = (2, 8, 64, 512)


def section() -> str:
    split = "What the slowest of n ranks takes longer than their mean, in thousandths of a step, from 250 steps."
    return f"## Waiting for the slowest of many ranks\n\n{split}\n\n{summary(waits())}"


def waits() -> list[Prediction]:
    """Of every half and number of ranks: what the slowest takes longer than the mean, in thousandths of a step."""
    steps = recorded.numbers(TWO_RANKS)
    even = (np.arange(len(steps)) // _STRETCH) % 2 == 0
    found = []
    for half, (seen, unseen) in enumerate(((steps[even], steps[~even]), (steps[~even], steps[even]))):
        known = (seen - seen.mean(axis=0)).ravel()[:: max(1, 2 * len(seen) // _KEPT)]
        found += [_wait(half, known, unseen - unseen.mean(axis=0), ranks) for ranks in RANKS]
    return found


def _wait(half: int, known: Array, unseen: Array, ranks: int) -> Prediction:
    random = np.random.default_rng(ranks)
    together = unseen if ranks == unseen.shape[1] else random.choice(unseen.ravel(), (_GROUPS, ranks))
    measured = float(together.max(axis=1).mean())
    normal = float(known.std(ddof=1)) * float(np.sqrt(2 * np.log(ranks)))
    drawn = largest_of(seen_again(known, DRAWS), ranks, DRAWS.uniforms("tail of single steps"))
    return Prediction(f"{ranks} ranks", f"half {half + 1}", measured, drawn, {"σ·√(2 ln n)": normal})

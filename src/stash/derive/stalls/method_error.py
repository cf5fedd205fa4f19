"""The method's own error: how far a stall may be from the truth besides what its interval says of noise.

An interval over rounds tells how far steps repeat themselves. It knows nothing of what is the same in every round:
the interpreter's work between layers, copies into buckets, bookkeeping of files. How large that is was seen where
truth is known; what could not be tried there (``transfer``) stays unknown.
"""

from __future__ import annotations

import math

MEASURED = "2026-11-22, 145 stalls of 40 emulated jobs on 2 cores of AMD EPYC over gloo"
"""When and on what; ``python -m bench.truth.method_error bench/truth/data/2026-11-22.md`` fits it."""
SECONDS = {
    "compute": 0.68e-3,
    "contention": 0.0,
    "interconnect": 2.64e-3,
    "network": 1.85e-3,
    "prep": 0.83e-3,
    "fetch": 1.03e-3,
}
"""Half of a 95 % interval per step; 0 where noise explained every error."""
SHARE = 0.01
"""Of the stall, besides."""


def method_error(stall: str, seconds: float) -> float | None:
    """Half of the method's own 95 % interval of a stall that takes ``seconds``; ``None`` if unknown."""
    fixed = SECONDS.get(stall)
    return None if fixed is None else math.hypot(fixed, SHARE * seconds)

"""What the measured links of a machine mean: rates with intervals, fits, findings, comparison with the catalog.

    from stash.derive.findings import read

    reading = read(probe, catalog)
    reading.findings[0].text

Pure: a saved ``Probe`` and the catalog in, records out. Never imports torch and never measures.
"""

from stash.base.stats.intervals import Interval
from stash.derive.findings.against import Compared, Comparison
from stash.derive.findings.allreduce import Curve, RingFit, Size
from stash.derive.findings.finding import Fact, Finding
from stash.derive.findings.nearest import Near
from stash.derive.findings.rates import Link
from stash.derive.findings.reading import Likeness, Reading, read

__all__ = [
    "Compared",
    "Comparison",
    "Curve",
    "Fact",
    "Finding",
    "Interval",
    "Likeness",
    "Link",
    "Near",
    "Reading",
    "RingFit",
    "Size",
    "read",
]

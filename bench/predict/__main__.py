"""Compare predictions with measurements they were not fitted to, and write every table on one page.

Errors are of what was predicted over what was measured, less one; *median / 90th* are percentiles of their sizes,
*bias* their mean, *in the interval* how often the 95 % interval held the measurement.
"""

from __future__ import annotations

from bench.machine import arguments
from bench.predict import (
    gpus,
    growth,
    power,
    published,
    scaling,
    testbed,
)
from bench.predict.errors import HELD, verdicts
from bench.table import deliver, page_path

SECTIONS = (
    published.section,
    growth.section,
    testbed.section,
    gpus.section,
    scaling.section,
    power.section,
)


def rules_table() -> str:
    """The table that leads the page: of every published set the best one-line rule, Stash, and who wins."""
    found = [
        *gpus.predictions(),
        *gpus.other_batches(),
        *published.throughputs(),
        *growth.predictions(),
        *scaling.predictions(),
        *power.predictions(),
    ]
    text = (
        "Median and 90th percentile of errors; the rule is whichever one-line rule has the least median on the very "
        f"set. Of sets of 20 cases and more, 95 % intervals should hold {HELD[0]:.0%} to {HELD[1]:.0%}; that all are "
        "held is too many from 59 cases on."
    )
    return f"## Beside one-line rules\n\n{text}\n\n{verdicts(found)}"


def page() -> str:
    return "\n\n".join(
        ["# How wrong predictions are", rules_table(), *(section() for section in SECTIONS)]
    )


def main() -> None:
    out = arguments(__doc__, out=(page_path("validation"), "where to write it; - prints")).out
    deliver(page(), out)


if __name__ == "__main__":
    main()

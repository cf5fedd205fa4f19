"""Compare predictions with measurements they were not fitted to, and write every table on one page.

Errors are of what was predicted over what was measured, less one; *median / 90th* are percentiles of their sizes,
*bias* their mean, *in the interval* how often the 95 % interval held the measurement.
"""

from __future__ import annotations

from bench.machine import arguments
from bench.predict import (
    cpu_sensitivity,
    gavel,
    gpus,
    links,
    loader_queue,
    memory,
    published,
    slowest,
    speed,
    testbed,
    this_machine,
)
from bench.table import deliver, page_path

SECTIONS = (
    *(published.section, published.paper, gavel.section, links.section, slowest.section),
    *(testbed.section, this_machine.section, gpus.section, cpu_sensitivity.section, loader_queue.section),
    *(memory.section, speed.section),
)


def page() -> str:
    return "\n\n".join(["# How wrong predictions are", *(section() for section in SECTIONS)])


def main() -> None:
    out = arguments(__doc__, out=(page_path("validation"), "where to write it; - prints")).out
    deliver(page(), out)


if __name__ == "__main__":
    main()

"""Choices of ``stash recommend`` judged against the truth: on the emulated fleet every candidate was run
(``bench.plan.fleet``).
"""

from __future__ import annotations

from bench.machine import arguments
from bench.plan import fleet_judge
from bench.table import deliver, page_path
from stash.core.errors import UserError


def page() -> str:
    """Everything in Markdown; the fleet's tables are there once it has run."""
    try:
        fleet = fleet_judge.page()
    except UserError as error:
        fleet = f"Not run yet: {error}."
    return f"# How sure is the recommendation\n\n{fleet}"


def main() -> None:
    options = arguments(__doc__, out=(page_path("recommendation"), "where to write it; - prints"))
    deliver(page(), options.out)


if __name__ == "__main__":
    main()

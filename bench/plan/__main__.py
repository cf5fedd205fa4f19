"""Choices of ``stash recommend`` judged against the truth, every table of them on one page.

On the emulated fleet every candidate was run (``bench.plan.fleet``); of published measurements a part was hidden
(``bench.plan.published``); and the price ratio at which the dearest machine is the best (``bench.plan.price_ratio``).
"""

from __future__ import annotations

from bench.machine import arguments
from bench.plan import fleet_judge, price_ratio, published
from bench.table import deliver, page_path
from stash.core.errors import UserError


def page(seeds: int) -> str:
    """Everything in Markdown; the fleet's tables are there once it has run."""
    try:
        fleet = fleet_judge.page()
    except UserError as error:
        fleet = f"Not run yet: {error}."
    parts = (
        "# How sure is the recommendation",
        "## An emulated fleet, where everything can be run",
        fleet,
        "## Published measurements, a part of them hidden",
        f"{seeds} splits of each kind; prices of a GPU for an hour: {published.prices()}.",
        "\n".join(published.lines(seeds)).rstrip(),
        "## When the most expensive instance is the best",
        "\n".join(price_ratio.lines()),
    )
    return "\n\n".join(parts)


def main() -> None:
    options = arguments(
        __doc__,
        seeds=(20, "splits of published tables, of each kind (default 20)"),
        out=(page_path("recommendation"), "where to write it; - prints"),
    )
    deliver(page(options.seeds), options.out)


if __name__ == "__main__":
    main()

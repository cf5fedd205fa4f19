"""Choices of ``stash recommend`` on an emulated fleet, where every candidate was run (``bench.plan.fleet``)."""

from __future__ import annotations

from bench.machine import arguments
from bench.plan import fleet_judge
from bench.table import deliver, page_path


def main() -> None:
    options = arguments(__doc__, out=(page_path("recommendation"), "where to write it; - prints"))
    deliver(f"# How sure is the recommendation\n\n{fleet_judge.page()}", options.out)


if __name__ == "__main__":
    main()

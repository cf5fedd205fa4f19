"""Choices of ``stash recommend``: on published throughputs, and on an emulated fleet where every candidate was run.

python -m bench.plan                 all: twenty minutes at most
python -m bench.plan --part 10       every tenth question: two minutes
"""

from __future__ import annotations

from bench.machine import arguments
from bench.plan import fleet_judge, published
from bench.table import deliver, page_path


def main() -> None:
    options = arguments(
        __doc__,
        part=(1, "one of so many questions (default 1: all)"),
        out=(page_path("recommendation"), "where to write it; - prints"),
    )
    text = (
        f"# How sure is the recommendation\n\n## On published throughputs\n\n{published.page(options.part)}\n\n"
        f"## On an emulated fleet\n\n{fleet_judge.page()}"
    )
    print(text)
    deliver(text, options.out)


if __name__ == "__main__":
    main()

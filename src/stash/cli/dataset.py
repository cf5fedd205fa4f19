"""``stash dataset``: makes data sets for the zoo's workloads.

Parses what is asked for, calls ``stash.lab.zoo.datasets`` and shows its progress.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.cli.options import App, option

if TYPE_CHECKING:
    from stash.lab.zoo.datasets import Made

app = App(no_args_is_help=True)


@app.callback()
def dataset() -> None:
    """Make data sets that are as large, and as slow to read, as real ones."""


@app.command()
def make(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="images, text, audio or clicks.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new or empty folder, or one to continue.")],
    count: Annotated[int | None, option("N", "Samples to make; a default for each kind.")] = None,
    size: Annotated[str | None, option("SIZE", 'Bytes to make instead of a count, like "2GB".')] = None,
    seed: Annotated[int | None, option("N", "The same seed makes the same data (default 0).")] = None,
) -> None:
    """Make a data set, or finish one that was interrupted.

    images: JPEG files of 110 kB on average in a folder per class, like ImageNet.
    text: token ids in memory-mapped files, 1024 to a sample.
    audio: spoken-word-like WAV files of one second in a folder per word.
    clicks: Criteo-like records of 13 counters and 26 categories.

    \b
    stash dataset make images /data/images --size 2GB
    stash dataset make text /data/text --count 100000
    """
    from stash.lab.zoo.datasets import dataset_kind

    if size is not None:
        if count is not None:
            raise UserError("--count and --size say the same thing twice; use one of them")
        count = _count_of(size, dataset_kind(kind).sample_bytes)
    _report(_make_with_progress(kind, path, count, seed))


def _count_of(size: str, sample_bytes: float) -> int:
    from stash.base.words.units import parse_bytes

    return max(1, round(parse_bytes(size) / sample_bytes))


def _make_with_progress(kind: str, path: Path, count: int | None, seed: int | None) -> Made:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from stash.lab.zoo.datasets import make_dataset

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"making {kind}", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return make_dataset(kind, path, count, seed, show)


def _report(made: Made) -> None:
    from rich.console import Console
    from rich.text import Text

    from stash.base.printable import printable_line
    from stash.base.words.units import format_bytes, format_seconds

    how = f"made in {format_seconds(made.seconds)}" if made.new_files else "nothing left to do"
    line = f"{made.path}: {made.count} samples of {made.kind}, {format_bytes(made.bytes)}, {how}"
    Console().print(Text(printable_line(line)), soft_wrap=True)

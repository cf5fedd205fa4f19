"""``stash fix`` on scripts of other people, as they stand in a clone of github.com/pytorch/examples.

Nothing of them is changed but by the patch, which ``git apply`` puts into the clone; options are those of the table
below. Data is made up, in the files that the scripts look for before they download. A second clone as it was runs by
turns with the patched one, both timed by the stopwatch of ``make compat``, which knows nothing of Stash.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from bench.fix.projects import CACHE, call, fixed, kept_rows, realised
from tests.compat import environments
from tests.compat.environments import Environment
from tests.compat.runs import plain_step


@dataclass(frozen=True)
class Example:
    """A script of the clone, in a folder of its own."""

    folder: str
    options: tuple[str, ...] = ()
    updates: int = 1
    """Optimizer steps of what Stash calls a step."""


EXAMPLES = (
    Example("mnist"),
    Example("mnist_rnn"),
    Example("vae"),
    Example("siamese_network"),
    Example("dcgan", ("--dataset", "fake", "--imageSize", "64", "--batchSize", "16"), updates=2),
    Example("super_resolution", ("--upscale_factor", "3", "--batchSize", "4", "--nEpochs", "30")),
    Example("imagenet", ("--dummy", "-a", "squeezenet1_1", "-b", "8")),
)
_DIGITS = {"train": 60_000, "t10k": 10_000}
_PICTURES = {"train": 200, "test": 100}


def made_up(clone: Path) -> None:
    """Digits as MNIST and pictures as BSDS300, of random pixels, where the scripts look for them."""
    random = np.random.default_rng(0)
    digits = clone / "data" / "MNIST" / "raw"
    digits.mkdir(parents=True)
    for part, count in _DIGITS.items():
        pixels = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = random.integers(0, 10, count, dtype=np.uint8)
        for kind, values in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = struct.pack(f">{1 + values.ndim}I", 0x800 + values.ndim, *values.shape)
            (digits / f"{part}-{kind}-ubyte").write_bytes(head + values.tobytes())
    for part, count in _PICTURES.items():
        folder = clone / "super_resolution" / "dataset" / "BSDS300" / "images" / part
        folder.mkdir(parents=True)
        for number in range(count):
            coarse = Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8))
            coarse.resize((481, 321)).save(folder / f"{number}.jpg")


def run(example: Example, clone: str, where: Environment, work: Path, within: str, rounds: int) -> list[str]:
    """Fix one script and hold it to the stopwatch; raises RuntimeError with what was printed if that fails."""
    folders = {arm: work / arm / example.folder for arm in ("typed", "fixed")}
    shutil.rmtree(work, ignore_errors=True)
    for arm, folder in folders.items():
        call(["git", "clone", "-q", "--no-checkout", clone, str(work / arm)], Path.cwd(), where.variables())
        call(["git", "sparse-checkout", "set", example.folder], work / arm, where.variables())
        call(["git", "checkout", "-q"], work / arm, where.variables())
        made_up(work / arm)
        (folder / "results").mkdir(exist_ok=True)
    variables = {**where.variables(), "NO_COLOR": "1"}
    command = (where.python, "-m", "stash", "fix", "--budget", within, "main.py", *example.options)
    found = fixed(command, folders["fixed"], variables)
    if not found.by_itself:
        return [example.folder, *found.cells, ""]
    if (folders["fixed"] / "it.fix.patch").exists():
        call(["git", "apply", "it.fix.patch"], folders["fixed"], variables)

    def step(arm: str) -> float | None:
        more, new = (found.words, found.variables) if arm == "fixed" else ((), {})
        words, folder = ("main.py", *example.options, *more), folders[arm]
        seconds = plain_step(words, where, {**variables, **new}, folder, "stopwatch")
        return None if seconds is None else seconds * example.updates

    return [example.folder, *found.cells, realised(lambda: step("typed"), lambda: step("fixed"), rounds)]


def main(clone: str, names: Sequence[str], within: str, rounds: int) -> int:
    """Run these of ``EXAMPLES``, or all."""
    CACHE.mkdir(parents=True, exist_ok=True)
    where = environments.layer("examples", ("six",), environments.base(CACHE), CACHE)

    def run_in(work: Path, example: Example) -> list[str]:
        return run(example, clone, where, work, within, rounds)

    chosen = [example for example in EXAMPLES if not names or example.folder in names]
    return kept_rows({f"examples-{example.folder}": partial(run_in, example=example) for example in chosen})

"""``stash fix`` on real projects of ``make compat``, whose loaders are given no workers, as many are found.

Scripts are copied and changed there; the patch is applied to the copy, and both run by themselves in turns, timed by
the stopwatch of the matrix, which knows nothing of Stash. Environments and data are those of ``make compat``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bench.table import progress, report, table
from tests.compat import data, environments
from tests.compat.environments import Environment
from tests.compat.projects import PROJECTS, Project
from tests.compat.runs import plain_step

NAMES = ("timm", "ignite", "geometric", "monai", "accelerate", "lightning", "fabric", "transformers", "torchdata")
SCRIPTS = Path(data.__file__).parent / "scripts"
CACHE = Path.home() / ".cache" / "stash-compat"
_WORKERS = re.compile(r"(num_workers\"?[=:] ?)[1-9]")
HEADS = ("project", "step, ms", "kept", "how", "promised, ms", "realised, ms")
LONGEST = 900


@dataclass(frozen=True)
class Place:
    """Where a project runs."""

    project: Project
    where: Environment
    work: Path
    data: Path

    def words(self, scripts: str) -> tuple[str, ...]:
        """The command with the scripts of that folder."""
        places = {"data": str(self.data), "out": str(self.work / "out"), "scripts": scripts}
        return tuple(word.format(**places) for word in self.project.command)

    @property
    def variables(self) -> dict[str, str]:
        places = {"data": str(self.data), "out": str(self.work / "out"), "scripts": "scripts"}
        own = {name: value.format(**places) for name, value in self.project.variables}
        return {**self.where.variables(), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **own}


def planted(folder: Path) -> None:
    """The scripts of the matrix in a new folder, with loaders that have no workers."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.glob("*.py"):
        path.write_text(_WORKERS.sub(r"\g<1>0", path.read_text()))


def run(place: Place, within: str, rounds: int) -> list[str]:
    """Fix one project and hold it to the stopwatch; raises RuntimeError with what was printed if that fails."""
    work = place.work
    (work / "out").mkdir(parents=True, exist_ok=True)
    planted(work / "scripts")
    command = (place.where.python, "-m", "stash", "fix", "--budget", within, *place.words("scripts"))
    found = fixed(command, work, place.variables)
    if not found.by_itself:
        return [place.project.key, *found.cells, ""]
    shutil.copytree(work / "scripts", work / "typed", dirs_exist_ok=True)
    if (work / "it.fix.patch").exists():
        call(["git", "init", "-q", "."], work, place.variables)
        call(["git", "apply", "it.fix.patch"], work, place.variables)

    def step(arm: str, more: Sequence[str], variables: Mapping[str, str]) -> float | None:
        return plain_step((*place.words(arm), *more), place.where, {**place.variables, **variables}, work, arm)

    return [
        place.project.key, *found.cells,
        realised(lambda: step("typed", (), {}), lambda: step("scripts", found.words, found.variables), rounds),
    ]  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    cells: tuple[str, ...]
    """Of the table: step, names, how, promised."""
    by_itself: bool
    """Whether something is kept, and nothing of it is left to a person."""
    words: tuple[str, ...]
    variables: Mapping[str, str]


def fixed(command: Sequence[str], work: Path, variables: Mapping[str, str]) -> Found:
    """Run ``stash fix`` in a folder, where it leaves ``it.fix.json`` and ``it.fix.patch``."""
    (work / "it.fix.patch").unlink(missing_ok=True)
    at = command.index("fix") + 1
    call([*command[:at], "--json", "-o", "it.fix.json", *command[at:]], work, variables)
    record = json.loads((work / "it.fix.json").read_text())
    kept = [each for each in record["tried"] if each["standing"] == "kept"]
    together = record["together"]
    promised = "" if together is None else f"{together['value'] * 1e3:.2f}"
    if together is not None and together["high"] is not None:
        promised += f" ± {(together['high'] - together['low']) / 2 * 1e3:.2f}"
    ways = tuple(dict.fromkeys(each["written"] for each in kept))
    names = ", ".join(each["name"] for each in kept) or "nothing"
    typed = [each["how"] for each in kept if each["written"] == "command"]  # an option, or a key of a configuration
    return Found(
        (f"{record['step_seconds'] * 1e3:.2f}", names, ", ".join(ways), promised),
        bool(kept) and "explained" not in ways and all(how.startswith("-") for how in typed),
        tuple(word for how in typed for word in how.split()),
        {name: value for each in kept for name, value in each["variables"].items()},
    )


def realised(typed: Callable[[], float | None], after: Callable[[], float | None], rounds: int) -> str:
    """What two arms differ by, in turns, ms of a step."""
    gains = []
    for number in range(rounds):
        pair = [arm() for arm in ((typed, after) if number % 2 == 0 else (after, typed))]
        if pair[0] is None or pair[1] is None:
            raise RuntimeError("no step was timed")
        gains.append((pair[0] - pair[1]) * (1 if number % 2 == 0 else -1))
    error = np.std(gains, ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else np.nan
    return f"{np.mean(gains) * 1e3:.2f} ± {2 * error * 1e3:.2f}"


def call(command: Sequence[str], work: Path, variables: Mapping[str, str]) -> None:
    """Run a command in a folder; raises RuntimeError if it fails."""
    done = subprocess.run(
        command, cwd=work, env=dict(variables), capture_output=True, text=True, check=False, timeout=LONGEST
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-500:]}")


def kept_rows(runs: Mapping[str, Callable[[Path], list[str]]]) -> int:
    """Run each in its folder and report; rows are kept, and what has one is not run again."""
    rows, failed = [], []
    for key, run_in in runs.items():
        work = CACHE / "fix" / key
        row = work / "row.json"
        if not row.exists():
            try:
                found = run_in(work)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                failed.append((key, str(error)[-300:].replace("\n", " ")))
                progress(*failed[-1])
                continue
            row.write_text(json.dumps(found))
        rows.append(json.loads(row.read_text()))
        progress(*rows[-1])
    report(table(HEADS, rows), *([table(("failed", "why"), failed)] if failed else []))
    return 1 if failed else 0


def main(names: Sequence[str], within: str, rounds: int) -> int:
    """Run these of ``NAMES``, or all."""
    CACHE.mkdir(parents=True, exist_ok=True)
    below, pictures = environments.base(CACHE), data.make(CACHE / "data")

    def run_in(work: Path, project: Project) -> list[str]:
        where = environments.layer(project.key, project.requirements, below, CACHE)
        return run(Place(project, where, work, pictures), within, rounds)

    chosen = [project for project in PROJECTS if project.key in (names or NAMES)]
    return kept_rows({project.key: partial(run_in, project=project) for project in chosen})

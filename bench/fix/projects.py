"""``stash fix`` on real projects of ``make compat``, whose loaders are given no workers, as many are found.

Scripts are copied and changed there; the patch is applied to the copy, and both run by themselves in turns, timed by
the stopwatch of the matrix, which knows nothing of Stash. Environments and data are those of ``make compat``.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    command = [place.where.python, "-m", "stash", "fix", "--within", within, "--json", "-o", "it.fix.json"]
    _call([*command, *place.words("scripts")], work, place.variables)
    record = json.loads((work / "it.fix.json").read_text())
    kept = [each for each in record["tried"] if each["standing"] == "kept"]
    names = ", ".join(each["name"] for each in kept) or "nothing"
    ways = ", ".join(dict.fromkeys(each["written"] for each in kept))
    promised = "" if record["together"] is None else f"{record['together']['value'] * 1e3:.2f}"
    step = f"{record['step_seconds'] * 1e3:.2f}"
    if not kept or not all(each["written"] in ("patch", "setting") for each in kept):
        return [place.project.key, step, names, ways, promised, ""]
    variables = {name: value for each in kept for name, value in each["variables"].items()}
    realised = _realised(place, (work / "it.fix.patch").exists(), variables, rounds)
    return [place.project.key, step, names, ways, promised, realised]


def _realised(place: Place, patched: bool, variables: Mapping[str, str], rounds: int) -> str:
    work = place.work
    shutil.copytree(work / "scripts", work / "typed", dirs_exist_ok=True)
    if patched:
        _call(["git", "init", "-q", "."], work, place.variables)
        _call(["git", "apply", "it.fix.patch"], work, place.variables)
    times: dict[str, list[float]] = {"typed": [], "scripts": []}
    for number in range(rounds):
        for folder in times if number % 2 == 0 else reversed(times):
            new = variables if folder == "scripts" else {}
            step = plain_step(place.words(folder), place.where, {**place.variables, **new}, work, folder)
            if step is None:
                raise RuntimeError(f"{place.project.key}: no step was timed of {folder}")
            times[folder].append(step)
    gains = np.array(times["typed"]) - np.array(times["scripts"])
    error = gains.std(ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else np.nan
    return f"{gains.mean() * 1e3:.2f} ± {2 * error * 1e3:.2f}"


def _call(command: Sequence[str], work: Path, variables: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=work, env=dict(variables), capture_output=True, text=True, check=False, timeout=LONGEST
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-500:]}")


def main(names: Sequence[str], within: str, rounds: int) -> int:
    """Run these of ``NAMES``, or all; their rows are kept, and what has one is not run again."""
    CACHE.mkdir(parents=True, exist_ok=True)
    below, pictures = environments.base(CACHE), data.make(CACHE / "data")
    rows, failed = [], []
    for project in PROJECTS:
        if project.key not in (names or NAMES):
            continue
        work = CACHE / "fix" / project.key
        row = work / "row.json"
        if not row.exists():
            try:
                where = environments.layer(project.key, project.requirements, below, CACHE)
                found = run(Place(project, where, work, pictures), within, rounds)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                failed.append((project.key, str(error)[-300:].replace("\n", " ")))
                progress(*failed[-1])
                continue
            row.write_text(json.dumps(found))
        rows.append(json.loads(row.read_text()))
        progress(*rows[-1])
    report(table(HEADS, rows), *([table(("failed", "why"), failed)] if failed else []))
    return 1 if failed else 0

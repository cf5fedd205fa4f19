"""Show that the truth suite is not blind: break Stash in five ways and see CI's cases fail each of them.

Each break is one edit of a copy of the sources; the copy is what the profiles then run. A sound copy goes
first, and must pass. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.common import ROOT, machine, table
from bench.truth.cases import quick
from bench.truth.suite import Result, faults, saved


@dataclass(frozen=True)
class Break:
    """One edit: in ``file``, the text ``sound`` becomes ``broken``."""

    name: str
    file: str = ""
    sound: str = ""
    broken: str = ""

    def apply(self, root: Path) -> None:
        """Edit the copy; raises ValueError if the sources no longer hold the text."""
        if not self.file:
            return
        path = root / self.file
        text = path.read_text()
        if text.count(self.sound) != 1:
            raise ValueError(f"{self.file} does not hold exactly one {self.sound!r}: adapt the break to the sources")
        path.write_text(text.replace(self.sound, self.broken))


BREAKS = (
    Break("a sound build"),
    Break(
        "switching the scope does nothing", "stash/measure/agent/climb/rank.py",
        "        replicas.set_scope(name)\n", "        return\n",
    ),
    Break(
        "cold blocks are warm", "stash/measure/agent/climb/blocks.py",
        '"cold": COLD', '"cold": WARM',
    ),
    Break(
        "blocks start with full queues",
        "stash/measure/agent/climb/blocks.py",
        '        muster(rank.orders, f"{number}.{visit.rung}")\n',
        "        time.sleep(1)\n",
    ),
    Break(
        "queues keep what was fetched before", "stash/measure/agent/data/loader_feed.py",
        "    def drain(self) -> None:\n        if self.source is None or self._ended:\n            return\n",
        "    def drain(self) -> None:\n        return\n",
    ),
    Break(
        "replays repeat the first batches for ever", "stash/measure/agent/climb/supply.py",
        "                self._refill(feed)\n", "                pass\n",
    ),
)  # fmt: skip


def verdicts(broken: Break, root: Path) -> list[list[str]]:
    """Table rows: what each of CI's cases says of this build."""
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    broken.apply(root / "src")
    rows = []
    for case in quick():
        file = root / "results.jsonl"
        file.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "bench.truth", "--only", case.name, "--no-stopwatch", "--save", str(file)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(root / "src")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        results: list[Result] = saved(file) if file.exists() else []
        found = faults(results) if results else [f"no answer ({_why(done.stderr)})"]
        rows.append([broken.name, case.name, "passes" if not found else "**fails**: " + "; ".join(found)])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return rows


def _why(words: str) -> str:
    """What the suite said of a profile that it could not judge."""
    said = [line.strip() for line in words.splitlines() if line.startswith(("FAILED", "error"))]
    return said[-1].removeprefix("FAILED ")[:160] if said else "it said nothing"


def main() -> None:
    """Break, run, print."""
    rows = []
    for broken in [one for one in BREAKS if (sys.argv[1:] or [""])[0] in one.name]:
        with tempfile.TemporaryDirectory() as folder:
            rows += verdicts(broken, Path(folder))
    print(f"{machine()}\n\n{table(('build', 'case', 'verdict'), rows)}")


if __name__ == "__main__":
    main()

"""What must not move while the house is made smaller: figures that no clock has a part in, and Python's signatures.

``python -m bench.baseline`` writes them to ``bench/baseline.json``; ``--check`` says which lines differ, numbers to
nine significant digits. JSON of the commands is held by ``tests/golden/commands``, size by ``bench.house``.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

FILE = Path(__file__).with_name("baseline.json")
COMMANDS = {
    "plan": ("bench.plan", "build/recommendation.md"),
    "forecasts": ("bench.predict", "build/validation.md"),
    "spot speeds": ("bench.spot.speeds", None),
    "paper's losses": ("bench.spot.paper_loss", None),
}
"""Modules, and the file that each writes; without one what it prints counts."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_SECONDS = re.compile(r"^.*\b(seconds|took|CPU)\b.*$", re.IGNORECASE)
"""Lines about the time that a bench itself took."""


def measure() -> dict[str, list[str]]:
    """Run the benches; lines of each, and one of each public name."""
    import stash

    names = [name for name in stash.__all__ if callable(getattr(stash, name))]
    found = {"signatures": [f"{name}{inspect.signature(getattr(stash, name))}" for name in names]}
    for title, (module, file) in COMMANDS.items():
        printed = subprocess.run(
            [sys.executable, "-m", module], capture_output=True, text=True, check=True
        ).stdout
        text = printed if file is None else Path(file).read_text()
        found[title] = [line for line in text.splitlines() if not _SECONDS.match(line)]
    return found


def list_differences(before: list[str], now: list[str]) -> list[str]:
    """Both lines of each pair that says something else."""
    pairs = zip_longest(before, now, fillvalue="")
    return [
        line for old, new in pairs if not is_same(old, new) for line in (f"- {old}", f"+ {new}")
    ]


def is_same(old: str, new: str) -> bool:
    """Whether two lines have the same words, and numbers that are equal to nine significant digits."""
    if _NUMBER.sub("", old) != _NUMBER.sub("", new):
        return False
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    return all(math.isclose(float(one), float(other), rel_tol=1e-9) for one, other in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="compare with the file instead of writing it"
    )
    options, now = parser.parse_args(), measure()
    if not options.check:
        FILE.write_text(json.dumps(now, indent=1) + "\n")
        return 0
    before = json.loads(FILE.read_text())
    differing = {
        title: list_differences(before.get(title, []), lines) for title, lines in now.items()
    }
    for title, lines in differing.items():
        print(f"{title}: {len(lines) // 2} lines differ" if lines else f"{title}: as before")
        print(*lines, sep="\n", end="\n" if lines else "")
    return int(any(differing.values()))


if __name__ == "__main__":
    sys.exit(main())

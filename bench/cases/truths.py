"""What is true of each case (``truths.csv``): what it loses time to, where, what removes it, how it is started.

Columns of the table: the script; ranks; right headings (rows of the run, or stalls of a step); a part of the line
where the time is lost or its cause stands, empty where there is none; words of right advice (a regular expression);
knobs of ``stash fix`` that cure it, empty where no setting does; what other tools are right to name (likewise).
``||`` stands between alternatives. How much is
lost is no column: the script, typed less ``FIXED=1`` in the same minutes, tells it.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
_OR = " || "


@dataclass(frozen=True)
class Case:
    """One script and its truth."""

    script: str
    nproc: int
    rows: tuple[str, ...]
    lines: tuple[int, ...]
    remedy: str
    is_repairable: bool
    """``FIXED=1`` runs the remedy."""
    tells_time: bool
    """It prints what a step took."""
    knobs: tuple[str, ...]
    """Of ``stash fix``, any of which cures it; empty where no setting does."""
    peers: str
    """A pattern of what another tool is right to name, however broadly; empty where it has no name for it."""

    @property
    def path(self) -> Path:
        return FOLDER / "scripts" / self.script

    @property
    def name(self) -> str:
        return self.script.removesuffix(".py")


def read_cases(only: tuple[str, ...] = ()) -> list[Case]:
    """All cases, or those whose names contain one of ``only``; raises LookupError for a line that no script has."""
    with (FOLDER / "truths.csv").open(newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if not only or any(part in row["script"] for part in only)
        ]
    return [_case(row) for row in rows]


def _case(row: dict[str, str]) -> Case:
    text = (FOLDER / "scripts" / row["script"]).read_text(encoding="utf-8")
    parts = row["line"].split(_OR) if row["line"] else []
    numbered = list(enumerate(text.splitlines(), 1))
    lines = [[number for number, line in numbered if part in line] for part in parts]
    for part, found in zip(parts, lines, strict=True):
        if not found:
            raise LookupError(f"{row['script']} has no line with {part!r}")
    return Case(
        script=row["script"],
        nproc=int(row["nproc"]),
        rows=tuple(row["rows"].split(_OR)),
        lines=tuple(number for found in lines for number in found),
        remedy=row["remedy"],
        is_repairable='environ.get("FIXED")' in text,
        tells_time='print(f"' in text and (" ms a" in text or "seconds a step" in text),
        knobs=tuple(row["fix"].split(_OR)) if row["fix"] else (),
        peers=row["peers"],
    )

"""The cells of a study: every workload at every batch at every place on so many nodes, as often as it is repeated.

A cell's id is a digest of all that its measurement depends on (workload, place, settings, Stash's version), so the
same cell is never measured twice, and a changed one always is. What it is called and what it costs is not part of
it. Raises the file's own errors for what does not fit together; knows nothing of how a cell is run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from stash.api import WORKLOADS, find_workload
from stash.core.errors import UserError
from stash.study.emulating import EmulatedCell, emulate_cell
from stash.study.places import StudyPlace
from stash.study.study_file import (
    EmulatedTarget,
    Selection,
    SkyTarget,
    SlurmTarget,
    StudyFile,
    StudySettings,
)

MAX_CELLS = 10_000
_ID = 12
"""Hexadecimal digits of SHA-256: of 10,000 cells two share one with a chance of 2·10^-7."""
_NOT_MEASURED = {"name", "price", "nodes", "data", "time", "at_once"}
"""Fields of a target that change nothing of what is measured there, or whose effect is counted elsewhere."""


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    id: str
    workload: str
    """As it is called in tables."""
    zoo: str | None
    words: tuple[str, ...]
    """Those of the user's own job, filled in."""
    batch: int | None
    """``None`` where an own job takes none."""
    place: StudyPlace
    nodes: int
    repeat: int
    data: str | None
    settings: StudySettings
    emulated: EmulatedCell | None = None

    @property
    def size(self) -> float:
        """Gradient bytes, by which workloads are put in order; unknown ones are the largest."""
        return float("inf") if self.zoo is None else WORKLOADS[self.zoo].gradient_bytes

    @property
    def row_name(self) -> str:
        """``"resnet18 32"``: the row of a matrix."""
        return self.workload if self.batch is None else f"{self.workload} {self.batch}"

    @property
    def column_name(self) -> str:
        """``"2 × p3.8xlarge"``: its column."""
        return self.place.name if self.nodes == 1 else f"{self.nodes} × {self.place.name}"

    @property
    def title(self) -> str:
        batch = "" if self.batch is None else f" batch {self.batch}"
        return f"{self.workload}{batch} on {self.column_name}"

    @property
    def size_order(self) -> tuple[float, str, int]:
        """Where its row stands: small workloads and batches first."""
        return self.size, self.workload, self.batch or 0

    @property
    def group_key(self) -> tuple[str, str]:
        """What cells share that differ in batch and repeat alone."""
        return self.workload, self.column_name

    @property
    def is_rented(self) -> bool:
        """Whether its machines are asked for first."""
        return isinstance(self.place.target, SkyTarget)

    @property
    def lane(self) -> str:
        """Of one lane, one cell runs at a time; all that runs on this machine shares one, or would be disturbed."""
        if isinstance(self.place.target, SlurmTarget):
            return f"{self.place.name} {int(self.id, 16) % self.place.target.at_once}"
        return self.place.name if self.is_rented else "this machine"

    @property
    def dollars_per_hour(self) -> float | None:
        """Dollars an hour of all nodes; ``None``: not paid for by time."""
        price = self.place.dollars_per_hour
        return price * self.nodes if self.is_rented and price is not None else None


def make_cells(file: StudyFile, places: Sequence[StudyPlace], version: str) -> tuple[Cell, ...]:
    """Every cell once, in the file's order; raises UserError naming line and field."""
    # What workloads are called in tables; raises UserError for one that the zoo does not have,
    # and for namesakes.
    names: list[str] = []
    for number, given in enumerate(file.study.workloads):
        words = [word for word in given.command if not word.startswith("-")]
        scripts = [word for word in words if word.endswith((".py", ".sh"))]
        name = given.name or given.zoo or PurePath((scripts or words or ["job"])[0]).name
        if name in names:
            why = f"there are two workloads called {name!r}; give one another `name:`"
            raise file.mistake(("workloads", number, "name"), why)
        try:
            names.append(name)
            if given.zoo is not None:
                find_workload(given.zoo)
        except UserError as error:
            raise file.mistake(("workloads", number, "zoo"), str(error)) from None
    _check_selections(file, {"workload": names, "target": [place.name for place in places]})
    made: dict[str, Cell] = {}
    for combination in _combinations(file, names, places):
        cell = _cell(file, names, version, *combination)
        made.setdefault(cell.id, cell)
        if len(made) > MAX_CELLS:
            raise UserError(
                f"{file.path}: it has more than {MAX_CELLS:,} cells; leave some out with `exclude:`"
            )
    if not made:
        raise UserError(f"{file.path}: `exclude:` leaves no cell to measure")
    return tuple(made.values())


Combination = tuple[int, int | None, StudyPlace, int, int]
"""Number of the workload, batch, place, nodes, repeat."""


def _combinations(
    file: StudyFile, names: Sequence[str], places: Sequence[StudyPlace]
) -> Iterator[Combination]:
    study = file.study
    repeats = range(study.repeats)
    for number, name in enumerate(names):
        for place in places:
            for nodes in place.target.nodes or study.nodes:
                for batch in _batches(file, number):
                    if not any(
                        _is_selected(each, name, batch, place, nodes) for each in study.exclude
                    ):
                        yield from ((number, batch, place, nodes, repeat) for repeat in repeats)


def _batches(file: StudyFile, number: int) -> tuple[int | None, ...]:
    given = file.study.workloads[number]
    if given.batches is not None:
        return given.batches
    if given.zoo is not None:
        return file.study.batches or (WORKLOADS[given.zoo].batch,)
    takes = any("{batch}" in word for word in given.command)
    return (file.study.batches or (None,)) if takes else (None,)


def _is_selected(
    chosen: Selection, workload: str, batch: int | None, place: StudyPlace, nodes: int
) -> bool:
    wanted = (
        (chosen.workload, workload),
        (chosen.batch, batch),
        (chosen.target, place.name),
        (chosen.nodes, nodes),
    )
    return all(values is None or value in values for values, value in wanted)


def _cell(
    file: StudyFile,
    names: Sequence[str],
    version: str,
    number: int,
    batch: int | None,
    place: StudyPlace,
    nodes: int,
    repeat: int,
) -> Cell:
    given = file.study.workloads[number]
    target = place.target
    settings = file.study.settings
    data = target.data.get(names[number]) if isinstance(target.data, Mapping) else target.data
    bed = _make_emulated(file, given.zoo, names[number], batch, place, nodes)
    # The words of the user's own job; raises UserError where one stands for nothing, or names no
    # script.
    values = {"{batch}": batch, "{nodes}": nodes, "{data}": data}
    words = file.study.workloads[number].command
    where = ("workloads", number, "command")
    for mark, value in values.items():
        if value is None and any(mark in word for word in words):
            why = f"{mark} stands for nothing there; give `{mark.strip('{}')}:` or `batches:`"
            raise file.mistake(where, why)
        words = tuple(word.replace(mark, str(value)) for word in words)
    missing = file.missing_script(words)
    if missing is not None:
        why = f"there is no script {missing} in {file.folder}; paths begin at the study's folder"
        raise file.mistake(where, why)
    content = {
        "stash": version,
        "workload": [given.zoo, words, file.script(words)],
        "where": [target.model_dump(mode="json", exclude=_NOT_MEASURED), nodes, data],
        "how": settings.model_dump(mode="json"),
        "batch": batch,
        "repeat": repeat,
        "emulated": None
        if bed is None
        else dataclasses.astuple(dataclasses.replace(bed, facts=())),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    id = digest[:_ID]
    name = names[number]
    return Cell(id, name, given.zoo, words, batch, place, nodes, repeat, data, settings, bed)


def _make_emulated(
    file: StudyFile, zoo: str | None, name: str, batch: int | None, place: StudyPlace, nodes: int
) -> EmulatedCell | None:
    if not isinstance(place.target, EmulatedTarget):
        return None
    where = ("targets", file.study.targets.index(place.target))
    if zoo is None:
        why = f"an emulated instance trains workloads of the zoo alone; `exclude:` {name} there"
        raise file.mistake(where, why)
    try:
        return emulate_cell(
            place, place.target, nodes, WORKLOADS[zoo], batch or WORKLOADS[zoo].batch
        )
    except UserError as error:
        raise file.mistake(where, str(error)) from None


def _check_selections(file: StudyFile, known: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError for a selection of something that the study does not have."""
    for number, each in enumerate(file.study.exclude):
        for field, names in known.items():
            for name in getattr(each, field) or ():
                if name not in names:
                    why = f"the study has no {field} {name!r}; it has {', '.join(names)}"
                    raise file.mistake(("exclude", number, field), why)

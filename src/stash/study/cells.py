"""The cells of a study: every workload at every batch at every place on so many nodes, as often as it is repeated.

A cell's id is a digest of all that its measurement depends on (workload, place, settings, Stash's version), so the
same cell is never measured twice, and a changed one always is. What it is called and what it costs is not part of
it. Raises the file's own errors for what does not fit together; knows nothing of how a cell is run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple

from stash.core.errors import UserError
from stash.core.units import nearest
from stash.study.emulating import CalibratingProfile, EmulatedCell, EmulatedJob, emulated
from stash.study.fields import EmulatedTarget, Selection, StudySettings, StudyWorkload
from stash.study.places import StudyPlace
from stash.study.study_file import StudyFile

MAX_CELLS = 10_000
_ID = 12
"""Hexadecimal digits of SHA-256: of 10,000 cells two share one with a chance of 2·10^-7."""
_NOT_MEASURED = {"name", "price", "start", "nodes", "data", "idle", "time", "at_once", "calibrate", "file", "run"}
"""Fields of a target that change nothing of what is measured there, or whose effect is counted elsewhere."""
Where = tuple[int | str, ...]


class ZooWorkload(NamedTuple):
    """What a study has to know of a workload that comes with Stash."""

    batch: int
    gradient_bytes: int
    sample_flops: float | None = None
    """FLOPs of a sample's forward pass; ``None`` if they were not counted."""
    sample_bytes: float | None = None
    """That it reads and writes, without weights."""
    layers: int | None = None
    """Trained tensors."""


@dataclass(frozen=True)
class Cell:
    """One thing to measure."""

    id: str
    workload: str
    """As it is called in tables."""
    zoo: str | None
    words: tuple[str, ...]
    """Further words of a zoo workload, or those of the user's own job, filled in."""
    batch: int | None
    """``None`` where an own job takes none."""
    place: StudyPlace
    nodes: int
    repeat: int
    data: str | None
    settings: StudySettings
    size: float
    """Gradient bytes, by which workloads are put in order; unknown ones are the largest."""
    emulated: EmulatedCell | None = None
    layers: int | None = None
    """Trained tensors of a zoo workload, of which an emulated model has fewer: one for each module."""

    @property
    def title(self) -> str:
        batch = "" if self.batch is None else f" batch {self.batch}"
        nodes = "" if self.nodes == 1 else f"{self.nodes} × "
        return f"{self.workload}{batch} on {nodes}{self.place.name}"

    @property
    def alike(self) -> tuple[Any, ...]:
        """What cells share that differ in batch and repeat alone."""
        return (self.workload, self.words if self.zoo else (), self.place.name, self.nodes, self.data)

    @property
    def dollars_per_hour(self) -> float | None:
        """Dollars an hour of all nodes; ``None``: not paid for by time."""
        price = self.place.dollars_per_hour
        return None if price is None else price * self.nodes


def cells(
    file: StudyFile,
    places: Sequence[StudyPlace],
    zoo: Mapping[str, ZooWorkload],
    version: str,
    calibrations: Mapping[str, CalibratingProfile] | None = None,
) -> tuple[Cell, ...]:
    """Every cell once, in the file's order; ``calibrations`` by their paths as the file has them.

    Raises UserError naming line and field.
    """
    names = [_name(workload) for workload in file.study.workloads]
    for number, (workload, name) in enumerate(zip(file.study.workloads, names, strict=True)):
        _check(file, number, workload, name, names, zoo)
    _check_selections(file, names, [place.name for place in places])
    maker = _Maker(file, zoo, version, calibrations or {})
    made: dict[str, Cell] = {}
    for combination in _combinations(file, names, places, zoo):
        cell = maker.cell(*combination)
        made.setdefault(cell.id, cell)
        if len(made) > MAX_CELLS:
            raise UserError(f"{file.path}: it has more than {MAX_CELLS:,} cells; leave some out with `exclude:`")
    if not made:
        raise UserError(f"{file.path}: `exclude:` leaves no cell to measure")
    return tuple(made.values())


Combination = tuple[int, int | None, StudyPlace, int, int]
"""Number of the workload, batch, place, nodes, repeat."""


def _combinations(
    file: StudyFile, names: Sequence[str], places: Sequence[StudyPlace], zoo: Mapping[str, ZooWorkload]
) -> Iterator[Combination]:
    study = file.study
    for number, workload in enumerate(study.workloads):
        for place in places:
            for nodes in place.target.nodes or study.nodes:
                for batch in _batches(file, workload, zoo):
                    if not any(_selected(each, names[number], batch, place, nodes) for each in study.exclude):
                        yield from ((number, batch, place, nodes, repeat) for repeat in range(study.repeats))
    for each in study.include:
        for number in (names.index(name) for name in each.workload or ()):
            workload = study.workloads[number]
            for place in (place for place in places if place.name in (each.target or ())):
                for nodes in each.nodes or (1,):
                    for batch in each.batch or _batches(file, workload, zoo)[:1]:
                        yield from ((number, batch, place, nodes, repeat) for repeat in range(study.repeats))


def _batches(file: StudyFile, workload: StudyWorkload, zoo: Mapping[str, ZooWorkload]) -> tuple[int | None, ...]:
    if workload.batches is not None:
        return workload.batches
    if workload.zoo is None:
        takes = any("{batch}" in word for word in workload.command)
        return (file.study.batches or (None,)) if takes else (None,)
    return file.study.batches or (zoo[workload.zoo].batch,)


def _selected(chosen: Selection, workload: str, batch: int | None, place: StudyPlace, nodes: int) -> bool:
    wanted = ((chosen.workload, workload), (chosen.batch, batch), (chosen.target, place.name), (chosen.nodes, nodes))
    return all(values is None or value in values for values, value in wanted)


@dataclass(frozen=True)
class _Maker:
    """Makes cells of one file."""

    file: StudyFile
    zoo: Mapping[str, ZooWorkload]
    version: str
    calibrations: Mapping[str, CalibratingProfile]

    def cell(self, number: int, batch: int | None, place: StudyPlace, nodes: int, repeat: int) -> Cell:
        workload = self.file.study.workloads[number]
        name, data = _name(workload), by_workload(place.target.data, _name(workload))
        bed = self._emulated(place, nodes, workload, batch)
        filled = {"{batch}": batch, "{nodes}": nodes, "{data}": data}
        words = workload.arguments or tuple(self._filled(word, filled, number) for word in workload.command)
        if workload.zoo is None and (missing := self.file.lacks(words)) is not None:
            why = f"there is no script {missing} in {self.file.folder}; paths begin at the study's folder"
            raise self.file.mistake(("workloads", number, "command"), why)
        target = place.target.model_dump(mode="json", exclude=_NOT_MEASURED)
        settings = self.file.study.settings
        content = {
            "stash": self.version,
            "workload": [workload.zoo, words, self.file.script(words)],
            "where": [target, nodes, data],
            "how": settings.model_dump(mode="json", exclude={"start"} if settings.probe else {"start", "probe"}),
            "batch": batch,
            "repeat": repeat,
            "emulated": None if bed is None else dataclasses.astuple(dataclasses.replace(bed, facts=())),
        }
        text = json.dumps(content, sort_keys=True)
        return Cell(
            id=hashlib.sha256(text.encode()).hexdigest()[:_ID],
            workload=name,
            zoo=workload.zoo,
            words=words,
            batch=batch,
            place=place,
            nodes=nodes,
            repeat=repeat,
            data=data,
            settings=settings,
            size=self.zoo[workload.zoo].gradient_bytes if workload.zoo else float("inf"),
            emulated=bed,
            layers=self.zoo[workload.zoo].layers if workload.zoo else None,
        )

    def _filled(self, word: str, values: Mapping[str, Any], number: int) -> str:
        for mark, value in values.items():
            if mark in word:
                if value is None:
                    why = f"{mark} stands for nothing there; give `{mark.strip('{}')}:` or `batches:`"
                    raise self.file.mistake(("workloads", number, "command"), why)
                word = word.replace(mark, str(value))
        return word

    def _emulated(
        self, place: StudyPlace, nodes: int, workload: StudyWorkload, batch: int | None
    ) -> EmulatedCell | None:
        if not isinstance(place.target, EmulatedTarget) or place.instance is None:
            return None
        where: Where = ("targets", self.file.study.targets.index(place.target))
        if workload.zoo is None:
            why = f"an emulated instance trains workloads of the zoo alone; `exclude:` {_name(workload)} there"
            raise self.file.mistake(where, why)
        try:
            job = self._job(place, place.target, workload, workload.zoo, batch)
            return emulated(place, place.target, nodes, job)
        except UserError as error:
            raise self.file.mistake(where, str(error)) from None

    def _job(
        self, place: StudyPlace, target: EmulatedTarget, workload: StudyWorkload, zoo: str, batch: int | None
    ) -> EmulatedJob:
        known = self.zoo[zoo]
        path = by_workload(target.calibrate, _name(workload))
        return EmulatedJob(
            workload=zoo,
            batch=batch or known.batch,
            gradient_bytes=known.gradient_bytes,
            sample_flops=known.sample_flops,
            sample_bytes=known.sample_bytes,
            calibrated=self.calibrations[path].speed(zoo, place.gpus, target.precision) if path else None,
        )


def _name(workload: StudyWorkload) -> str:
    if workload.name or workload.zoo:
        return str(workload.name or workload.zoo)
    words = [word for word in workload.command if not word.startswith("-")]
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    return PurePath((scripts or words or ["job"])[0]).name


def by_workload(given: str | Mapping[str, str] | None, name: str) -> str | None:
    """A field that is one path, or one by workload's name."""
    return given.get(name) if isinstance(given, Mapping) else given


def _check(
    file: StudyFile,
    number: int,
    workload: StudyWorkload,
    name: str,
    names: Sequence[str],
    zoo: Mapping[str, ZooWorkload],
) -> None:
    where: Where = ("workloads", number)
    if workload.zoo is not None and workload.zoo not in zoo:
        near = nearest(workload.zoo, zoo)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        why = f"no workload is called {workload.zoo!r}; {hint}`stash lab zoo` lists all {len(zoo)}"
        raise file.mistake((*where, "zoo"), why)
    if names.index(name) != number:
        why = f"there are two workloads called {name!r}; give one another `name:`"
        raise file.mistake((*where, "name"), why)


def _check_selections(file: StudyFile, workloads: Sequence[str], places: Sequence[str]) -> None:
    """Raise UserError for a selection of something that the study does not have."""
    for kind, chosen in (("exclude", file.study.exclude), ("include", file.study.include)):
        for number, each in enumerate(chosen):
            _check_names(file, (kind, number, "workload"), each.workload or (), workloads)
            _check_names(file, (kind, number, "target"), each.target or (), places)
            if kind == "include" and not (each.workload and each.target):
                raise file.mistake((kind, number), "name a workload and a target at least")


def _check_names(file: StudyFile, where: Where, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            why = f"the study has no {where[-1]} {name!r}; it has {', '.join(known)}"
            raise file.mistake(where, why)

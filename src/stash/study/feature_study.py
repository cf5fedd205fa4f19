"""The paper's study of model features: its study file, and what its cells tell of models, place by place.

ICDCS 2023 trains ResNets of 10 to 152 layers with and without residual links and batch norm, and VGGs of 11 to 19,
at 32 samples a device, and regresses the stall of exchanging against layers and bytes of gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.records.profile import Profile
from stash.predict.draws import Draws
from stash.study.cells import Cell
from stash.study.regression import LINE, Features, Regression, features, regress
from stash.study.results import StudyResult, scales_of

HERE = "here"
"""The place that is this machine, with the devices that it has."""
BATCH = 32
_HEAD = """\
# The paper's study of model features, as `stash characterize --features` writes it. It is a study as any other:
# change what you like, for example `targets:` to your partition or cloud (docs/format.md).
"""
_SETTINGS = "settings: {budget: 30s, noise: 5}\n"


def study_text(workloads: Sequence[str], place: str) -> str:
    """The study file of ``workloads`` at ``place``: an instance of the catalog, emulated, or ``HERE``."""
    target = "{engine: local}" if place == HERE else f"{{engine: emulated, instance: {place}}}"
    listed = "".join(f"- {{zoo: {name}}}\n" for name in workloads)
    return f"{_HEAD}workloads:\n{listed}batches: {BATCH}\ntargets:\n- {target}\n{_SETTINGS}"


Traits = tuple[bool | None, bool | None]
"""Whether a model has residual links, and batch norm; ``None`` where unstated."""


@dataclass(frozen=True)
class PlaceFeatures:
    """The models that were measured at one place at one batch."""

    place: str
    nodes: int
    batch: int | None
    models: tuple[Features, ...]


def place_features(
    measured: Iterable[tuple[Cell, Profile]], traits: Mapping[str, Traits], draws: Draws
) -> tuple[PlaceFeatures, ...]:
    """Features by place, nodes and batch, as the study has them; ``traits`` by the zoo's names.

    Cells that exchange nothing, or whose profile does not hold what is needed, are left out.
    """
    groups: dict[tuple[str, int, int | None], list[Features]] = {}
    for cell, profile in measured:
        group = groups.setdefault((cell.place.name, cell.nodes, cell.batch), [])
        try:
            group.append(_of_cell(cell, profile, traits.get(cell.zoo or "", (None, None)), draws))
        except UserError:
            continue  # one device, or a rung that was not asked for
    return tuple(PlaceFeatures(*at, tuple(models)) for at, models in groups.items() if models)


def _of_cell(cell: Cell, profile: Profile, traits: Traits, draws: Draws) -> Features:
    """As its study calls the model, and in the real thing's seconds and bytes where it was emulated."""
    seen, scales = features(profile, draws, *traits, source=cell.id), scales_of(cell)
    timeline = None if seen.timeline is None else seen.timeline / scales.seconds
    return seen.model_copy(
        update={
            "name": cell.workload,
            "layers": cell.layers or seen.layers,
            "gradient_bytes": seen.gradient_bytes / scales.bytes,
            "stall": seen.stall.scaled(1 / scales.seconds),
            "timeline": timeline,
        }
    )


class PlaceLine(NamedTuple):
    """The paper's line through the results of one place at one batch."""

    first: StudyResult
    """Of them, for its place and its batch."""
    line: Regression


def lines(found: Sequence[StudyResult]) -> tuple[PlaceLine, ...]:
    """Fit a line for every place and batch at which more models than the line has terms exchanged something."""
    groups: dict[tuple[object, ...], list[StudyResult]] = {}
    for each in found:
        if each.devices > 1 and each.exchange_seconds is not None and each.layers and each.gradient_bytes:
            groups.setdefault((each.cell.place.name, each.cell.nodes, each.cell.batch), []).append(each)
    fitted = []
    for group in groups.values():
        if len({each.cell.workload for each in group}) > len(LINE):
            with suppress(UserError):  # models that do not differ in what the line is through
                fitted.append(PlaceLine(group[0], regress([_of_result(each) for each in group])))
    return tuple(fitted)


def _of_result(result: StudyResult) -> Features:
    return Features(
        name=result.cell.workload,
        layers=result.layers or 0,
        gradient_bytes=result.gradient_bytes or 0.0,
        stall=Interval(value=result.exchange_seconds or 0.0),
    )

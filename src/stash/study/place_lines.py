"""The paper's line through the models of each place of a study: stall against layers and bytes of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from stash.core.errors import UserError
from stash.study.regression import TERMS, ModelStall, Regression, regress
from stash.study.results import StudyResult


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
        if len({each.cell.workload for each in group}) > len(TERMS):
            with suppress(UserError):  # models that do not differ in what the line is through
                fitted.append(PlaceLine(group[0], regress([_model_stall(each) for each in group])))
    return tuple(fitted)


def _model_stall(result: StudyResult) -> ModelStall:
    return ModelStall(
        name=result.cell.workload,
        layers=result.layers or 0,
        gradient_bytes=result.gradient_bytes or 0.0,
        seconds=result.exchange_seconds or 0.0,
    )

"""The paper's network stall within a study: several small nodes held to one large node of as many of the same GPUs.

    (T_many − T_one) / T_one      of steps with all exchange, on batches that are in memory

A study has it where both are among its places; what one profile tells by itself compares with one of its own nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.derive.study.results import StudyResult


@dataclass(frozen=True)
class NetworkTwin:
    """Some nodes, and the one node that could stand for them."""

    many: StudyResult
    one: StudyResult

    @property
    def seconds(self) -> float:
        """That a step on several nodes takes longer."""
        return self.many.replayed_seconds - self.one.replayed_seconds

    @property
    def share(self) -> float:
        """Of the step on one node; 4 is five times slower."""
        return self.seconds / self.one.replayed_seconds


def twins(found: Sequence[StudyResult]) -> tuple[NetworkTwin, ...]:
    """For every result on several nodes the fastest that does the same on one; those without are left out."""
    made = []
    for many in found:
        if many.cell.nodes > 1:
            alike = [one for one in found if _stands_for(one, many)]
            if alike:
                made.append(NetworkTwin(many, min(alike, key=lambda one: one.replayed_seconds)))
    return tuple(made)


def _stands_for(one: StudyResult, many: StudyResult) -> bool:
    gpus = [each.cell.place.instance.gpu_model if each.cell.place.instance else None for each in (one, many)]
    return (
        one.cell.nodes == 1
        and one.devices == many.devices
        and gpus[0] is not None
        and gpus[0] == gpus[1]
        and (one.cell.workload, one.cell.words, one.cell.batch)
        == (many.cell.workload, many.cell.words, many.cell.batch)
    )

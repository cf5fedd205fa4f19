"""Published training speeds of one GPU: which model, at which batch and precision, on which GPU, how fast.

Reads ``data/training_speeds.csv``, whose every line names its source. Knows nothing of what follows for other jobs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from stash.keep.catalog.shipped import rows

_KINDS = {"fp32": "fp32", "tf32": "fp32", "amp": "amp"}
"""TF32 is how Ampere runs programs that ask for fp32."""


class Speed(NamedTuple):
    """One published measurement."""

    model: str
    batch: int | None
    precision: str
    """``fp32`` (TF32 where the GPU has it) or ``amp``."""
    gpu: str
    """The GPU's model, e.g. ``V100``; sources seldom say the variant."""
    per_second: float
    """Samples, or iterations where ``batch`` is unknown."""
    as_of: str | None
    source: str
    series: str
    """Measurements that differ in the GPU alone: one source and kind of input, whatever machine it was."""

    @property
    def key(self) -> str:
        return model_key(self.model)


def model_key(name: str) -> str:
    """A model's name without what people write differently: ``"ResNet50v1.5"`` and ``"resnet-50"`` are
    ``"resnet50"``.
    """
    lowered = re.sub(r"v\d+\.\d+$", "", name.strip().lower())
    return re.sub(r"[^a-z0-9]", "", lowered)


@lru_cache(maxsize=1)
def speeds() -> tuple[Speed, ...]:
    """Every line of the table."""
    return tuple(
        Speed(
            model=row["model"],
            batch=int(row["batch"]) if row["batch"] else None,
            precision=_KINDS[row["precision"]],
            gpu=row["gpu_model"],
            per_second=float(row["speed"]),
            as_of=row["as_of"] or None,
            source=row["source"],
            series=f"{row['source'].split(',')[0]} {row['data']}",
        )
        for row in rows("training_speeds.csv")
    )

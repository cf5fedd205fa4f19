"""Slices of GPUs: what part of a whole GPU a device is that clouds sell as one, told by its memory.

Price lists count a slice as no GPU, as a fraction of one, or as one like any other; its memory gives it away. Knows
names and sizes. How fast a slice trains is nowhere published: ``derive.predict.compute`` says what is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from stash.keep.catalog.facts import GpuFacts, Instance
from stash.keep.catalog.names import tokens

_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Into which vendors cut a GPU's memory."""
_LEAST_WHOLE = 0.7
"""Of the nominal memory: drivers keep a tenth, and boards of one name differ by a quarter (P100, 12 and 16 GB)."""
_USABLE = 0.965
"""Of the nominal memory, between what is sold (all) and what drivers report."""


def share_of(name: str | None, memory_bytes: float | None, gpus: Iterable[GpuFacts]) -> float:
    """Of a whole GPU, what a device of that name with so much memory is: 1, or 1/n of a slice.

    1 as well where its memory, or the GPU, is not known.
    """
    if name is None or not memory_bytes:
        return 1.0
    words = tokens(name)
    alike = [gpu for gpu in gpus if gpu.memory_bytes and tokens(gpu.model) <= words]
    exact = [gpu for gpu in alike if tokens(gpu.name) <= words]
    whole = min((gpu.memory_bytes for gpu in exact or alike if gpu.memory_bytes), default=None)
    if whole is None or memory_bytes >= _LEAST_WHOLE * whole:
        return 1.0
    parts = _USABLE * whole / memory_bytes
    return 1 / min(_PARTS, key=lambda count: abs(math.log(parts / count)))


def sliced(instance: Instance, gpus: Iterable[GpuFacts]) -> Instance:
    """The same with the fraction of a GPU that its memory shows, where a price list counts it as a whole one."""
    if instance.gpu_count != 1:
        return instance
    share = share_of(instance.gpu or instance.gpu_model, instance.gpu_memory_bytes, gpus)
    return instance if share == 1.0 else instance.model_copy(update={"gpu_count": share})

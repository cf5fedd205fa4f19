"""Values that become smaller than a float32 holds normally: arithmetic on them takes many times as long on CPUs.

As soon as batches are replayed such values are flushed to zero, since that makes gradients vanish as the job's own do
not; so what they would cost is in the first steps, as typed, and in no later one. That parameters or buffers of the
model lose their values tells that they would have had such values.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable
from typing import Any

_FEWEST = 64
"""Values of a tensor that is looked at."""
_AT_ONCE = 16_384
"""Values that are counted at once: from 128 kB on the C library asks the kernel for memory, and then changes how it
keeps what is freed, by which all later steps of a ResNet were a tenth shorter."""
_LEAST = 0.1
"""Of a tensor's values, beyond which it loses its values and is no sparse one."""


def flush() -> bool:
    """Flush such values to zero from now on; whether the script did so itself."""
    torch = sys.modules["torch"]
    did = bool((torch.full((1,), 2e-39) * 1 == 0).all())
    torch.set_flush_denormal(True)
    return did


class TinyValues:
    """Of the tensors of a model on CPUs; made in one step, and asked in a later one."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        floats = [each for each in tensors if _is_looked_at(each)]
        self._before = [(weakref.ref(each), _count_tiny(each)) for each in floats]
        self._denormal = sum(_count_tiny(each, least=1) for each in floats)

    def count_lost(self) -> int:
        """How many values were too small, or have become so, or zero, since."""
        found = self._denormal
        for reference, before in self._before:
            tensor = reference()
            if tensor is not None:
                more = _count_tiny(tensor) - before
                found += more if more > _LEAST * tensor.numel() else 0
        return found


def _is_looked_at(tensor: Any) -> bool:
    kind = sys.modules["torch"].float32
    plain = type(tensor).__name__ in ("Tensor", "Parameter", "Buffer")
    return bool(
        plain and tensor.dtype is kind and tensor.device.type == "cpu" and tensor.numel() >= _FEWEST
    )


def _count_tiny(tensor: Any, least: int = 0) -> int:
    """Values that are too small, by their bits, since arithmetic may take them for zero; those too, or not."""
    torch, found = sys.modules["torch"], 0
    with torch.no_grad():
        for part in tensor.detach().contiguous().view(torch.int32).view(-1).split(_AT_ONCE):
            bits = part & 0x7FFFFFFF
            found += int(((bits >= least) & (bits < 0x00800000)).sum())
    return found

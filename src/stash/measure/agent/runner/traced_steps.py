"""Some steps recorded by torch.profiler; what it leaves behind slows no block, as a ladder's are its launch's last."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

TRACED_STEPS = 5


def trace_steps(target: Path, steps: int) -> Iterator[None]:
    """Record so many steps of this rank into the file ``target``.

    Raises RuntimeError if the script profiles itself, OSError if the file cannot be written.
    """
    import torch.profiler

    kinds = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(activities=kinds)
    profiler.start()
    for number in range(steps):
        with torch.profiler.record_function(f"ProfilerStep#{number}"):
            yield
    profiler.stop()
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{os.getpid()}.{target.name}")
    profiler.export_chrome_trace(str(draft))
    draft.rename(target)

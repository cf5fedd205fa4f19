"""Some steps recorded by torch.profiler, as the last thing of a launch: what it leaves behind slows no block."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

from stash.measure.agent.runner.rank import OwnRank

TRACED_STEPS = 5


def trace_steps(rank: OwnRank, folder: Path, steps: int) -> Generator[None, None, None]:
    """Record so many steps of this rank into ``folder``; what fails is noted, and breaks nothing."""
    import torch.profiler

    kinds = [torch.profiler.ProfilerActivity.CPU]
    if rank.device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(activities=kinds)
    try:
        profiler.start()
    except RuntimeError as error:  # the script profiles itself
        rank.note(f"no steps were traced: {error}")
        return
    for number in range(steps):
        with torch.profiler.record_function(f"ProfilerStep#{number}"):
            yield
    profiler.stop()
    target = folder / f"rank{rank.place.rank}.json.gz"
    draft = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(draft))
        draft.rename(target)
    except (OSError, RuntimeError) as error:
        rank.note(f"the trace of rank {rank.place.rank} was not written: {error}")

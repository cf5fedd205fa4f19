"""SPDL's headspace analysis, as its documentation shows it: wrap the loader in ``CacheDataLoader``, compare steps.

The tool gives no verdict of its own; what it says is the comparison its documentation draws: how much shorter a step
is once batches come from the cache. So it can only ever speak of the data loading as a whole.
"""

from __future__ import annotations

import statistics

from bench.peers.answers import NOTICEABLE, Answer, Reading
from bench.peers.launch import WARM_UP_STEPS, Change, Place, lines_added, pinned, run_changed, steps

NAME = f"SPDL {pinned('spdl_headspace', 'spdl_core')} headspace"
SCRIPT = "job.py"
MAX_CACHES = 10


def changes(place_steps: int) -> tuple[Change, ...]:
    """Half of the steps from the loader, half from the cache (the documentation takes 100 and shows no end)."""
    half = place_steps // 2
    caches = min(MAX_CACHES, half)
    return (
        Change(
            "from stash.lab.testbed.accelerator",
            "from spdl.dataloader import CacheDataLoader\nfrom stash.lab.testbed.accelerator",
        ),
        Change(
            "persistent_workers=True)\n",
            "persistent_workers=True)\n"
            f"    loader = CacheDataLoader(loader, num_caches={caches}, return_caches_after={half})\n",
        ),
    )


def lines() -> int:
    return lines_added(SCRIPT, changes(100))


def watch(place: Place) -> Answer:
    """Run the job once, the second half of it from the cache; raises LaunchError."""
    _, wall = run_changed(place, "spdl_headspace", SCRIPT, changes(place.steps))
    return read(steps(place.times), wall)


def read(seconds: list[float], wall: float) -> Answer:
    """Median step before and after the switch, the first steps of each half left out."""
    half = len(seconds) // 2
    before = statistics.median(seconds[WARM_UP_STEPS:half])
    after = statistics.median(seconds[half + 1 :])
    gain = before - after
    found = Reading("input", None, gain) if gain >= NOTICEABLE * before else Reading()
    return Answer(
        quote=f"a step takes {before * 1e3:.1f} ms, from the cache {after * 1e3:.1f} ms",
        says=found,
        allows=found,
        why="the difference of the two; nothing where it is small, but that it is not the data",
        wall_seconds=wall,
        step_seconds=before,
    )

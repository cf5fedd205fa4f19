"""What is lost without each estimator: ``python -m bench.noise.ablation [--only NAME]``.

Recorded profiles (``bench.noise.play``) are attributed as they are, and again with one mechanism off at a time. All
end where the rule of stopping fires with everything on, so that rows differ by the mechanism alone. Of what they hold
no case of (accelerators, sharded models) this says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.machine import arguments
from bench.noise import play
from bench.noise.play import Judged
from bench.noise.recordings import Folder, Recording
from bench.noise.truths import Truth
from bench.table import progress, table
from stash.analysis.disturbance import Undisturbed
from stash.analysis.shared_cores import RUNGS, RankDelays
from stash.core.intervals import Interval, mean_interval
from stash.core.levels import Matrix
from stash.core.records.profile import Profile

DATA = Path(__file__).with_name("data")
STANDS = "all on"


def _unread(*names: str) -> dict[str, object]:
    """As if the kernel did not tell these fields of blocks."""
    read = RankDelays._block_values

    def read_or_zero(delays: RankDelays, name: str) -> Any:
        return np.zeros(len(delays.blocks)) if name in names else read(delays, name)

    return {"analysis.shared_cores.RankDelays._block_values": read_or_zero}


def _all_by_strangers(delays: RankDelays) -> tuple[Any, Any]:
    return np.ones(len(delays.blocks)), np.ones(len(delays.blocks))


def _nothing_lost(profile: Profile) -> Undisturbed:
    return Undisturbed(profile, {})


def _student(matrix: Matrix, column: int) -> Interval:
    return mean_interval(matrix[:, column].tolist())


def _slowest_mean(times: Matrix) -> Matrix:
    return times[:, int(times.mean(axis=0).argmax())]


_ALONE = {name: replace(rung, scope="self") for name, rung in RUNGS.items()}
_CORES = "analysis.shared_cores.RankDelays"

OFF: Mapping[str, Mapping[str, object]] = {
    "run-queue delay (nothing subtracted)": {
        "analysis.attribution.remove_disturbance": _nothing_lost,
        "analysis.step_times.remove_disturbance": _nothing_lost,
    },
    "strangers' share (all delay subtracted)": {f"{_CORES}._shares": _all_by_strangers},
    "last rank (each by itself)": {"analysis.shared_cores.RUNGS": _ALONE},
    "exchanging threads' delay": {f"{_CORES}._helper_cost": lambda *_: (0.0, 0.0)},
    "loaders in the share": _unread("worker_cpu_seconds"),
    "samples' bound": {f"{_CORES}._supply": lambda _, wall, *__: (wall, np.zeros_like(wall))},
    "throttled share": _unread("throttled_seconds"),
    "doubt": {"analysis.shared_cores.DOUBT": 0.0},
    "method's own error": {"analysis.uncertainty.method_error": lambda *_: None},
    "launch's spread": {
        "analysis.uncertainty.launch_error": lambda _: 0.0,
        "analysis.attribution.launch_error": lambda _: 0.0,
    },
    "level": {"core.rounds.level": _student},
    "a rung's own noise in its level": {
        "core.levels._own_noise": lambda relative: np.full(
            relative.shape[1], float(relative.shape[1])
        )
    },
    "slow share": {"core.rounds.slow_share": lambda _: 0.0},
    "slowest of ranks": {"analysis.step_times.slowest_rank_times": _slowest_mean},
    "luck of slow ranks": {"analysis.step_times.stands_out": lambda _: True},
    "slow leader": {"analysis.step_times._subtract_slow_leader": lambda _, raw: raw},
    "by waits": {"analysis.step_times.loads_itself": lambda _: False},
    "as typed": {"analysis.attribution.compare_first_steps": lambda *_: None},
}
"""By what is off: what stands in its place, by its place in ``stash``."""


def end_recordings(folder: Folder) -> list[tuple[Recording, Profile, Truth]]:
    """All recordings with a truth, as their measurement ended."""
    known = [(one, truth) for one, truth in play.known_truths(folder, "") if truth is not None]
    return [
        (one, play.stop_by_rule(folder.profile(one), one.budget)[0], truth) for one, truth in known
    ]


def judge_without(
    replaced: Mapping[str, object], known: Sequence[tuple[Recording, Profile, Truth]]
) -> list[Judged]:
    """All recordings with some of ``stash`` replaced."""
    with ExitStack() as stack:
        for place, value in replaced.items():
            stack.enter_context(patch(f"stash.{place}", value))
        return [play.answer(*one, None) for one in known]


def main() -> None:
    """Take apart, print."""
    options = arguments(__doc__, only=("", "mechanisms whose name contains this"))
    known, rows = end_recordings(Folder(DATA)), []
    for name, replaced in {STANDS: {}, **OFF}.items():
        if options.only in name or name == STANDS:
            rows.append(play.summary(name, judge_without(replaced, known)))
            progress(name, "off")
    print(table(play.SUMMARY, rows))


if __name__ == "__main__":
    main()

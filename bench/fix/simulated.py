"""What the search of ``stash fix`` keeps on simulated jobs, whose truth is known: nothing is started.

A step varies from launch to launch, now and then by much more, and in turns of one launch less. Told are by kind of job
the part that is kept of what the best changes save, jobs that keep something which saves nothing, and seconds of a
search. A rule of the search that moves none of these columns is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.machine import arguments
from bench.table import report, table
from stash.fix.screening import find_changes
from stash.fix.script_changes import ScriptChange
from stash.fix.search_state import begin_search, run_search
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.trials import TrialRun

STEP, _BLOCK, _BLOCK_STEPS = 0.1, 1.2, 16
"""Seconds of a step as typed but for its loader; of a block of a launch in which settings take turns, and its steps."""


@dataclass(frozen=True)
class Kind:
    """One kind of job: ``saves`` are seconds of a step by change, ``loader`` what making a batch takes."""

    saves: Mapping[str, float]
    loader: float = 0.0
    together: float = 0.0
    """What ``item`` and ``waits`` save, only together."""
    start: float = 5.0
    noise: float = 0.01
    breaks: str = ""
    takes_turns: bool = True
    budget: float = 300.0


_IDLE = dict.fromkeys(("bucket_view", "set_to_none", "fused", "find_unused", "threads=1"), 0.0)
KINDS: Mapping[str, Kind] = {
    "nothing to fix": Kind(_IDLE | {"bucket=25": 0.0}),
    "the same, noisy": Kind(_IDLE | {"bucket=25": 0.0}, loader=0.02, noise=0.04),
    "the same, very noisy": Kind(_IDLE | {"bucket=25": 0.0}, noise=0.1),
    "loader": Kind(_IDLE | {"bucket=25": 0.0}, loader=0.3),
    "loader, exchange behind it": Kind(_IDLE | {"bucket=25": 0.03}, loader=0.3),
    "loader, noisy": Kind(_IDLE | {"bucket=25": 0.0}, loader=0.3, noise=0.06),
    "epochs that start": Kind(_IDLE | {"persistent": 0.04}, loader=0.02),
    "small savings": Kind(_IDLE | {"fused": 0.012, "bucket_view": 0.006, "bucket=25": 0.02}),
    "many middling ones": Kind(dict.fromkeys(_IDLE, 0.015)),
    "two that do the same": Kind(_IDLE | {"tf32": 0.03, "bfloat16": 0.031, "fused": 0.02}),
    "only together": Kind(_IDLE | {"item": 0.0, "waits": 0.0}, together=0.03),
    "one that breaks": Kind(_IDLE | {"fused": 0.02, "threads=1": 0.03}, breaks="bucket_view"),
    "one that does harm": Kind(_IDLE | {"fused": 0.03, "find_unused": -0.2}),
    "without turns": Kind(_IDLE | {"fused": 0.02, "threads=1": 0.03}, takes_turns=False),
    "starts slowly": Kind(_IDLE | {"fused": 0.02}, loader=0.2, start=35.0),
    "starts very slowly": Kind(_IDLE | {"fused": 0.02}, loader=0.25, start=55.0, noise=0.02),
    "little time": Kind(_IDLE | {"bucket=25": 0.03, "persistent": 0.02}, 0.15, budget=120.0),
    "slow steps": Kind(_IDLE, loader=2.0, start=8.0),
    "noisy": Kind(_IDLE | {"fused": 0.02, "bucket=25": 0.03}, noise=0.04),
}
_JOINS = ("bucket_view", "set_to_none", "fused", "find_unused", "item", "waits", "persistent")
_SWITCHED = ("set_to_none", "fused", "threads=1", "tf32", "bfloat16", "item", "waits")
_SAME = {"tf32", "bfloat16"}


def list_changes(kind: Kind) -> list[ScriptChange]:
    """What ``stash fix`` would propose for such a job."""
    workers = {f"workers={n}": {"loader": {"num_workers": n}} for n in (1, 2, 4, 8) if kind.loader}
    others = {name: {"flags": {name: True}} if name in _SWITCHED else {} for name in kind.saves}
    leads = {"forecast": 0.05, "leads": True}
    return [
        ScriptChange(
            name,
            name.partition("=")[0],
            name,
            settings=settings,
            joins=name in _JOINS,
            **(leads if name == "persistent" else {}),
        )
        for name, settings in {**workers, **others}.items()
    ]


def true_step(kind: Kind, names: Set[str]) -> float:
    """Seconds of a step with these changes: workers make batches beside it, and what does the same saves once."""
    on = names & kind.saves.keys()
    same = max((kind.saves[name] for name in on & _SAME), default=0.0)
    saved = sum(kind.saves[name] for name in on - _SAME) + same
    trains = STEP - saved - kind.together * ({"item", "waits"} <= names)
    workers = next((int(name[8:]) for name in names if name.startswith("workers=")), 0)
    if not workers:
        return trains + kind.loader
    return max(trains * (1 + 0.004 * workers), kind.loader / workers)


def best_step(kind: Kind) -> float:
    """The shortest step of all sets with at most one number of workers."""
    names = [each.name for each in list_changes(kind) if each.name != kind.breaks]
    workers = [{name} for name in names if name.startswith("workers=")]
    others = [name for name in names if kind.saves.get(name, 0.0) > 0 or kind.together]
    return min(true_step(kind, {*others, *each}) for each in (set(), *workers))


class PlayedJob:
    """A job whose launches and turns are drawn."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind = kind
        self.now = 0.0
        self._random = np.random.default_rng(seed)

    def seconds_left(self) -> float:
        return self.kind.budget - self.now

    def _draw_step(self, names: Set[str], share: float) -> float:
        held_up = abs(self._random.normal(0, 5 * share)) * (self._random.random() < 0.05)
        return true_step(self.kind, names) * float(np.exp(self._random.normal(0, share) + held_up))

    def run(self, changes: Sequence[ScriptChange], steps: int | None = None) -> TrialRun:
        names = {each.name for each in changes}
        step = self._draw_step(names, self.kind.noise)
        timed = min(15.0, max(3.0, 20 * step)) if steps is None else steps * step
        seconds = self.kind.start + timed
        self.now += seconds
        if self.kind.breaks in names:
            return TrialRun(None, elapsed_seconds=seconds, failure=Diagnosis("it broke"))
        evidence = ({"losses": ["0x1p0"] * 10, "batches": list(range(10)), "epochs": []},)
        return TrialRun(step, steps=int(timed / step), elapsed_seconds=seconds, evidence=evidence)

    def take_turns(
        self, rungs: Sequence[Mapping[str, Any]], rounds: int, stays: Sequence[ScriptChange]
    ) -> tuple[list[dict[int, float]], TrialRun]:
        arms = [{each.name for each in stays} | {*rung.get("flags", ())} for rung in rungs]
        for arm, rung in zip(arms, rungs, strict=True):
            arm |= {f"workers={n}" for n in rung.get("loader", {}).values()}
        block = sum(max(_BLOCK, _BLOCK_STEPS * true_step(self.kind, arm)) for arm in arms)
        seconds = self.kind.start + rounds * block
        self.now += seconds
        share = self.kind.noise / 2
        rows = [
            {index: self._draw_step(arm, share) for index, arm in enumerate(arms)}
            for _ in range(rounds)
        ]
        return rows, TrialRun(None, elapsed_seconds=seconds)


def play(kind: Kind, seed: int) -> tuple[float, bool, float]:
    """Search one job: what was saved of the most, whether something kept saves nothing, seconds."""
    job = PlayedJob(kind, seed)
    first = job.run([])
    search = begin_search(
        list_changes(kind), first, job.seconds_left(), takes_turns=kind.takes_turns
    )
    stages = find_changes(search)
    run_search(search, stages, job.run, job.take_turns, job.seconds_left)
    kept = frozenset(search.final.kept)
    typed, step = true_step(kind, set()), true_step(kind, kept)
    most = typed - best_step(kind)
    is_false = any(true_step(kind, kept - {name}) < step + 1e-9 for name in kept)
    return ((typed - step) / most if most > 0 else 1.0), is_false, job.now


def main() -> None:
    options = arguments(__doc__, jobs=(30, "jobs of each kind"))
    rows, every = [], []
    for name, kind in KINDS.items():
        found = [play(kind, seed) for seed in range(options.jobs)]
        every += found
        rows.append(_row(name, found))
    report(
        table(("job", "saved of the most", "kept falsely", "seconds"), [*rows, _row("all", every)])
    )


def _row(name: str, found: Sequence[tuple[float, bool, float]]) -> tuple[str, ...]:
    saved, is_false, seconds = zip(*found, strict=True)
    return (
        name,
        f"{np.mean(saved):.0%}",
        f"{sum(is_false)} of {len(found)}",
        f"{np.mean(seconds):.0f}",
    )


if __name__ == "__main__":
    main()

"""Recorded healthy training replayed as a watch sees it: false alerts, rises that are missed, and its bill."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.machine import ROOT
from bench.noise.recordings import Folder
from bench.table import table
from stash.core.records.profile import Block, Profile
from stash.monitor.accounting import StepAccount, account
from stash.monitor.change_test import ChangeTest, Slice
from stash.monitor.money import bill
from stash.monitor.records import MachinePrice, Window

_WEEK_WINDOWS = 60_480


@dataclass(frozen=True)
class Stretch:
    """Consecutive steps of all ranks of a recording under its highest rung, by rank."""

    steps: dict[int, np.ndarray]
    """(steps, 5): step, wait, exchange, delay."""


def stretches(profile: Profile) -> list[Stretch]:
    """Of each block with everything in it, in the order of the rounds."""
    top = next(
        (
            name
            for name in ("warm", "cluster", "node", "crowd", "solo")
            if any(b.rung == name for b in profile.blocks)
        ),
        "",
    )
    rounds: dict[int, list[Block]] = {}
    for block in profile.blocks:
        if block.rung == top and block.step_delays:
            rounds.setdefault(block.round, []).append(block)
    found = []
    for blocks in rounds.values():
        each = {}
        for b in blocks:
            zeros = (0.0,) * len(b.step_seconds)
            parts = (b.step_seconds, b.step_waits or zeros, b.step_exchanges or zeros, b.step_delays)
            if len({len(part) for part in parts}) == 1:
                each[b.rank] = np.array(parts).T
        if each and len({len(rows) for rows in each.values()}) == 1:
            found.append(Stretch(each))
    return found


def _account(rows: dict[int, np.ndarray]) -> StepAccount:
    """As a watched run of these steps has it: the rest of a step is its forward pass."""
    ranks = sorted(rows)
    seconds = np.zeros((len(rows[ranks[0]]), len(ranks), 8))
    for place, rank in enumerate(ranks):
        step, wait, exchange, _ = rows[rank].T
        seconds[:, place, 2], seconds[:, place, 7], seconds[:, place, 4] = wait, exchange, step - wait - exchange
    return account(ranks, seconds, np.array([rows[rank][:, 3] for rank in ranks]).T)


def replayed(windows: int, seed: int = 0) -> str:
    """False alerts over so many windows, by what disturbed the recorded runs."""
    draw = np.random.default_rng(seed)
    folder = Folder(ROOT / "bench" / "noise" / "data")
    by_kind: dict[str, list[list[Stretch]]] = {}
    for recording in folder.recordings():
        if not recording.failed:
            found = stretches(folder.profile(recording))
            if len(found) >= 5:
                by_kind.setdefault(recording.disturbance, []).append(found)
    rows, alerts, all_windows = [], 0, 0
    total = sum(map(len, by_kind.values()))
    for kind, runs in sorted(by_kind.items()):
        outcomes = [_run(run, -(-windows // total), draw) for run in runs]
        raised, count = sum(one.alerts for one in outcomes), sum(one.windows for one in outcomes)
        alerts, all_windows = alerts + raised, all_windows + count
        found = [f"{sum(one.noticed[at] for one in outcomes)} of {len(runs)}" for at in range(len(_RISES))]
        rows.append(
            [kind, str(len(runs)), f"{count:,}", str(raised), f"{raised / count * _WEEK_WINDOWS:.2f}", *found]
        )
    rows.append(["all", str(total), f"{all_windows:,}", str(alerts), f"{alerts / all_windows * _WEEK_WINDOWS:.2f}"])
    rises = [f"+{rise:.0%} noticed" for rise in _RISES]
    rows[-1] += ["", ""]
    heads = ["beside training", "recordings", "windows of 10 s", "false alerts", "a week of training", *rises]
    return table(heads, rows)


_RISES = (0.10, 0.33)


@dataclass(frozen=True)
class Outcome:
    """Of one run that goes on as its recording did."""

    alerts: int
    windows: int
    noticed: tuple[bool, ...]
    """Of a rise of compute by each of ``_RISES`` of the step, within four slices."""


def _run(found: list[Stretch], windows: int, draw: np.random.Generator) -> Outcome:
    slices, test, raised, taken = _slices(found, draw), ChangeTest(), 0, 0.0
    while taken < windows * 10.0:
        part = next(slices)
        raised += sum(not change.ended for change in test.take(part))
        taken += part.account.step_seconds * (part.last_step - part.first_step + 1)
    noticed = []
    for rise in _RISES:
        later = copy.deepcopy(test)
        changed = [change for _ in range(4) for change in later.take(_slower(next(slices), rise))]
        noticed.append(any(change.stall == "compute" and not change.ended for change in changed))
    return Outcome(raised, int(taken / 10), tuple(noticed))


def _slices(found: list[Stretch], draw: np.random.Generator) -> Iterator[Slice]:
    """For ever, in stretches of up to eight rounds."""
    number, held, seconds = 0, [], 0.0
    while True:
        first = int(draw.integers(len(found)))
        for stretch in found[first : first + 8]:
            if held and held[-1].keys() != stretch.steps.keys():
                continue
            held.append(stretch.steps)
            seconds += float(max(rows[:, 0].sum() for rows in stretch.steps.values()))
            if seconds >= 2.5:
                joined = {rank: np.concatenate([each[rank] for each in held]) for rank in held[0]}
                steps = len(next(iter(joined.values())))
                yield Slice(number, number + steps - 1, _account(joined))
                number, held, seconds = number + steps, [], 0.0


def _slower(part: Slice, rise: float) -> Slice:
    """With all ranks' forward passes longer by that part of the step."""
    one = part.account
    more = rise * one.step_seconds
    account = replace(
        one,
        step_seconds=one.step_seconds + more,
        seconds={**one.seconds, "compute": one.seconds["compute"] + more},
        ranks={rank: {**own, "forward": own["forward"] + more} for rank, own in one.ranks.items()},
    )
    return replace(part, account=account)


def forecasts() -> str:
    """How far the bill foreseen from a tenth of a run on is from what it came to, in replay of recorded runs."""
    draw, price = np.random.default_rng(0), MachinePrice(instance="x", dollars_per_hour=3600.0)
    folder, errors = Folder(ROOT / "bench" / "noise" / "data"), dict[str, list[float]]()
    for recording in folder.recordings():
        if not recording.failed and len(found := stretches(folder.profile(recording))) >= 5:
            windows = _bill_windows(found, draw)
            steps, ends = windows[-1].last_step + 1, np.cumsum([window.seconds for window in windows])
            for upto in range(_BILL_WINDOWS // 10, _BILL_WINDOWS):
                one = bill(price, float(ends[upto]), windows[: upto + 1], windows[upto].last_step + 1, steps)
                assert one.forecast is not None
                errors.setdefault(recording.disturbance, []).append(abs(one.forecast / float(ends[-1]) - 1))
    rows = [[kind, f"{np.mean(e):.1%}", f"{max(e):.1%}"] for kind, e in sorted(errors.items())]
    every = [error for each in errors.values() for error in each]
    rows.append(["all", f"{np.mean(every):.1%}", f"{max(every):.1%}"])
    return table(["beside training", "mean error of the bill", "largest (goal 3 %)"], rows)


_BILL_WINDOWS = 200


def _bill_windows(found: list[Stretch], draw: np.random.Generator) -> list[Window]:
    slices, windows = _slices(found, draw), []
    for _ in range(_BILL_WINDOWS):
        parts = [next(slices) for _ in range(4)]
        seconds = sum(part.account.step_seconds * (part.last_step - part.first_step + 1) for part in parts)
        first, last = parts[0].first_step, parts[-1].last_step
        windows.append(Window(
            began=0.0, seconds=seconds, first_step=first, last_step=last, steps=last - first + 1,
            step_seconds=seconds / (last - first + 1), stalls={},
        ))  # fmt: skip
    return windows

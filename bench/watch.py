"""How right a watched run is: emulated jobs whose faults begin and end at a step, replayed healthy windows, its cost.

Four tables. Jobs of two emulated ranks are watched as users do it; one or two ranks' preparation, forward pass,
backward pass, optimizer or all ranks' exchange get slower for some hundred steps. Told are the error of every stall
against what was built in, whether cause and rank are right, and how long it took to notice. Then slices of healthy
training, drawn in stretches from the recordings of `bench.noise` with the delays that were recorded with them, go
through the test of changes: what it raises is a false alert; at the end of each run its steps get slower by a tenth
and by a third, which is to be noticed. Then what stamps cost the job and the watcher its machine.
"""

from __future__ import annotations

import copy
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import yaml

from bench.machine import ROOT, arguments, machine
from bench.noise.recordings import Folder
from bench.table import table
from stash.core.records.profile import Block, Profile
from stash.measure.protocol import stamped
from stash.measure.protocol.stamped import StepRing, StepStage
from stash.monitor.accounting import StepAccount, account
from stash.monitor.change_test import ChangeTest, Slice
from stash.monitor.records import RunRecord, Window, load

_FORWARD, _BACKWARD, _OPTIMIZER, _PREP, _EXCHANGE = 0.016, 0.030, 0.004, 0.008, 0.010
_FIRST, _LAST, _STEPS = 450, 850, 1150
"""Steps at which faults begin and end, and of the whole run: at 70 ms they last half a minute."""
_SIZES = (0.006, 0.015, 0.035)
"""Seconds by which a stage is slower."""
_STALL = {
    "prep": "input",
    "forward": "contention",
    "backward": "contention",
    "optimizer": "contention",
    "exchange": "exchange",
}
_STAGE = {"prep": "input"}
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STASH_TESTBED": "1"}
_WEEK_WINDOWS = 60_480
_WINDOWS = 180_000


@dataclass(frozen=True)
class Fault:
    """What is slower on a rank, or on all (-1), and by how many seconds."""

    rank: int
    what: str
    seconds: float

    @property
    def typed(self) -> str:
        return f"{self.rank}:{self.what}:{_FIRST}:{_LAST}:{self.seconds}"


def cases() -> Iterator[tuple[Fault, ...]]:
    """24 single faults and pairs."""
    for number, what in enumerate(("prep", "forward", "backward", "optimizer")):
        for size in _SIZES:
            yield (Fault(number % 2, what, size),)
    for size in _SIZES:
        yield (Fault(-1, "exchange", size),)
    for first, second in (
        ("prep", "backward"), ("prep", "forward"), ("forward", "backward"), ("backward", "optimizer"),
        ("prep", "optimizer"), ("forward", "optimizer"),
    ):  # fmt: skip
        yield (Fault(1, first, 0.02), Fault(0, second, 0.008))
    yield (Fault(1, "prep", 0.02), Fault(-1, "exchange", 0.015))
    yield (Fault(0, "backward", 0.02), Fault(-1, "exchange", 0.015))
    yield ()


def watched(faults: Sequence[Fault], folder: Path) -> RunRecord:
    """The record of one job, watched as users do it."""
    layers = [
        {"name": f"layer {number}", "bytes": 4096, "forward_seconds": _FORWARD / 4, "backward_seconds": _BACKWARD / 4}
        for number in range(4)
    ]
    exchange = {"interconnect": 1e12, "latency_seconds": _EXCHANGE}
    model = {"layers": layers, "optimizer_seconds": _OPTIMIZER, "prep_seconds": _PREP, "exchange": exchange}
    (folder / "model.yaml").write_text(yaml.safe_dump(model))
    record = folder / "run.watch.jsonl"
    job = ["-m", "stash.lab.testbed.train_emulated", "--model", str(folder / "model.yaml"), "--steps", str(_STEPS)]
    job += [word for fault in faults for word in (f"--fault={fault.typed}",)]
    subprocess.run(
        [sys.executable, "-m", "stash", "watch", "--nproc-per-node", "2", "-o", str(record), *job],
        check=True, capture_output=True, cwd=folder, env=_ENVIRONMENT,
    )  # fmt: skip
    return load(record)


def mean(windows: Sequence[Window]) -> dict[str, float]:
    """Seconds of stalls and the step over whole windows."""
    steps = np.array([window.steps for window in windows])
    names = [name for name, value in windows[0].stalls.items() if value is not None]
    found = {name: float(np.average([w.stalls[name] or 0.0 for w in windows], weights=steps)) for name in names}
    return found | {"step": float(np.average([w.step_seconds for w in windows], weights=steps))}


def expected(faults: Sequence[Fault], before: dict[str, float]) -> dict[str, float]:
    """Stalls while the faults last, of two ranks: what the frontier is by hand, from the run before them."""
    own = {rank: {"input": 0.0, "compute": 0.0} for rank in (0, 1)}
    more = {"exchange": 0.0}
    for fault in faults:
        if fault.what == "exchange":
            more["exchange"] += fault.seconds
        else:
            own[fault.rank]["input" if fault.what == "prep" else "compute"] += fault.seconds
    late = max(own[rank]["input"] + own[rank]["compute"] for rank in own)
    # optimizer, input, forward and backward in the order of a cycle; the optimizer's comes before the input
    optimizer = {r: sum(f.seconds for f in faults if f.rank == r and f.what == "optimizer") for r in own}
    upto_input = {r: optimizer[r] + own[r]["input"] for r in own}
    more["input"] = max(upto_input.values()) - max(optimizer.values())
    more["compute"] = min(own[rank]["compute"] for rank in own)
    more["contention"] = late - more["input"] - more["compute"]
    return {name: before[name] + more.get(name, 0.0) for name in before if name != "step"}


@dataclass(frozen=True)
class Judged:
    """One job against what was built in."""

    faults: tuple[Fault, ...]
    step: float
    errors: dict[str, float]
    """Of a stall, as a fraction of the step."""
    right: bool
    """Every fault of 5 % of the step or more was told, with its rank, and nothing else was."""
    noticed: float | None
    """Seconds from the first slow step to the first alert."""
    ended: bool


def judged(faults: tuple[Fault, ...], record: RunRecord) -> Judged:
    before = mean([w for w in record.windows if w.first_step > 60 and w.last_step < _FIRST])
    during = [w for w in record.windows if w.first_step >= _FIRST and w.last_step < _LAST]
    now, wanted = mean(during), expected(faults, before)
    errors = {name: (now[name] - wanted[name]) / now["step"] for name in wanted if name in now and name != "other"}
    alerts = [alert for alert in record.alerts if alert.what == "slower"]
    large = [fault for fault in faults if added(fault, faults) >= 0.055 * before["step"]]
    raised = {(alert.stall, alert.rank) for alert in alerts}
    truth = {(_STALL[fault.what], None if fault.rank < 0 else fault.rank) for fault in large}
    everything = {(_STALL[fault.what], None if fault.rank < 0 else fault.rank) for fault in faults}
    noticed = min((alert.began or alert.when for alert in alerts), default=None)
    return Judged(
        faults, now["step"], errors, truth <= raised <= everything,
        None if noticed is None else noticed - _moment(record, _FIRST), all(alert.ended for alert in alerts),
    )  # fmt: skip


def added(fault: Fault, faults: Sequence[Fault]) -> float:
    """What a fault adds to the step beside the others: nothing if another rank hides it."""
    without = [each for each in faults if each is not fault]
    zero = {"compute": 0.0, "contention": 0.0, "input": 0.0, "exchange": 0.0}
    return sum(expected(faults, zero).values()) - sum(expected(without, zero).values())


def _moment(record: RunRecord, step: int) -> float:
    """When that step began (Unix time), within its window."""
    window = next(w for w in record.windows if w.first_step <= step <= w.last_step)
    taken = window.last_step - window.first_step + 1
    return window.began + window.seconds * (step - window.first_step) / taken


def truth(most: int) -> str:
    rows, found = [], []
    for faults in list(cases())[:most]:
        with tempfile.TemporaryDirectory() as folder:
            one = judged(faults, watched(faults, Path(folder)))
        found.append(one)
        name = " + ".join(f"{_who(f.rank)} {f.what} +{f.seconds * 1e3:.0f} ms" for f in faults) or "nothing"
        worst = max(one.errors, key=lambda each: abs(one.errors[each]))
        noticed = "-" if one.noticed is None else f"{one.noticed:.1f} s"
        rows.append([
            name, f"{one.step * 1e3:.1f} ms", f"{np.mean(np.abs(list(one.errors.values()))):.1%}",
            f"{one.errors[worst]:+.1%} {worst}", "yes" if one.right else "NO", noticed, "yes" if one.ended else "NO",
        ])  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    every = [abs(error) for one in found for error in one.errors.values()]
    rows.append([
        f"{len(found)} jobs", "", f"{np.mean(every):.1%}", f"{max(every):.1%}",
        f"{sum(one.right for one in found)} of {len(found)}",
        f"{max((one.noticed for one in found if one.noticed is not None), default=float('nan')):.1f} s at most", "",
    ])  # fmt: skip
    return table(["fault", "step", "mean error", "largest", "cause and rank", "noticed after", "ended"], rows)


def _who(rank: int) -> str:
    return "all ranks'" if rank < 0 else f"rank {rank}'s"


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
        outcomes = [_run(run, windows // total, draw) for run in runs]
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


_COST_PAIRS = 5
_COST_STEPS = 4000
_COST_JOB = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
extra = float(sys.argv[2])
loader, began = DataLoader(TensorDataset(torch.randn(4 * {steps}, 8)), batch_size=4), 0.0
for number, (batch,) in enumerate(loader):
    if number == 200:
        began = time.thread_time()
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
    if extra:
        time.sleep(extra)
print((time.thread_time() - began) / ({steps} - 200), file=open(sys.argv[1], "w"))
"""


def cost() -> str:
    """Processor time of the training thread that watching adds to a step, in launches that take turns."""
    rows = []
    for name, extra, steps in (("0.2 ms", 0.0, _COST_STEPS), ("10 ms", 0.01, 1000)):
        with tempfile.TemporaryDirectory() as folder:
            script, out = Path(folder) / "job.py", Path(folder) / "out"
            script.write_text(_COST_JOB.format(steps=steps))
            more, plain = [], []
            for pair in range(_COST_PAIRS):
                spent = {}
                for kind in (("plain", "watched"), ("watched", "plain"))[pair % 2]:
                    words = [str(script), str(out), str(extra)]
                    watch = (
                        ["-m", "stash", "watch", "-o", f"{folder}/{pair}.watch.jsonl"] if kind == "watched" else []
                    )
                    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
                    subprocess.run([sys.executable, *watch, *words], check=True, capture_output=True, env=environment)
                    spent[kind] = float(out.read_text()) * 1e6
                more.append(spent["watched"] - spent["plain"])
                plain.append(spent["plain"])
        rows.append(
            [
                name,
                f"{np.median(plain):.0f} µs",
                f"{np.median(more):.1f} µs",
                f"{min(more):.0f} to {max(more):.0f} µs",
            ]
        )
    return table(["a step of", "untouched, processor time", "added by watching", "range of pairs"], rows)


def watcher_cost() -> str:
    """Of the watcher: its core and memory with 8 ranks at 20 steps a second, and 1,024 ranks' window."""
    from stash.monitor.records import Header, RecordWriter
    from stash.monitor.watcher import POLL_SECONDS, NodeWatcher, WatchOptions

    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        folder, now = Path(place), [time.time()]
        rings = [StepRing(folder / f"ring.{rank}.{os.getpid()}", rank, 8, rank, 0) for rank in range(8)]
        header = Header(id="x", stash_version="x", began=now[0], job="job")
        watcher = NodeWatcher(
            folder, RecordWriter(folder / "r.watch.jsonl", header), header, WatchOptions(), clock=lambda: now[0]
        )
        polls, each = int(60 / POLL_SECONDS), int(20 * POLL_SECONDS)
        spent = 0.0
        for poll in range(polls):
            for step in range(poll * each, (poll + 1) * each):
                for ring in rings:
                    ring.write(_row(step, draw))
            now[0] += POLL_SECONDS
            before = time.process_time()
            watcher.poll()
            spent += time.process_time() - before
        size = (folder / "r.watch.jsonl").stat().st_size * 60
    seconds = draw.uniform(0.005, 0.01, (200, 1024, 8))
    began = time.process_time()
    account(range(1024), seconds, seconds[:, :, 0])
    merged = time.process_time() - began
    rows = [
        ["8 ranks, 20 steps a second: of a core", f"{spent / (polls * POLL_SECONDS):.2%}"],
        [
            "memory of this process with all of that",
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB",
        ],
        ["record, an hour", f"{size / 1e6:.2f} MB"],
        ["one window of 1,024 ranks and 200 steps", f"{merged * 1e3:.0f} ms"],
    ]
    return table(["watcher", ""], rows)


def _row(step: int, draw: np.random.Generator) -> list[float]:
    row = [0.0] * stamped.FIELDS
    row[stamped.NUMBER], row[stamped.BEGAN], row[stamped.ENDED] = step, step * 0.05, step * 0.05 + 0.05
    for stage, part in (
        (StepStage.FORWARD, 0.3),
        (StepStage.BACKWARD, 0.5),
        (StepStage.INPUT, 0.1),
        (StepStage.EXCHANGE, 0.1),
    ):
        row[stage] = 0.05 * part * float(draw.normal(1, 0.02))
    row[stamped.GRADIENTS] = 1.0
    return row


def main() -> None:
    options = arguments(
        __doc__, jobs=(25, "watched jobs of the truth table"), windows=(_WINDOWS, "that are replayed")
    )
    print(machine())
    if options.jobs:
        print("", truth(options.jobs), sep="\n", flush=True)
    if options.windows:
        print("", replayed(options.windows), sep="\n", flush=True)
    print("", cost(), "", watcher_cost(), sep="\n")


if __name__ == "__main__":
    main()

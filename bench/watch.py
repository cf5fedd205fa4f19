"""How right a watched run is: emulated jobs whose faults begin and end at a step, and its cost.

Jobs of two emulated ranks are watched as users do it; one or two ranks' preparation, forward pass, backward pass,
optimizer or all ranks' exchange get slower for some hundred steps. Told are the error of every stall against what was
built in, whether cause and rank are right, and how long it took to notice. Then what stamps cost the job and the
watcher its machine.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from bench.machine import STASH, arguments, run
from bench.table import progress, report, table
from bench.watch_cost import watched_cost, watcher_cost
from stash.monitor.records import RunRecord, Window, load_record

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


@dataclass(frozen=True)
class Fault:
    """What is slower on a rank, or on all (-1), and by how many seconds."""

    rank: int
    what: str
    seconds: float

    @property
    def typed_option(self) -> str:
        return f"{self.rank}:{self.what}:{_FIRST}:{_LAST}:{self.seconds}"


def cases() -> Iterator[tuple[Fault, ...]]:
    """24 single faults and pairs."""
    for number, what in enumerate(("prep", "forward", "backward", "optimizer")):
        for size in _SIZES:
            yield (Fault(number % 2, what, size),)
    for size in _SIZES:
        yield (Fault(-1, "exchange", size),)
    for first, second in (
        ("prep", "backward"),
        ("prep", "forward"),
        ("forward", "backward"),
        ("backward", "optimizer"),
        ("prep", "optimizer"),
        ("forward", "optimizer"),
    ):
        yield (Fault(1, first, 0.02), Fault(0, second, 0.008))
    yield (Fault(1, "prep", 0.02), Fault(-1, "exchange", 0.015))
    yield (Fault(0, "backward", 0.02), Fault(-1, "exchange", 0.015))
    yield ()


def name_faults(faults: Sequence[Fault]) -> str:
    """What is slower in a job, by which it is chosen."""
    return (
        " + ".join(f"{_who(f.rank)} {f.what} +{f.seconds * 1e3:.0f} ms" for f in faults)
        or "nothing"
    )


def watch(faults: Sequence[Fault]) -> RunRecord:
    """The record of one job, watched as users do it."""
    layers = [
        {
            "name": f"layer {number}",
            "bytes": 4096,
            "forward_seconds": _FORWARD / 4,
            "backward_seconds": _BACKWARD / 4,
        }
        for number in range(4)
    ]
    exchange = {"interconnect": 1e12, "latency_seconds": _EXCHANGE}
    model = {
        "layers": layers,
        "optimizer_seconds": _OPTIMIZER,
        "prep_seconds": _PREP,
        "exchange": exchange,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.yaml").write_text(yaml.safe_dump(model))
        job = [
            "-m",
            "stash.lab.testbed.train_emulated",
            "--model",
            "model.yaml",
            "--steps",
            str(_STEPS),
        ]
        job += [f"--fault={fault.typed_option}" for fault in faults]
        words = [*STASH, "watch", "--nproc-per-node", "2", "-o", "run.watch.jsonl", *job]
        run(words, folder, STASH_TESTBED="1")
        return load_record(folder / "run.watch.jsonl")


def mean(windows: Sequence[Window]) -> dict[str, float]:
    """Seconds of stalls and the step over whole windows."""
    steps = np.array([window.steps for window in windows])
    names = [name for name, value in windows[0].stalls.items() if value is not None]
    found = {
        name: float(np.average([w.stalls[name] or 0.0 for w in windows], weights=steps))
        for name in names
    }
    return found | {"step": float(np.average([w.step_seconds for w in windows], weights=steps))}


def expected_stalls(faults: Sequence[Fault], before: dict[str, float]) -> dict[str, float]:
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
    optimizer = {
        r: sum(f.seconds for f in faults if f.rank == r and f.what == "optimizer") for r in own
    }
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


def judge_record(faults: tuple[Fault, ...], record: RunRecord) -> Judged:
    before = mean([w for w in record.windows if w.first_step > 60 and w.last_step < _FIRST])
    during = [w for w in record.windows if w.first_step >= _FIRST and w.last_step < _LAST]
    now, wanted = mean(during), expected_stalls(faults, before)
    errors = {
        name: (now[name] - wanted[name]) / now["step"]
        for name in wanted
        if name in now and name != "other"
    }
    alerts = [alert for alert in record.alerts if alert.what == "slower"]
    large = [fault for fault in faults if added_seconds(fault, faults) >= 0.055 * before["step"]]
    raised = {(alert.stall, alert.rank) for alert in alerts}
    truth = {(_STALL[fault.what], None if fault.rank < 0 else fault.rank) for fault in large}
    everything = {(_STALL[fault.what], None if fault.rank < 0 else fault.rank) for fault in faults}
    if wanted["compute"] > before["compute"]:  # what slows both ranks is no one's contention
        everything.add(("compute", None))
    noticed = min((alert.began or alert.when for alert in alerts), default=None)
    return Judged(
        faults,
        now["step"],
        errors,
        truth <= raised <= everything,
        None if noticed is None else noticed - _moment(record, _FIRST),
        all(alert.ended for alert in alerts),
    )


def added_seconds(fault: Fault, faults: Sequence[Fault]) -> float:
    """What a fault adds to the step beside the others: nothing if another rank hides it."""
    without = [each for each in faults if each is not fault]
    zero = {"compute": 0.0, "contention": 0.0, "input": 0.0, "exchange": 0.0}
    return sum(expected_stalls(faults, zero).values()) - sum(
        expected_stalls(without, zero).values()
    )


def _moment(record: RunRecord, step: int) -> float:
    """When that step began (Unix time), within its window."""
    window = next(w for w in record.windows if w.first_step <= step <= w.last_step)
    taken = window.last_step - window.first_step + 1
    return window.began + window.seconds * (step - window.first_step) / taken


def truth(only: str) -> str:
    """A line a job whose name has one of the parts of ``only``, and one of all."""
    wanted = [part.strip() for part in only.split(",")]
    chosen = [faults for faults in cases() if any(part in name_faults(faults) for part in wanted)]
    if not chosen:
        sys.exit(f"no job's name has {only!r}: {'; '.join(map(name_faults, cases()))}")
    rows, found = [], []
    for faults in chosen:
        one = judge_record(faults, watch(faults))
        found.append(one)
        worst = max(one.errors, key=lambda each: abs(one.errors[each]))
        noticed = "-" if one.noticed is None else f"{one.noticed:.1f} s"
        rows.append(
            [
                name_faults(faults),
                f"{one.step * 1e3:.1f} ms",
                f"{np.mean(np.abs(list(one.errors.values()))):.1%}",
                f"{one.errors[worst]:+.1%} {worst}",
                "yes" if one.right else "NO",
                noticed,
                "yes" if one.ended else "NO",
            ]
        )
        progress(*rows[-1])
    every = [abs(error) for one in found for error in one.errors.values()]
    rows.append(
        [
            f"{len(found)} jobs",
            "",
            f"{np.mean(every):.1%}",
            f"{max(every):.1%}",
            f"{sum(one.right for one in found)} of {len(found)}",
            f"{max((one.noticed for one in found if one.noticed is not None), default=float('nan')):.1f} s at most",
            "",
        ]
    )
    return table(
        ["fault", "step", "mean error", "largest", "cause and rank", "noticed after", "ended"], rows
    )


def _who(rank: int) -> str:
    return "all ranks'" if rank < 0 else f"rank {rank}'s"


def main() -> None:
    tables: dict[str, Callable[[str], str]] = {
        "truth": truth,
        "cost": lambda only: watched_cost(),
        "watcher": lambda only: watcher_cost(),
    }
    options = arguments(
        __doc__,
        tables=(list(tables), f"which: {', '.join(tables)}; else all"),
        only=(
            "",
            "watched jobs of the truth table: parts of what its first column says, with commas between",
        ),
    )
    if unknown := set(options.tables) - set(tables):
        sys.exit(f"there is no table {min(unknown)}; write {', '.join(tables)}")
    report(*(tables[name](options.only) for name in options.tables))


if __name__ == "__main__":
    main()

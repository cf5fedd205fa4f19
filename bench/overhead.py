"""What the agent costs: steps of warm blocks under Stash against the untouched script, launches interleaved.

*Tiny*: a loop of steps far below a millisecond shows what the agent adds to each, in microseconds, whatever the
step's length: by the median, and by the tenth percentile, which leaves out what a shared machine may add to nine of
ten. Which of a pair comes first alternates. The blocks' own start (drained queues) is not part of a block's time,
as it is not part of any breakdown. *Stamps*: processor time that a step's stamps take in one process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bench.machine import arguments
from bench.table import report, table
from bench.workloads import TIMED
from stash.core.artefact import load

PAIRS = 6
_TURNS, _TURN = 60, 300
QUANTILES = {"the tenth percentile": 0.1, "the median": 0.5}


def tiny_under_stash() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "tiny.stash.json"
        options = ["--rungs", "warm", "--budget", "4", "--noise", "0.05", "-o", str(out)]
        subprocess.run(
            [sys.executable, "-m", "stash", "profile", *options, "-m", "tiny"],
            cwd=TIMED.parent,
            check=True,
            capture_output=True,
        )
        return [s for block in load(out).blocks for s in block.step_seconds]


def tiny_untouched() -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "moments.json"
        subprocess.run([sys.executable, str(TIMED), str(out), "tiny"], cwd=TIMED.parent, check=True)
        return list(np.diff(json.loads(out.read_text()))[200:])


def alternating() -> list[tuple[list[float], list[float]]]:
    """``PAIRS`` pairs (with Stash, without) of steps' seconds, in alternating order."""
    pairs = []
    for pair in range(PAIRS):
        launches = (
            (tiny_under_stash, tiny_untouched) if pair % 2 else (tiny_untouched, tiny_under_stash)
        )
        steps = {launch: launch() for launch in launches}
        pairs.append((steps[tiny_under_stash], steps[tiny_untouched]))
        medians = [f"{np.median(each) * 1e3:.3f} ms" for each in pairs[-1]]
        print(f"{medians[0]} with, {medians[1]} without", file=sys.stderr, flush=True)
    return pairs


def measure_tiny() -> str:
    pairs = alternating()
    heads = [
        "of a launch's steps",
        "untouched step",
        "added by the agent (median)",
        "range over pairs",
        "of 100 ms",
    ]
    return table(heads, [overhead_cells(name, share, pairs) for name, share in QUANTILES.items()])


def overhead_cells(
    name: str, share: float, pairs: list[tuple[list[float], list[float]]]
) -> list[str]:
    micro = np.array([[np.quantile(steps, share) * 1e6 for steps in pair] for pair in pairs])
    more = micro[:, 0] - micro[:, 1]
    typical = float(np.median(more))
    row = [
        name,
        f"{np.median(micro[:, 1]):.0f} µs",
        f"{typical:.0f} µs",
        f"{more.min():.0f} to {more.max():.0f} µs",
    ]
    return [*row, f"{typical * 1e-6 / 0.1:.2%}"]


def measure_stamps() -> str:
    """Processor time that a step's stamps add in one process: turns of steps with them and without alternate."""
    from torch.utils.data import DataLoader, TensorDataset

    from stash.measure.agent.runner.stamps import Stamps
    from stash.measure.agent.thread_events import ThreadEvent

    torch.set_num_threads(1)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    model = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batches = iter(DataLoader(TensorDataset(torch.randn(_TURNS * _TURN * 8, 8)), batch_size=4))
    stamps = Stamps(time.perf_counter)
    if device.type == "cuda":
        stamps.follow_device(device)

    def plain() -> None:
        (batch,) = next(batches)
        optimizer.zero_grad()
        model(batch.to(device)).sum().backward()
        optimizer.step()

    def stamped_step() -> None:
        stamps.tell(ThreadEvent.READ_BEGINS, 0)
        (batch,) = next(batches)
        stamps.tell(ThreadEvent.READ_ENDED)
        optimizer.zero_grad()
        loss = model(batch.to(device)).sum()
        stamps.tell(ThreadEvent.BACKWARD_BEGINS)
        loss.backward()
        stamps.tell(ThreadEvent.BACKWARD_ENDED)
        optimizer.step()
        stamps.tell(ThreadEvent.STEP_ENDED)

    spent: dict[Callable[[], None], list[float]] = {plain: [], stamped_step: []}
    for _ in range(_TURNS):
        for step in (plain, stamped_step):
            if step is stamped_step:
                stamps.follow(list(model.parameters())[-1:])
                stamps.tell(ThreadEvent.STEP_BEGINS)
            _settle(device)
            before = time.thread_time()
            for _ in range(_TURN):
                step()
            spent[step].append((time.thread_time() - before) / _TURN * 1e6)
            stamps.let_go()
    more = np.subtract(spent[stamped_step], spent[plain])
    low, middle, high = np.quantile(more, [0.1, 0.5, 0.9])
    heads = [
        f"of a step, one process, {device.type}",
        "untouched",
        "added by stamps (median of turns)",
        "80 % of turns",
    ]
    row = [
        "processor time",
        f"{np.median(spent[plain]):.0f} µs",
        f"{middle:.1f} µs",
        f"{low:.0f} to {high:.0f} µs",
    ]
    return table(heads, [row])


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    arguments(__doc__)
    report(measure_tiny(), measure_stamps())


if __name__ == "__main__":
    main()

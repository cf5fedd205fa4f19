"""How right the account of a whole watched run is: a job that times itself, started twice with one record.

Told are each row by the job's own stopwatch and by the ledger of ``stash watch``, and the wall by a clock outside.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.machine import STASH, arguments, machine, run
from bench.table import table
from stash.monitor.records import load_record
from stash.monitor.wall_ledger import DOWN, END, UNREAD, wall_ledger

SCRIPT = """
import atexit, collections, json, os, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

seconds, since = collections.Counter(), time.time() - float(open("/proc/uptime").read().split()[0])
since += int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")

def lap(row):
    global since
    now = time.time()
    seconds[row] += now - since
    since = now

class Slow:
    def __init__(self, seconds): self.seconds = seconds
    def __iter__(self): time.sleep(self.seconds); return iter(range(320))
    def __len__(self): return 320
    def __getstate__(self): time.sleep(self.seconds); return {}

def leave():
    lap("end")
    json.dump(seconds, open(sys.argv[1], "w"))

atexit.register(leave)
data = TensorDataset(torch.randn(320, 64), torch.randint(0, 10, (320,)))
training, validation = DataLoader(data, 16, sampler=Slow(0.6)), DataLoader(data, 16)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
steps = 0
for epoch in range(6):
    batches = iter(training)
    batch = next(batches)
    if steps: lap("epoch start")
    while batch is not None:
        x, y = batch
        for _ in range(40): loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        steps += 1
        lap("steps" if steps > 1 else "start-up")
        time.sleep(0.02)
        lap("steps")
        batch = next(batches, None)
    with torch.no_grad():
        for x, y in validation: model(x); time.sleep(0.03)
    lap("evaluation" if epoch < 5 else "end")
    torch.save({"model": model.state_dict(), "slow": Slow(0.5)}, "model.pt")
    lap("checkpoint" if epoch < 5 else "end")
"""
_COMPARED = ("start-up", "epoch start", "evaluation", "checkpoint", "steps")
_APART = (*_COMPARED[:-1], END, DOWN, UNREAD)
"""Rows of the ledger that are no part of steps."""


def main() -> None:
    arguments(__doc__)
    own: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        record, began = folder / "train.watch.jsonl", time.time()
        for start in ("first.json", "second.json"):
            run((*STASH, "watch", "--quiet", "-o", str(record), "train.py", start), folder)
            own.update(json.loads((folder / start).read_text()))
        outside = time.time() - began
        wall = wall_ledger(load_record(record))
    found = {row.name: row.seconds for row in wall.rows}
    found["steps"] = sum(seconds for name, seconds in found.items() if name not in _APART)
    rows = [
        (
            name,
            f"{own[name]:.2f}",
            f"{found[name]:.2f}",
            f"{100 * (found[name] - own[name]) / wall.seconds:+.1f}",
        )
        for name in _COMPARED
    ]
    rest = ", ".join(f"{name} {found.get(name, 0.0):.2f} s" for name in (END, DOWN, UNREAD))
    print(machine(), end="\n\n")
    print(table(("row", "by its stopwatch, s", "ledger, s", "points of the wall"), rows))
    print(f"\n{rest}; wall {wall.seconds:.2f} s, by a clock around both commands {outside:.2f} s.")


if __name__ == "__main__":
    main()

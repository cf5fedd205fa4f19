"""Says how it was started and what CPU time its first steps take: ``reports.py FOLDER``; then trains on, unless it is
to be short (a file ``short`` in that folder). It speaks of ranks and forms a group only where it is asked to.
"""

import functools
import itertools
import json
import os
import sys
import time
from pathlib import Path

os.environ["OMP_WAIT_POLICY"] = (
    "passive"  # threads that wait for one without a core would count as what a step takes
)
import torch
from torch.multiprocessing import spawn

STEPS, SKIPPED = 16, 2


def train(rank, folder, note=""):
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ends, short = [time.process_time()], Path(folder, "short").exists()
    while not short or len(ends) <= STEPS:
        optimizer.zero_grad()
        model(torch.ones(64, 512)).square().mean().backward()
        optimizer.step()
        ends.append(time.process_time())
        if len(ends) == STEPS + 1:
            steps = [after - before for before, after in itertools.pairwise(ends)][SKIPPED:]
            variables = {
                "environment": dict(os.environ),
                "threads": torch.get_num_threads(),
                "words": sys.argv[1:],
                "input": note,
                "step": min(steps),
            }
            Path(folder, f"{os.getpid()}.json").write_text(json.dumps(variables))


if __name__ == "__main__":
    if "--spawn" in sys.argv:
        spawn(functools.partial(train, folder=sys.argv[1]), nprocs=1)
    else:
        if "--form-group" in sys.argv and "RANK" in os.environ:
            torch.distributed.init_process_group("gloo")
        train(0, sys.argv[1], sys.stdin.read())

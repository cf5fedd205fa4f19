"""Fails as it is told: how, when (``later``: once there is a file ``now``), on which rank or in a worker."""

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--how", required=True)
parser.add_argument("--when", choices=["import", "setup", "step", "later", "worker"], required=True)
parser.add_argument("--rank", type=int, default=0)
parser.add_argument(
    "--chatter", choices=["", "hint", "bar"], default="", help="what is printed first"
)
args = parser.parse_args()
RANK = int(os.environ.get("RANK", "0"))


def forever(depth=0):
    return forever(depth + 1)


def exhaust():
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)) * 16)


def deadlock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def in_a_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()


def allocate():
    import torch

    torch.empty(1 << 50)


def fail():
    if args.chatter == "hint":
        print("hint: out of memory? use a smaller batch; port 29500 already in use? choose another")
    if args.chatter == "bar":
        print(
            "\r".join(f"epoch {n} port 1 timed out 3 loss 0.1" for n in range(100_000)), flush=True
        )
    if args.how == "raise":
        raise RuntimeError("the data ended at sample 7")
    if args.how in ("exit", "fatal"):
        sys.exit(3 if args.how == "exit" else "fatal: no licence")
    hows = {
        "_exit": lambda: os._exit(5),
        "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "recursion": forever,
        "exhaust": exhaust,
        "deadlock": deadlock,
        "thread": in_a_thread,
        "memory": allocate,
    }
    hows[args.how]()


if args.when == "import":
    fail()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, Dataset, get_worker_info  # noqa: E402


class Samples(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        if args.when == "worker" and get_worker_info() is not None and index > 100:
            fail()
        return torch.full((64,), float(index))


if "WORLD_SIZE" in os.environ:
    dist.init_process_group("gloo")
model = torch.nn.Linear(64, 1)
if dist.is_initialized():
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader = DataLoader(Samples(), batch_size=16, num_workers=1 if args.when == "worker" else 0)
if args.when == "setup":
    fail()
taken, failed = 0, False
while True:
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        time.sleep(0.01)
        taken += 1
        due = (args.when == "step" and taken == 5) or (
            args.when == "later" and Path("now").exists()
        )
        if due and args.rank == RANK and not failed:
            failed = True
            fail()

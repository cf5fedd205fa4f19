"""Is each sample trained on exactly once, whatever happens? ``python -m tests.faults.exactly_once``, ten minutes.

48 faults, each in a training of its own. The model counts: sample i adds 1 to the i-th number of each server's
tensor, so that the saved model itself says which samples are in it, and the ledger says which should be. Most faults
happen to forked processes (``forked_fleet``), at a named point of a worker's, a server's or the head's code; the last
ones to ``stash spot run --on local`` with Ray. Ends with status 1 if a sample is lost or doubled, unless the run's
own exit status says so. A full disk needs root.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench.machine import arguments, run
from bench.table import show
from stash.core.errors import StashError
from stash.measure.linux.processes import find_by_variable
from stash.spot.emulate.run_rehearsal import Rehearsal
from stash.spot.run_records import LeaseBooks
from stash.spot.train.run_orders import TrainingOrders, WorkerPlace
from stash.spot.train.samples import SampleOrder
from tests.faults.forked_fleet import ForkedMachines, Moment

SAMPLES, BATCH, SECONDS = 4096, 16, 1.5
_SLOW = 0.02
"""Seconds of an iteration, without its exchange."""
JOB = f"""
import time, torch, stash.spot
class Numbers(torch.utils.data.Dataset):
    def __len__(self): return {SAMPLES}
    def __getitem__(self, number): return number
class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.zeros({SAMPLES})) for _ in range(2))
def loss(model, batch):
    time.sleep({_SLOW})
    return -(model.first[batch] + model.second[batch]).sum()
job = stash.spot.Job(Counts, loss, lambda parameters: torch.optim.SGD(parameters, 1.0), Numbers, batch={BATCH})
"""
_NOTICES = ("lost", "server lost", "hangs", "failed")
STOPPED = "SIGSTOP"


@dataclass(frozen=True)
class Fault:
    """Something that happens to one training, and whether it has to be started again for its end."""

    name: str
    moments: tuple[Moment, ...] = ()
    links: Callable[[str, Any], Any] = lambda worker, address: address
    before: Callable[[Path], None] | None = None
    """Done to the folder of checkpoints between a first run and a second."""
    resumes: bool = False
    disk_bytes: int = 0
    """Of the checkpoints' own disk; 0: this machine's."""


@dataclass(frozen=True)
class Outcome:
    """What came of a fault."""

    name: str
    noticed_seconds: float | None
    lost: float | None
    """Samples that were given out and are not in the model; ``None`` without a model."""
    doubled: float | None
    exits: tuple[int, ...]
    """Of the run, and of the one that went on."""
    reason: str
    """Why it ended, where that was not its time."""

    @property
    def is_right(self):
        """All is in the model once, or the exit status admits that it is not."""
        return self.lost == self.doubled == 0 or self.exits[-1] == 1


# Faults of forked processes


def list_faults():
    """Every fault that forked processes suffer."""
    yield Fault("none")
    worker = (
        "has a lease",
        "has its gradient",
        "has sent half its gradient",
        "was applied, and did not report it",
    )
    server = ("has a gradient", "has applied it", "has sent half its parameters")
    saving = ("begins a checkpoint", "has written half a checkpoint", "has written a checkpoint")
    for point in (*worker, "has the parameters"):
        yield Fault(f"kill -9 of a worker that {point}", (Moment("worker1", point),))
    for point in worker:
        yield Fault(
            f"a worker that {point} stops for 2 s", (Moment("worker1", point, stop_seconds=2),)
        )
        cut_off = Moment("worker1", point, stop_seconds=1, counts_as_gone=True)
        yield Fault(f"a worker that {point} is taken for gone, and goes on", (cut_off,))
    for point in (*server, *saving):
        yield Fault(
            f"kill -9 of a server that {point}",
            (Moment("server1", point, 2 if point in saving else 20),),
        )
    for point in (*server[1:], saving[1]):
        stops = Moment("server2", point, 2 if point in saving else 20, stop_seconds=2)
        yield Fault(f"a server that {point} stops for 2 s", (stops,))
    both = tuple(Moment(f"server{number}", "has applied it", 20 + number) for number in (1, 2))
    yield Fault("kill -9 of both servers", both)
    yield Fault(
        "kill -9 of all workers",
        tuple(Moment(f"worker{number}", "has a lease", 9) for number in (1, 2, 3)),
    )
    yield Fault(
        "kill -9 of a worker and a server", (both[0], Moment("worker1", "has its gradient", 10))
    )
    for point in ("follows updates", "begins to save", "finishes"):
        moment = Moment("head", point, 12 if point == "follows updates" else 1)
        yield Fault(f"kill -9 of the head that {point}", (moment,), resumes=True)
    yield Fault("the head stops for 2 s", (Moment("head", "follows updates", 12, stop_seconds=2),))
    yield Fault("a checkpoint is cut in half", before=lambda folder: _tear(folder, 1), resumes=True)
    yield Fault(
        "a checkpoint of each server is cut in half",
        before=lambda folder: _tear(folder, 2),
        resumes=True,
    )
    yield Fault("one bit of a checkpoint changes", before=_flip, resumes=True)
    yield Fault(
        "a checkpoint is empty",
        before=lambda folder: _newest(folder, 0).write_bytes(b""),
        resumes=True,
    )
    yield Fault("a server's checkpoints are all gone", before=_remove, resumes=True)
    yield Fault(
        "a server is set back to the checkpoint before",
        before=lambda f: _newest(f, 1).unlink(),
        resumes=True,
    )
    yield Fault("connections are cut at every 100 kB", links=through(cut_bytes=100_000))
    yield Fault(
        "connections are cut once, within a gradient", links=through(cut_bytes=24_000, cuts=1)
    )
    yield Fault("a link carries 100 kB/s", links=through(rate=100_000))
    yield Fault(
        "a link is silent for 5 s", links=through(cut_bytes=50_000, cuts=1, silent_seconds=5)
    )
    if os.geteuid() == 0:
        yield Fault("the checkpoints' disk is full", resumes=True, disk_bytes=65536)


def _newest(folder, shard):
    return max(folder.glob(f"shard{shard}-*.ckpt"))


def _tear(folder, shards):
    for shard in range(shards):
        path = _newest(folder, shard)
        os.truncate(path, path.stat().st_size // 2)


def _flip(folder):
    path = _newest(folder, 0)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def _remove(folder):
    for path in folder.glob("shard0-*.ckpt"):
        path.unlink()


def through(rate=0.0, cut_bytes=0, cuts=10**6, silent_seconds=0.0):
    """Have the first worker reach servers through a link that is slow, or is cut or silent after so many bytes."""
    left = [cuts]

    def address_of(worker, address):
        if worker != "worker1":
            return address
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=relay, args=(listener, address), daemon=True).start()
        return listener.getsockname()[:2]

    def relay(listener, address):
        near, _ = listener.accept()
        with suppress(OSError):
            far = socket.create_connection(address)
            for ends in ((near, far), (far, near)):
                threading.Thread(target=carry, args=ends, daemon=True).start()

    def carry(source, target):
        moved = 0
        with suppress(OSError):
            while content := source.recv(4096):
                moved += len(content)
                if rate:
                    time.sleep(len(content) / rate)
                if cut_bytes and moved > cut_bytes and left[0] > 0:
                    left[0] -= 1
                    time.sleep(silent_seconds)
                    if not silent_seconds:
                        break
                target.sendall(content)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    return address_of


def suffer(fault, folder):
    """Train while it happens, and once more if that is what it takes."""
    (folder / "job.py").write_text(JOB)
    kept = folder / "kept"
    kept.mkdir()
    if fault.disk_bytes:
        _mount(kept, fault.disk_bytes)
    try:
        first = _train(fault, folder, kept, "first")
        if not fault.resumes:
            return first
        if fault.before is not None:
            fault.before(kept)
        if fault.disk_bytes:
            subprocess.run(("mount", "-o", "remount,size=64m", kept), check=True)
        second = _train(Fault(fault.name), folder, kept, "second")
        reason = "; ".join(filter(None, (first.reason, second.reason)))
        return replace(
            second,
            noticed_seconds=first.noticed_seconds,
            exits=first.exits + second.exits,
            reason=reason,
        )
    finally:
        if fault.disk_bytes:
            subprocess.run(("umount", "-l", kept), check=True)


def _mount(folder, size):
    subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder), check=True)


def _train(fault, folder, kept, name):
    place = folder / name
    place.mkdir()
    workers = tuple(WorkerPlace(f"worker{number}", "any", BATCH) for number in (1, 2, 3))
    orders = TrainingOrders(
        job=f"{folder / 'job.py'}:job",
        checkpoints=str(kept),
        servers=("server1", "server2"),
        workers=workers,
        seconds=SECONDS,
        checkpoint_seconds=0.4,
        model=str(place / "model.pt"),
    )
    machines = ForkedMachines(orders, place, fault.moments, fault.links)
    noticed = []
    rehearsal = Rehearsal(
        orders,
        machines,
        place,
        (),
        lambda event: noticed.append(time.monotonic()) if event.what in _NOTICES else None,
    )
    code, reason = 0, ""
    try:
        account = rehearsal.run()
        error = account.error
        code, reason = (1, account.reason) if account.died else (0, "")
        if error is not None and not account.died:
            code, reason = error.exit_code, str(error)
    except StashError as error:
        code, reason = error.exit_code, str(error)
    after = [at for at in noticed if machines.acted and at >= machines.acted[0]]
    seconds = after[0] - machines.acted[0] if after else None
    return Outcome(
        fault.name, seconds, *compare(place / "model.pt", rehearsal.account.books), (code,), reason
    )


def compare(model, books):
    """(lost, doubled): what the model counted against the samples that were given out."""
    if books is None or not model.exists():
        return None, None
    order = SampleOrder(SAMPLES, 0)
    places = torch.tensor([order[number] for number in range(books.issued)], dtype=torch.int64)
    wanted = torch.bincount(places, minlength=SAMPLES).float()
    more = [count - wanted for count in torch.load(model, weights_only=True).values()]
    return max(float(abs(each.clamp(max=0).sum())) for each in more), max(
        float(each.clamp(min=0).sum()) for each in more
    )


# Faults of Ray's actors

POOL = """
as_of: 2026-11-29
source: a bench
exchange_bytes: 1MB
worker_bytes_per_second: 25MB/s
pcie_bytes_per_second: 10GB/s
server: {count: 2, bytes_per_second: 25MB/s, dollars_per_hour: 0.1}
loss: {gamma1: 1, gamma2: 0, gamma3: 1, gamma5: 0}
types: [{name: a, gpus: 1, batch: 16, samples_per_second: 64, quota: 2, dollars_per_hour: 1}]
"""
_SPOT = (sys.executable, "-m", "stash", "spot")
ON_RAY = (
    ("kill -9 of a worker (Ray)", "ray::WorkerActor", signal.SIGKILL, ""),
    ("kill -9 of a server (Ray)", "ray::ServerActor", signal.SIGKILL, ""),
    ("kill -9 of the coordinator (Ray)", "ray::Coordinator", signal.SIGKILL, "again"),
    ("kill -9 of the head (Ray)", "stash.spot.train.head", signal.SIGKILL, "again"),
    ("a worker stops for ever (Ray)", "ray::WorkerActor", signal.SIGSTOP, ""),
    ("a server stops for ever (Ray)", "ray::ServerActor", signal.SIGSTOP, ""),
    ("two heads save in one folder (Ray)", "", 0, "both"),
)
"""Name, process, signal, and whether another run follows, or is there at the same time."""


def suffer_on_ray(name, process, number, more, folder):
    """The same of a real run of the command."""
    (folder / "job.py").write_text(JOB)
    (folder / "pool.yaml").write_text(POOL)
    run(
        (
            *_SPOT,
            "plan",
            "--pool",
            "pool.yaml",
            "--deadline",
            "22s",
            "--loss",
            "0.01",
            "-o",
            "job.plan.json",
        ),
        folder,
    )
    seconds = 600 if more == "both" else 40 if number == signal.SIGSTOP else 15
    first = _start(folder, seconds, "first")
    _wait(lambda: first.poll() is not None or list((folder / "kept").glob("shard0-*1.ckpt")))
    if first.poll() is not None:
        raise RuntimeError(
            f"{name}: it ended before its second checkpoint: {first.communicate()[1]}"
        )
    if process:
        os.kill(_find(process, folder), number)
    exits = ()
    last, words = "first", ""
    if more == "both":
        other = _start(folder, seconds, "other")
        words, exits = other.communicate()[1], (other.returncode,)
        first.send_signal(signal.SIGINT)  # it ends in order
    words += first.communicate()[1]
    exits += (first.returncode,)
    noticed = _noticed(folder / "first.spotlog.json")
    if more == "again":
        last, second = "second", _start(folder, seconds, "second")
        words += second.communicate()[1]
        exits += (second.returncode,)
    books = json.loads((folder / f"{last}.spotlog.json").read_text())["books"]
    ledger = None if books is None else LeaseBooks.model_validate(books)
    errors = [line for line in words.splitlines() if line.startswith("error: ")]
    return Outcome(
        name, noticed, *compare(folder / "kept" / "model.pt", ledger), exits, "; ".join(errors)
    )


def _find(process, folder):
    """The first of the run's processes of that name; Ray adds to an actor's what it is doing."""
    found = []

    def look():
        for number in find_by_variable("STASH_BENCHED", str(folder)):
            with suppress(OSError):
                if process.encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                    found.append(number)
        return found

    _wait(look)
    return min(found)


def _start(folder, seconds, name):
    where = (
        "--on",
        "local",
        "--seconds",
        f"{seconds}s",
        "--checkpoint-dir",
        "kept",
        "--checkpoint-every",
        "1s",
    )
    command = (*_SPOT, "run", "job.plan.json", "job.py:job", *where, "-o", f"{name}.spotlog.json")
    marked = {**os.environ, "STASH_BENCHED": str(folder)}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=marked,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait(condition, seconds=400.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.1)


def _noticed(log):
    """Seconds from the last update of who was missed until that."""
    content = json.loads(log.read_text())
    known = [
        event
        for event in content["events"]
        if event["what"] in _NOTICES and event["at"] is not None
    ]
    if not known:
        return None
    updates = content["updates"]
    own = [
        at
        for at, who in zip(updates["seconds"], updates["worker"], strict=True)
        if at < known[0]["at"]
        and who in (known[0]["who"], who if "server" in known[0]["who"] else "")
    ]
    return known[0]["at"] - max(own, default=known[0]["at"])


def main():
    options = arguments(
        __doc__,
        only=("", "play the faults with this in their name"),
        no_ray=(False, "leave Ray out"),
    )
    torch.set_num_threads(1)
    began, outcomes = time.monotonic(), []
    plays = [
        (fault.name, lambda folder, fault=fault: suffer(fault, folder)) for fault in list_faults()
    ]
    if not options.no_ray:
        plays += [
            (case[0], lambda folder, case=case: suffer_on_ray(*case, folder)) for case in ON_RAY
        ]
    for name, play in plays:
        if options.only in name:
            with tempfile.TemporaryDirectory(prefix="exactly-once-") as folder:
                outcomes.append(play(Path(folder)))
            print(outcomes[-1], file=sys.stderr, flush=True)
    show(
        ("fault", "noticed after", "samples lost", "doubled", "exit", "reason"), map(_row, outcomes)
    )
    wrong = [each.name for each in outcomes if not each.is_right]
    print(
        f"{len(outcomes) - len(wrong)} of {len(outcomes)} faults are right, in {time.monotonic() - began:.0f} s."
    )
    return bool(wrong)


def _row(found):
    noticed = None if found.noticed_seconds is None else f"{found.noticed_seconds:.1f} s"
    counts = ("no model" if each is None else f"{each:g}" for each in (found.lost, found.doubled))
    return found.name, noticed, *counts, ", then ".join(map(str, found.exits)), found.reason[:90]


if __name__ == "__main__":
    sys.exit(main())

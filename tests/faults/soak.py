"""Many profiles, one after the other and at once; what the machine holds is counted before and after: no growth.

``python -m tests.faults.soak --profiles 50 --at-once 8`` prints a table and exits 1 if anything grew: processes, open
files and memory of the process that starts them, sockets, shared memory, network namespaces, temporary files. The
profiles in a row are started from Python (``stash.profile`` of a function), in one process, which is then looked at.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path

from stash.core.ladder import NAMES
from stash.lab.testbed.topology import is_abandoned
from stash.measure.launcher import job, session
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.linux.processes import find_by_variable

MARK = "STASH_SOAK"
TRAIN = Path(__file__).with_name("scripts") / "train.py"
_PARTING = 10.0
"""Seconds for what ends to be gone."""
_CACHES_BYTES = 16e6
"""Growth of memory that is no leak: caches and pools of an interpreter that is still young."""


@dataclass(frozen=True)
class Count:
    """What is held by the soak itself, as far as that can be told: on a machine others come and go."""

    processes: int
    """Started by the soak and still there."""
    open_files: int
    threads: int
    memory_bytes: int
    sockets: int
    """Unix sockets under the soak's temporary folder, and signs of Stash's runs from this process."""
    shared_memory: int
    """Files of PyTorch's in /dev/shm whose process is gone."""
    namespaces: int
    """Of testbeds whose process is gone."""
    temporary_files: int


def count(temporary):
    """Now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    unix = Path("/proc/net/unix").read_text(errors="replace")
    shared = Path("/dev/shm")
    return Count(
        processes=len(set(find_by_variable(MARK, os.environ[MARK])) - {os.getpid()}),
        open_files=len(os.listdir("/proc/self/fd")),
        threads=int(status["Threads"]),
        memory_bytes=1024 * int(status["VmRSS"].split()[0]),
        sockets=unix.count(f"{temporary}/") + unix.count(f".{os.getpid()}\n"),
        shared_memory=sum(
            not Path("/proc", path.name.split("_")[1]).exists() for path in shared.glob("torch_*_*")
        ),
        namespaces=sum(is_abandoned(path.name) for path in Path("/run/netns").glob("stash-tb-*")),
        temporary_files=sum(
            1 for path in temporary.rglob("*") if not path.name.startswith("torchinductor_")
        ),
    )


def settled(temporary, before):
    """Once what ends is gone, or has had the time to go."""
    deadline = time.monotonic() + _PARTING
    while (now := count(temporary)).processes > before.processes and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def in_a_row(profiles):
    """In this process."""
    for _ in range(profiles):
        session.profile_job(
            job.make_script_job(str(TRAIN), ()),
            Cluster(engine="local"),
            ProfileOptions(noise=50.0, budget=1.0, rungs=NAMES),
        )


def at_once(profiles, folder):
    """In processes of their own; raises CalledProcessError if one fails."""
    words = [
        sys.executable,
        "-m",
        "stash",
        "profile",
        "--budget",
        "1",
        "--noise",
        "50",
        "--nproc-per-node",
        "1",
    ]
    runs = [
        subprocess.Popen(
            [*words, "-o", str(folder / f"{each}.stash.json"), str(TRAIN)],
            stdout=subprocess.DEVNULL,
        )
        for each in range(profiles)
    ]
    failed = [run.args for run in runs if run.wait() != 0]
    if failed:
        raise subprocess.CalledProcessError(1, failed[0])


def grown(before, after):
    """What there is more of."""
    allowed = {"memory_bytes": _CACHES_BYTES}
    return [
        field.name
        for field in fields(Count)
        if getattr(after, field.name) - getattr(before, field.name) > allowed.get(field.name, 0)
    ]


def table(counts):
    """In Markdown: a row a moment."""
    names = [field.name for field in fields(Count)]
    rows = [
        "| | " + " | ".join(name.replace("_", " ") for name in names) + " |",
        "| --- " * (len(names) + 1) + "|",
    ]
    rows += [
        f"| {when} | " + " | ".join(f"{getattr(each, name):,}" for name in names) + " |"
        for when, each in counts
    ]
    return "\n".join(rows)


def soak(profiles, together):
    """What grew; the table is printed."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        temporary, results = Path(name) / "tmp", Path(name) / "results"
        temporary.mkdir()
        results.mkdir()
        os.environ |= {"TMPDIR": str(temporary), MARK: name}
        tempfile.tempdir = str(temporary)
        in_a_row(1)  # what Python, numpy and the catalog keep from now on
        before = settled(temporary, Count(*[0] * len(fields(Count))))
        in_a_row(profiles)
        between = settled(temporary, before)
        at_once(together, results)
        after = settled(temporary, between)
        tempfile.tempdir = None
    moments = [
        ("before", before),
        (f"{profiles} in a row", between),
        (f"{together} at once", after),
    ]
    print(table(moments))
    return sorted({*grown(before, between), *grown(between, after)})


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--profiles", type=int, default=50, help="one after the other")
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    more = soak(options.profiles, options.at_once)
    print(f"\nThere is more of {', '.join(more)}." if more else "\nNothing grew.")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())

"""How long cores were busy in a third of a second: by the kernel's ticks, by its idle time, and by what really ran.

    python -m bench.noise.busy        a quiet machine; 1 minute

A process on each core runs for a share of every four milliseconds; the scheduler counts to the nanosecond for how
long. All else on the machine is an error of both counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import mean, stdev

from bench.table import report, show
from stash.measure.linux import counters
from stash.measure.linux.run_queue import of_processes

SHARES = (0.05, 0.3, 0.7, 1.0)
SECONDS, TIMES = 0.3, 50
TICKS = os.sysconf("SC_CLK_TCK")
PROGRAM = """
import sys, time
busy, number = float(sys.argv[1]) * 4e-3, 0
while True:
    began = time.perf_counter()
    while time.perf_counter() - began < busy:
        number += 1
    time.sleep(max(0.0, 4e-3 - busy))
"""


@contextmanager
def busy_cores(share: float) -> Iterator[list[int]]:
    """A process on each core that is busy for ``share`` of its time; their numbers."""
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(share)]) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(0.5)
        yield [each.pid for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()


def by_ticks() -> float:
    """Seconds since boot of who ran when a tick came, all cores together."""
    with open("/proc/stat") as file:
        ticks = [int(each) for each in file.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4] - ticks[7]) / TICKS


def errors(share: float) -> tuple[list[float], list[float]]:
    """Milliseconds by which ticks, and idle time, were off in each third of a second."""
    found = []
    with busy_cores(share) as numbers:
        for _ in range(TIMES):
            ran, ticks, totals = of_processes(numbers).ran, by_ticks(), counters.totals()
            time.sleep(SECONDS)
            idle, ticks = counters.since(totals).cpu_seconds or 0.0, by_ticks() - ticks
            ran = of_processes(numbers).ran - ran
            found.append((1e3 * (ticks - ran), 1e3 * (idle - ran)))
    of_ticks, of_idle = zip(*found, strict=True)
    return list(of_ticks), list(of_idle)


def rows() -> Iterator[list[str]]:
    for share in SHARES:
        yield [f"{share:.0%}", *(f"{mean(each):+.1f} ± {stdev(each):.1f}" for each in errors(share))]


if __name__ == "__main__":
    report()
    show(("busy", "by ticks: ms too many in 0.3 s of all cores", "by idle time"), rows())

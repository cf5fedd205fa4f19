"""Reads a file of its own from disk, past the page cache, and times it; a program of its own.

Run inside a host's control groups as ``python read_rate.py FOLDER RATE SECONDS``; prints the bytes per second that
arrived. Its file has no name, so nothing is left however it ends. Knows RATE only to choose sizes, not to judge.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
import tempfile
import threading
import time

READERS = 4
"""Requests under way at once, as a loader's workers would have them: one alone does not fill a fast disk."""
LEAD = 0.25
"""Part of the time that is left out at first: a throttle that was idle lets more pass."""
_PAGE = 4096
_MIN_FILE, _MAX_FILE, _MAX_CHUNK = 16 * 2**20, 256 * 2**20, 2**20


def chunk_bytes(rate: float) -> int:
    """A request's size: fifty a second and reader, whole pages, at most 1 MiB."""
    return max(_PAGE, min(_MAX_CHUNK, int(rate / 50 / READERS) // _PAGE * _PAGE))


def file_bytes(rate: float, seconds: float, chunk: int) -> int:
    """A file long enough for the whole time if that is not too much; else it is read again from its start."""
    wanted = min(_MAX_FILE, max(_MIN_FILE, int(rate * seconds * (1 + 2 * LEAD))))
    return wanted // chunk * chunk


def measure_read_rate(folder: str, rate: float, seconds: float) -> float:
    """Bytes per second over ``seconds``, by direct I/O; raises OSError."""
    chunk = chunk_bytes(rate)
    size = file_bytes(rate, seconds, chunk)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        block = os.urandom(2**20)
        for _ in range(0, size, len(block)):
            file.write(block)
        os.fsync(file.fileno())
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_DIRECT)
        try:
            return _read(descriptor, size, chunk, seconds)
        finally:
            os.close(descriptor)


def _read(descriptor: int, size: int, chunk: int, seconds: float) -> float:
    """The rate at which chunks arrived, the first ``LEAD`` of the time left out."""
    done: list[tuple[float, int]] = []
    began = time.perf_counter()
    until = began + seconds * (1 + LEAD)
    offsets = itertools.cycle(range(0, size, chunk))
    lock = threading.Lock()

    def work() -> None:
        buffer = mmap.mmap(-1, chunk)  # aligned, as direct I/O needs it
        while time.perf_counter() < until:
            with lock:
                at = next(offsets)
            got = os.preadv(descriptor, [buffer], at)
            done.append((time.perf_counter(), got))

    readers = [threading.Thread(target=work) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    (first, _), *counted = [row for row in sorted(done) if row[0] >= began + seconds * LEAD]
    return sum(got for _, got in counted) / (counted[-1][0] - first) if counted else 0.0


if __name__ == "__main__":
    print(measure_read_rate(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))

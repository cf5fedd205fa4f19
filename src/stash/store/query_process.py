"""One query in a process of its own, with limits that hold whatever it computes: a function of DuckDB that runs for
hours cannot be interrupted, and its texts are beyond its own limit of memory.

Started as a file, it takes its job as JSON on standard input and answers in frames on standard output. It knows
nothing of stores; ``queries`` starts it, reads it, and ends it.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import signal
import struct
import sys
from importlib import import_module
from typing import Any

LENGTH = struct.Struct("<Q")
"""Before each frame: its bytes."""
_BATCH_SIZE = 2_000


def main() -> None:
    """Answer: ``columns``, ``rows`` … ``end``; or ``error`` with DuckDB's words, or ``memory``."""
    job = json.load(sys.stdin)
    sys.path[:] = job["path"]
    signal.alarm(job["seconds"])  # should whoever asked be killed; it also ends what cannot be interrupted
    # What the package is around takes a third of the time to import, and does all but the saving.
    duckdb: Any = import_module("duckdb" if job["parquet"] else "_duckdb")
    _limit(job["memory_bytes"], job["file_bytes"])
    try:
        connection = duckdb.connect(":memory:", config=job["config"])
        for statement in job["before"]:
            connection.execute(statement)
        if job["parquet"]:
            connection.sql(job["sql"]).to_parquet(job["parquet"])
        else:
            running = connection.execute(job["sql"])
            _send("columns", [str(column[0]) for column in running.description or ()])
            while found := running.fetchmany(_BATCH_SIZE):
                _send("rows", _plain(found))
        _send("end", None)
    except (MemoryError, duckdb.OutOfMemoryException):
        _send("memory", None)
    except (duckdb.Error, UnicodeError) as error:
        _send("memory" if "bad_alloc" in str(error) else "error", str(error))


def _limit(memory: int, file: int) -> None:
    """Of this process, from here on: memory beyond what it has now, and the size of a file."""
    import resource

    with contextlib.suppress(OSError, ValueError):  # a system that has no such limits
        with open("/proc/self/statm") as found:
            now = int(found.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _send(what: str, content: Any) -> None:
    frame = marshal.dumps((what, content))
    sys.stdout.buffer.write(LENGTH.pack(len(frame)) + frame)
    sys.stdout.buffer.flush()


def _plain(value: Any) -> Any:
    """As far as a frame can hold it; dates and decimals as their text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value)) if isinstance(value, tuple) else list(map(_plain, value))
    if isinstance(value, dict):
        return {_plain(name): _plain(each) for name, each in value.items()}
    return str(value)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()

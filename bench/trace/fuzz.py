"""Damaged traces, reports, dumps: each ends in an answer or in one sentence. ``python -m bench.trace.fuzz 10000``."""

from __future__ import annotations

import gzip
import json
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from stash.core.errors import UserError
from stash.trace.command import read_job
from stash.trace.flight import account_dumps, read_dump

_TOKENS = (
    b"NaN",
    b"-1e999",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"\\u12",
    b"\xff",
    b"1" * 400,
    b"[" * 5000,
)
_SLOW = 5.0
"""Seconds of the processor."""


def mutate_bytes(content: bytes, draw: random.Random) -> bytes:
    """A few of its bytes changed, moved, doubled or gone; some packed, some cut off."""
    found = bytearray(content)
    for _ in range(draw.randrange(1, 6)):
        at, long = draw.randrange(len(found) + 1), draw.randrange(1, 80)
        how = draw.randrange(6)
        if how == 0:
            found[at : at + 1] = bytes([draw.randrange(256)])
        elif how == 1:
            del found[at : at + long]
        elif how == 2:
            found[at:at] = found[at : at + long]
        elif how == 3:
            found[at:at] = draw.choice(_TOKENS)
        elif how == 4:
            found[at : at + long] = draw.choice(_TOKENS)
        elif draw.random() < 0.3:
            del found[at:]
    if draw.random() < 0.1:
        packed = bytearray(gzip.compress(bytes(found), 1))
        packed[draw.randrange(len(packed))] ^= draw.randrange(256)
        return bytes(packed)
    return bytes(found)


def main() -> None:
    """Try so many, of traces, of reports of Nsight Systems, and of dumps."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    dumps = [path.read_bytes() for path in sorted(Path("tests/recorded/flight/skip").iterdir())]
    sources = {
        "rank0.json": [_source("rank0.json")],
        "rank0.sqlite": [_report()],
        "nccl_trace_rank_0": dumps,
    }
    ends: Counter[str] = Counter()
    slowest, slow = 0.0, list[tuple[int, float]]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            draw = random.Random(seed)
            name = list(sources)[seed % len(sources)]
            path = Path(folder) / name
            path.write_bytes(mutate_bytes(draw.choice(sources[name]), draw))
            begun = time.process_time()
            ends[_try_file(path)] += 1
            took = time.process_time() - begun
            slowest = max(slowest, took)
            slow += [(seed, took)] if took > _SLOW else []
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} damaged inputs: {dict(ends)}; slowest {slowest:.2f} s, peak {peak:.0f} MB")
    for seed, seconds in slow[:5]:
        print(f"seed {seed} took {seconds:.1f} s")
    sys.exit(bool(set(ends) - {"answered", "refused"}) or slowest > _SLOW or peak > 1024)


def _try_file(path: Path) -> str:
    try:
        if path.suffix in (".json", ".sqlite"):
            read_job([str(path)], whole=path.suffix == ".sqlite")
        else:
            account_dumps({0: read_dump(path)})
    except UserError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:120]
    return "answered"


_REPORT = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce'), (3, 'cudaLaunchKernel_v7000');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId);
CREATE TABLE NVTX_EVENTS (start, end, globalTid, text, textId);
"""


def _report() -> bytes:
    """Some steps as Nsight Systems exports them."""
    pid, thread = 7 << 24, (7 << 24) + 7
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(sqlite3.connect(Path(folder) / "a.sqlite")) as base,
    ):
        base.executescript(_REPORT)
        for n in range(60):
            begun = 10_000 * n
            kernel = (begun + 5000, begun + 9000, 0, 7, n, pid, 1 + n % 2)
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", kernel
            )
            call = (begun, begun + 100, thread, n, 3)
            base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", call)
            note = (begun, begun + 9999, thread, f"step {n}", None)
            base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", note)
        base.commit()
        return (Path(folder) / "a.sqlite").read_bytes()


def _source(name: str) -> bytes:
    from bench.trace.truth import RECORDED

    text = gzip.decompress((RECORDED / "late-1" / f"{name}.gz").read_bytes())
    document = json.loads(text)
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    document["traceEvents"] = [
        each for each in events if each["cat"] == "user_annotation"
    ] + events[:60]
    document["distributedInfo"]["world_size"] = 1
    return json.dumps(document, indent=1).encode()


if __name__ == "__main__":
    main()

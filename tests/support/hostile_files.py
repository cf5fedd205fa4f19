"""Files that would take all memory, all time or Python's stack, and the commands that read each kind of file."""

import gzip
import json
import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden"
SCHEDULE = ROOT / "examples/schedule"


def deep(path):
    path.write_text('{"schema_version": 3, "x": ' + "[" * 200_000 + "]" * 200_000 + "}")


def deep_unended(path):
    path.write_text('{"a":' * 100_000)


def many_values(path):
    path.write_text('{"schema_version": 3, "blocks": [' + "[]," * 20_000_000 + "0]}")


def long_number(path):
    path.write_text('{"schema_version": ' + "9" * 100_000 + "}")


def long_text(path):
    path.write_text(json.dumps({"schema_version": 3, "x" * 10_000_000: "y" * 10_000_000}))


def long_line(path):
    path.write_text("a" * 100_000_000)


def laughs(path):
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    lines += [
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]" for n in range(9)
    ]
    path.write_text("\n".join(lines))


def many_columns(path):
    path.write_text("x," * 1_000_000 + "\n" + "1," * 1_000_000 + "\n")


def many_lines(path):
    path.write_text("a,b\n" * 20_000_000)


def sparse(path):
    """Four gigabytes of zeros that take no room."""
    with path.open("wb") as file:
        file.truncate(2**32)


def write_bomb(path):
    """Four gigabytes of zeros in four megabytes."""
    path.write_bytes(gzip.compress(b"\0" * 2**28, 9) * 16)


def pipe(path):
    os.mkfifo(path)


def folder(path):
    path.mkdir()


def binary(path):
    path.write_bytes(bytes(range(256)) * 1000)


def empty(path):
    path.write_bytes(b"")


def surrogate(path):
    path.write_text(
        '{"schema_version": 3, "workload": "\\ud800", "hosts": {"\\u0000": 1e999, "n": NaN}}'
    )


BOMBS = [
    deep,
    deep_unended,
    many_values,
    long_number,
    long_text,
    long_line,
    laughs,
    many_columns,
    many_lines,
    sparse,
    write_bomb,
    pipe,
    folder,
    binary,
    empty,
    surrogate,
]
HARMLESS = {("instances.yaml", "empty")}
"""A file that adds nothing is no mistake."""
SIMULATE = ("schedule", "simulate", "--policy", "fifo-aware")
ONE = str(GOLDEN / "one-node.stash.json")
KINDS = {
    "x.stash.json": ("show", "FILE"),
    "y.stash.json": ("report", "FILE", "-o", "x.html"),
    "z.stash.json": ("compare", ONE, "FILE"),
    "x.host.json": ("show", "FILE"),
    "x.plan.json": ("show", "FILE"),
    "y.plan.json": ("check", "FILE", ONE),
    "x.fix.json": ("show", "FILE"),
    "y.fix.json": ("run", "--with", "FILE", "train.py"),
    "x.watch.jsonl": ("show", "FILE"),
    "x.spotlog.json": ("show", "FILE"),
    "cluster.yaml": ("whatif", ONE, "--cluster", "FILE"),
    "study.yaml": ("characterize", "FILE", "--dry-run"),
    "instances.yaml": ("catalog", "--instances", "FILE"),
    "jobs.csv": (
        *SIMULATE,
        "FILE",
        "--cluster",
        str(SCHEDULE / "cluster.yaml"),
        "--throughputs",
        str(SCHEDULE / "matrix.csv"),
    ),
    "matrix.csv": (
        *SIMULATE,
        str(SCHEDULE / "jobs.csv"),
        "--cluster",
        str(SCHEDULE / "cluster.yaml"),
        "--throughputs",
        "FILE",
    ),
    "lab.yaml": (
        *SIMULATE,
        str(SCHEDULE / "jobs.csv"),
        "--cluster",
        "FILE",
        "--throughputs",
        str(SCHEDULE / "matrix.csv"),
    ),
    "x.market.csv": ("market", "show", "FILE"),
    "x.market.csv.gz": ("market", "show", "FILE"),
    "x.market.parquet": ("market", "show", "FILE"),
}

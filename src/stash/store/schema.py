"""The tables of a store: their columns, in order, each with its type in SQL and what it means.

``stash query`` without SQL prints them. A column may be added at a table's end, and raises ``VERSION``, which makes
digests of an older one be made again. What is unknown is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from stash.core.ladder import STALLS

VERSION = 4
TableRow = Sequence[Any]
"""Values in the order of a table's columns."""
TableRows = dict[str, list[TableRow]]
"""Rows by table."""


class TableColumn(NamedTuple):
    """One column of a table."""

    name: str
    kind: str
    """``VARCHAR``, ``DOUBLE``, ``BIGINT`` or ``BOOLEAN``."""
    meaning: str


def _columns(kind: str, /, **meanings: str) -> Iterator[TableColumn]:
    return (TableColumn(name, kind, meaning) for name, meaning in meanings.items())


_ID = TableColumn("id", "VARCHAR", "of the artefact, as `stash list` shows it")
_OF_THE_PAPER = ("interconnect", "network", "prep", "fetch")

TABLES: dict[str, tuple[TableColumn, ...]] = {
    "artefacts": (
        _ID,
        *_columns(
            "VARCHAR",
            file="its file in the store",
            kind="`profile`, `probe`, `fix` or `trace`",
            created="when it was measured, ISO 8601 in UTC",
            name="of the workload; of a probe, the machines",
        ),
        *_columns("BIGINT", ranks="of the job", nodes="machines"),
        *_columns("VARCHAR", machine="instance type, else GPUs, else processor"),
        *_columns(
            "DOUBLE",
            step_seconds="one step of the whole job",
            samples_per_second="of the whole job",
        ),
        *_columns("VARCHAR", stall="what dominates; NULL where unknown"),
        *_columns("DOUBLE", stall_pct="its share of the step"),
        *_columns("VARCHAR", stash_version="the Stash that measured"),
        *_columns(
            "BIGINT",
            findings="of the machine's links, if they were probed; of a fix, changes that are kept",
        ),
    ),
    "profiles": (
        _ID,
        *_columns(
            "VARCHAR",
            created="when it was measured",
            workload="its name",
            command="as it was typed, without secrets",
            git_commit="of the script's repository",
        ),
        *_columns("BOOLEAN", git_dirty="whether that had changes besides"),
        *_columns(
            "BIGINT", world_size="ranks", nodes="machines", batch="samples per device and step"
        ),
        *_columns("VARCHAR", precision="data type of the parameters"),
        *_columns(
            "BIGINT",
            parameters="how many",
            parameter_bytes="their size",
            workers="of the first loader",
        ),
        *_columns(
            "VARCHAR",
            device="of rank 0, `cpu` or `cuda`",
            cloud="as the firmware names it",
            instance="its type there",
            gpu="of the first machine",
        ),
        *_columns("BIGINT", gpus="of all machines"),
        *_columns(
            "VARCHAR",
            cpu="of the first machine",
            torch="version",
            stash_version="the Stash that measured",
        ),
        *_columns("BIGINT", rounds="complete", rounds_dropped="incomplete"),
        *_columns("VARCHAR", ended="why measuring ended"),
        *_columns(
            "DOUBLE",
            elapsed_seconds="of the whole measurement",
            step_seconds="one step of the whole job",
            step_low="lower end of its 95 % interval",
            step_high="upper end",
            samples_per_second="of the whole job",
        ),
        *_columns("VARCHAR", verdict="its kind, as in `stash show --json`", stall="what dominates"),
        *_columns(
            "DOUBLE", **{f"{name}_pct": f"the {name} stall's share of the step" for name in STALLS}
        ),
        *_columns(
            "DOUBLE",
            **{f"paper_{name}_pct": f"{name} as the paper defines it" for name in _OF_THE_PAPER},
        ),
        *_columns("BOOLEAN", stable="whether there is no warning about the measurement"),
    ),
    "stalls": (
        _ID,
        *_columns("VARCHAR", name="of the stall"),
        *_columns(
            "DOUBLE",
            seconds="per step; NULL if unknown",
            low="lower end of the 95 % interval",
            high="upper end",
            share="of the step, from 0 to 1",
        ),
        *_columns("BOOLEAN", within_noise="whether the interval holds 0: it may not exist"),
        *_columns("VARCHAR", why="it is unknown; NULL if it is known"),
    ),
    "blocks": (
        _ID,
        *_columns("BIGINT", round="its number"),
        *_columns(
            "VARCHAR", rung="`resident`, `solo`, `crowd`, `node`, `cluster`, `warm` or `cold`"
        ),
        *_columns("BIGINT", rank="whose block", steps="measured"),
        *_columns(
            "DOUBLE", seconds="of those steps", interrupted_seconds="inside it, but not training"
        ),
        *_columns("BIGINT", samples="trained on"),
        *_columns(
            "DOUBLE",
            wait_seconds="waited for the loader",
            resident="fraction in the page cache before",
        ),
        *_columns(
            "BIGINT",
            files="opened",
            file_bytes="their sizes",
            storage_bytes="really fetched from storage",
        ),
        *_columns(
            "DOUBLE",
            fetch_seconds="workers spent making batches",
            cpu="busy fraction of the host's cores",
            steal="taken by other tenants",
            gpu="utilisation",
        ),
        *_columns("BIGINT", network_bytes="sent by the host", disk_bytes="read by the host"),
        *_columns("DOUBLE", started="since the first block"),
        *_columns(
            "BIGINT",
            launch="which of them",
            read_bytes="by system calls",
            held_bytes="dropped before it",
        ),
        *_columns(
            "DOUBLE",
            cpu_seconds="processor time of the rank's own process",
            fetch_cpu_seconds="of making batches",
        ),
    ),
    "ranks": (
        _ID,
        *_columns("BIGINT", rank="in the whole job", node="of its machine", local_rank="on it"),
        *_columns("VARCHAR", device="`cpu`, `cuda:0` …"),
        *_columns("BIGINT", cores="it was pinned to"),
    ),
    "hosts": (
        _ID,
        *_columns("BIGINT", node="its number"),
        *_columns("VARCHAR", hostname="its name", cpu="model"),
        *_columns("BIGINT", cores="this process may use", memory_bytes="installed"),
        *_columns("VARCHAR", kernel="version", gpu="the first one's name"),
        *_columns("BIGINT", gpus="how many"),
        *_columns(
            "VARCHAR",
            disk="under the data",
            virtualization="hypervisor",
            cloud="as named",
            instance="its type there",
        ),
        *_columns("DOUBLE", steal_fraction="of processor time, taken by other tenants"),
        *_columns("BOOLEAN", probed="whether its links were measured"),
    ),
    "links": (
        _ID,
        *_columns("BIGINT", node="its machine's number"),
        *_columns(
            "VARCHAR",
            hostname="its machine's name",
            part="`copies`, `streams`, `reads` or `exchanges`",
            link="what it is, e.g. `host to GPU`",
            member="which one of its like",
            unit="of the rate",
        ),
        *_columns(
            "DOUBLE", rate="measured", low="lower end of the 95 % interval", high="upper end"
        ),
    ),
    "findings": (
        _ID,
        *_columns(
            "VARCHAR",
            hostname="NULL if about several",
            name="which kind, see probe.md",
            text="in words",
        ),
        *_columns("VARCHAR", unit="of `measured`"),
        *_columns(
            "DOUBLE",
            measured="the value",
            low="lower end",
            high="upper end",
            expected="of the catalog",
        ),
        *_columns("VARCHAR", source="of what is expected, with its date"),
    ),
    "fixes": (
        _ID,
        *_columns(
            "VARCHAR",
            created="when `stash fix` was run",
            workload="its name",
            name="of a change that it knew for the job",
            knob="what that acts on",
            effect="on training: `none`, `rounding`, `order`, `numerics` or `batch`",
            standing="`kept`, or what became of it",
        ),
        *_columns(
            "DOUBLE",
            step_seconds="as typed",
            saves="seconds of a step; NULL if unknown",
            low="lower end of its interval",
            high="upper end",
        ),
        *_columns(
            "VARCHAR",
            written="`patch`, `command`, `setting` or `explained`; empty if it is not kept",
        ),
    ),
}

DERIVED = tuple(name for name in TABLES if name != "blocks")
"""What a digest holds; blocks are read from the artefacts, whose bulk they are."""


def fits(table: str, row: Any) -> bool:
    """Whether ``row``, read from a file, is one of ``table``: as many values, each NULL or of its column's type."""
    columns = TABLES[table]
    return (
        isinstance(row, list)
        and len(row) == len(columns)
        and all(
            value is None or _FITS[column.kind](value)
            for column, value in zip(columns, row, strict=True)
        )
    )


_FITS: dict[str, Callable[[Any], bool]] = {
    "VARCHAR": lambda value: isinstance(value, str),
    "DOUBLE": lambda value: type(value) in (int, float) and math.isfinite(value),
    "BIGINT": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "BOOLEAN": lambda value: isinstance(value, bool),
}

"""Reports of Nsight Systems, from their SQLite export, into the same spans as a trace of torch.profiler.

Tables and columns are those of Nsight's "SQLite Export Schema Reference" (docs.nvidia.com, 2021.5 to 2025.6); tables
that recorded nothing are not there. A report may hold several processes, and each that used a device is a rank. The
file is somebody's: only real tables are read, of real columns, and rows whose times are no numbers are left out.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from stash.core.errors import UserError
from stash.core.files import opened_regular
from stash.core.printable import printable_line
from stash.trace.kernels import GRAPH
from stash.trace.reader import COPY_MARK, LONGEST_NAME, rank_in_name
from stash.trace.spans import CALL, DEVICE, FRAME, NOTE, Nanoseconds, RankTrace, sorted_spans

TOOL = "Nsight Systems"
MAGIC = b"SQLite format 3\0"
_LATEST = 1 << 60
"""Nanoseconds: what no clock says."""
_ROWS = 1 << 14
"""Rows of a table that are looked at together."""
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
"""Of ``CUpti_ActivityMemcpyKind``."""


class _Table(NamedTuple):
    """What is read of a table."""

    name: str
    kind: int
    labels: tuple[str, ...] = ()
    """Columns of a row's name: the first that has one."""
    mark: str = ""
    """What names begin with; the name of all rows where there are no columns of it."""
    link: str = "correlationId"
    """The column that correlates calls with the device's work."""
    only: str = "1"
    """A condition of rows."""


_MAIN = "globalTid % 0x1000000 = globalTid / 0x1000000 % 0x1000000"
"""The thread is a process's first: its number is the process's."""
_BROKEN = (sqlite3.Error, ValueError)
"""Of a database that is damaged; the second where the message itself is."""
_UNKNOWN = 0
"""A process that no column says: all are one then."""
_TABLES = (
    _Table("CUPTI_ACTIVITY_KIND_KERNEL", DEVICE, ("demangledName", "shortName")),
    _Table("CUPTI_ACTIVITY_KIND_MEMCPY", DEVICE, ("copyKind",), COPY_MARK),
    _Table("CUPTI_ACTIVITY_KIND_MEMSET", DEVICE, mark="Memset"),
    _Table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", DEVICE, mark=GRAPH),
    _Table("CUPTI_ACTIVITY_KIND_RUNTIME", CALL, ("nameId",)),
    _Table("NVTX_EVENTS", NOTE, ("text", "textId"), link=""),
    _Table("OSRT_API", FRAME, ("nameId",), link="", only=_MAIN),
)

_NAMES = {*(table.name for table in _TABLES), "StringIds", "TARGET_INFO_SYSTEM_ENV"}

_Key = str | int | None
_Row = tuple[int, int, _Key, int, int, int]
"""Start, stop, label, track, link and process."""


class _Report:
    """What was read of a file so far."""

    def __init__(self) -> None:
        self.labels: dict[tuple[str, _Key], int] = {}
        self.parts: dict[int, list[Nanoseconds]] = {
            kind: [] for kind in (DEVICE, CALL, NOTE, FRAME)
        }
        self.damage: list[str] = []
        self.names: dict[int, str] = {}
        self.node = ""

    def take(self, table: _Table, rows: list[_Row]) -> None:
        """Add rows of a table."""
        labelled = [
            (
                start,
                stop,
                self.labels.setdefault((table.mark, key), len(self.labels)),
                track,
                link,
                process,
            )
            for start, stop, key, track, link, process in rows
        ]
        self.parts[table.kind].append(np.array(labelled, dtype=np.int64))

    def text(self, mark: str, key: _Key) -> str:
        """The name of a label."""
        if mark == COPY_MARK:
            return f"{mark}{_COPY_KINDS.get(key, key) if isinstance(key, int) else ''}"
        return mark or (key if isinstance(key, str) else self.names.get(key or 0, "")) or "?"


def is_report(path: Path) -> bool:
    """Whether a file is a database, by its first bytes; raises OSError."""
    with opened_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def read_report(path: Path) -> list[RankTrace]:
    """The traces of all processes that used a device, in the order of their devices; raises UserError, OSError."""
    report = _Report()
    with closing(
        sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    ) as database:
        database.text_factory = lambda content: content.decode("utf-8", "replace")
        try:
            # Stored columns of each table; views, virtual tables and computed columns are none.
            database.execute("PRAGMA trusted_schema = OFF")
            stored = database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
            )
            tables = {
                name: {row[1] for row in database.execute(f'PRAGMA table_info("{name}")')}
                for name in {name for (name,) in stored} & _NAMES
            }
        except _BROKEN as error:
            why = printable_line(str(error), 100)
            raise UserError(
                f"{path} is a database that cannot be read: {why}; export the report again"
            ) from None
        for table in _TABLES:
            _read_table(database, table, tables.get(table.name, set()), report)
        _read_names(database, tables, report)
    if not report.parts[DEVICE]:
        damage = f" ({report.damage[0]})" if report.damage else ""
        raise UserError(
            f"{path} holds no work of a device{damage}; record it with `nsys profile --trace=cuda,nvtx,osrt`, and "
            "export it with `nsys export --type=sqlite`"
        )
    return _traces(path, report)


def _read_table(
    database: sqlite3.Connection, table: _Table, columns: set[str], report: _Report
) -> None:
    """Add a table's rows, as far as they can be read."""
    if not {"start", "end"} <= columns:
        return
    # Numbers of names, and names, which are cut; of those columns that are there.
    labels = [
        f"CASE typeof({name}) WHEN 'integer' THEN {name} WHEN 'text' THEN substr({name}, 1, {LONGEST_NAME}) END"
        for name in table.labels
        if name in columns
    ]
    label = f"coalesce({', '.join([*labels, '0', '0'])})"
    whole = f"typeof(start) = 'integer' AND typeof(end) = 'integer' AND start BETWEEN 0 AND end AND end < {_LATEST}"
    link, pid, tid, device, stream = (
        f"CASE typeof({name}) WHEN 'integer' THEN {name} ELSE -1 END" if name in columns else "-1"
        for name in (table.link, "globalPid", "globalTid", "deviceId", "streamId")
    )
    of_device = table.kind == DEVICE
    track = f"(({device} & 65535) << 20) + ({stream} & 1048575)" if of_device else tid
    process = f"{pid if of_device else tid} / 0x1000000 % 0x1000000"
    columns_read = f"start, end, {label}, {track}, {link}, {process}"
    rows: list[_Row] = []
    try:
        for row in database.execute(
            f'SELECT {columns_read} FROM "{table.name}" WHERE {whole} AND {table.only}'
        ):
            rows.append(row)
            if len(rows) == _ROWS:
                report.take(table, rows)
                rows = []
        lost = f'SELECT count(*) FROM "{table.name}" WHERE NOT ({whole}) AND end IS NOT NULL'
        (count,) = database.execute(lost).fetchone()
        if count:
            report.damage.append(f"{count} rows of {table.name} have no times")
    except _BROKEN as error:
        report.damage.append(
            f"a part of {table.name} cannot be read: {printable_line(str(error), 100)}"
        )
    if rows:
        report.take(table, rows)


def _read_names(
    database: sqlite3.Connection, columns: dict[str, set[str]], report: _Report
) -> None:
    """Add the names that rows refer to, and the machine's."""
    wanted = {key for _, key in report.labels if isinstance(key, int)}
    try:
        if {"id", "value"} <= columns.get("StringIds", set()):
            for number, name in database.execute(
                f"SELECT id, substr(value, 1, {LONGEST_NAME}) FROM StringIds"
            ):
                if number in wanted:
                    report.names[number] = str(name)
        if {"name", "value"} <= columns.get("TARGET_INFO_SYSTEM_ENV", set()):
            query = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'"
            report.node = str(next(database.execute(query), [""])[0])
    except _BROKEN as error:
        report.damage.append(f"names are damaged: {printable_line(str(error), 100)}")


def _traces(path: Path, report: _Report) -> list[RankTrace]:
    """One of each process that used a device, in order of their devices."""
    rows = {
        kind: np.concatenate([*parts, np.empty((0, 6), np.int64)])
        for kind, parts in report.parts.items()
    }
    device = rows[DEVICE]
    first = {
        int(process): int(device[device[:, 5] == process, 3].min())
        for process in np.unique(device[:, 5])
    }
    if len(first) > 1:
        first.pop(_UNKNOWN, None)
    named = rank_in_name(path.name) if len(first) == 1 else None
    names = tuple(report.text(*key) for key in report.labels)

    def rows_of(kind: int, process: int) -> Nanoseconds:
        """All of them if the only process is unknown."""
        found = rows[kind]
        return found[(found[:, 5] == process) | (process == _UNKNOWN), :5]

    return [
        RankTrace(
            file=printable_line(path.name, LONGEST_NAME),
            rank=named,
            world=None,
            backend="nccl" if any(name.startswith("nccl") for name in names) else "",
            node=report.node,
            names=names,
            spans={kind: sorted_spans([rows_of(kind, process)]) for kind in rows},
            ops={},
            facts={},
            groups={},
            damage=tuple(report.damage),
            tool=TOOL,
        )
        for process in sorted(first, key=lambda each: (first[each], each))
    ]

"""Files of torch.profiler's traces into columns, as a stream: memory grows with what is kept, not with the file.

A file is read in pieces that end between two events. Most events of a trace say nothing of what a step waited for;
they are left out before anything is decoded. A piece that cannot be decoded whole is read event by event, and what is
damaged is left out and said. Operations of the host are read, in a second pass, only where a trace has no device.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from stash.core.errors import UserError
from stash.core.files import opened_regular
from stash.core.printable import printable_line
from stash.trace.spans import (
    CALL,
    DEVICE,
    FRAME,
    ITEM_BYTES,
    NONE,
    NOTE,
    OP,
    CollectiveFacts,
    Nanoseconds,
    RankTrace,
    TraceSpans,
    sorted_spans,
    union,
)

_PIECE = 4 << 20
"""Bytes of a file, unpacked, that are looked at together."""
_LONGEST = 64 << 20
"""Bytes of one event, or of what stands before the first."""
_RATIO, _SMALL = 400, 256 << 20
"""A file that unpacks to more than so many times its size, and to more than so many bytes, is no trace."""
LONGEST_NAME, _HEAD = 300, 200
"""Characters of a name, and bytes of an event in which its kind stands; else it is kept for nothing."""
_LATEST = 4e15
"""Microseconds: what no clock says."""
KINDS = {
    "kernel": DEVICE,
    "gpu_memcpy": DEVICE,
    "gpu_memset": DEVICE,
    "memcpy": DEVICE,
    "memset": DEVICE,
    "mtia_ccp_events": DEVICE,
    "xpu_kernel": DEVICE,
    "privateuse1_kernel": DEVICE,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "runtime": CALL,
    "hip_runtime": CALL,
    "mtia_runtime": CALL,
    "xpu_runtime": CALL,
    "user_annotation": NOTE,
    "python_function": FRAME,
    "cpu_op": OP,
    "operator": OP,
}
_COPIES = ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
CALLED = "c10d::"
"""What names of operations begin with that start a collective."""
COPY_MARK = "Memcpy "
"""What names of copies begin with; those of some tools do not say it."""

_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_DULL = re.compile(
    rb'"cat":\s*"(?:(?P<op>cpu_op|operator)"|ac2g|async|fwdbwd|gpu_user_annotation|overhead|cuda_sync|cuda_profiler'
    rb'|Trace|python_function",\s*"name":\s*"(?:<|nn\.Module|torch/|[^"]*(?:site-packages|lib/python)))'
)
"""In the head of an event that is not kept; a match named ``op`` is kept where there is no device."""
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])|\\u(?![0-9a-fA-F]{4})')
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[|\A(?:\xef\xbb\xbf)?\s*\[')
"""What stands before the first event: a field, or nothing."""
_RANK_IN_NAME = re.compile(r"rank[-_.]?(\d{1,6})", re.IGNORECASE)

_Loose = str | float | int | None


class _Args(msgspec.Struct, gc=False):
    """What is looked at of an event's arguments."""

    correlation: int | None = None
    op: _Loose = msgspec.field(name="Collective name", default=None)
    elements: int | None = msgspec.field(name="In msg nelems", default=None)
    dtype: _Loose = None
    group: _Loose = msgspec.field(name="Process Group Name", default=None)
    ranks: list[int] | str | None = msgspec.field(name="Process Group Ranks", default=None)
    sequence: int | None = msgspec.field(name="Seq", default=None)
    source: int | None = msgspec.field(name="Src Rank", default=None)
    target: int | None = msgspec.field(name="Dst Rank", default=None)
    mine: int | None = msgspec.field(name="Rank", default=None)


class _Event(msgspec.Struct, gc=False):
    """What is looked at of one event; of any type, since anybody may have written it."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: _Loose = None
    tid: _Loose = None
    ts: _Loose = None
    dur: _Loose = None
    args: _Args | None = None


class _DamageError(Exception):
    """A file ends before it is whole, in words."""


_DECODER = msgspec.json.Decoder(list[_Event])


class _Gathered:
    """What was read of a file so far."""

    def __init__(self) -> None:
        self.labels: dict[tuple[str, CollectiveFacts | None], int] = {}
        self.tracks: dict[tuple[_Loose, _Loose], int] = {}
        self.parts: dict[int, list[Nanoseconds]] = {
            kind: [] for kind in (DEVICE, CALL, NOTE, FRAME)
        }
        self.ops: dict[int, Nanoseconds] = {}
        self.lost = 0
        self.lost_at = 0
        self.seen = 0
        self.base: float | None = None
        """Microseconds that times are counted from: those since 1970 have too many digits to be exact."""

    def lose(self, count: int, at: int) -> None:
        if count and not self.lost:
            self.lost_at = at
        self.lost += count

    def take(self, events: Sequence[_Event], at: int) -> None:
        """Add a piece's events, which begin at that byte."""
        self.seen += sum(event.ph != "" for event in events)
        whole = [event for event in events if event.ph == "X" and event.cat.lower() in KINDS]
        begun, lasted = (
            _microseconds([getattr(event, name) for event in whole]) for name in ("ts", "dur")
        )
        good = np.isfinite(begun) & (lasted >= 0)
        self.lose(int((~good).sum()), at)
        if self.base is None and good.any():
            self.base = float(np.floor(begun[good][0]))
        described = [self._row_of(event) for event in whole]
        rows = np.zeros((len(whole), 6), dtype=np.int64)
        rows[:, 2:] = np.array(described, dtype=np.int64).reshape(-1, 4)
        rows[good, 0] = np.rint((begun[good] - (self.base or 0.0)) * 1000)
        rows[good, 1] = rows[good, 0] + np.rint(lasted[good] * 1000).astype(np.int64)
        rows = rows[good]
        for kind, parts in self.parts.items():
            parts.append(rows[rows[:, 5] == kind, :5])
            # large ones are given back when freed
            while len(parts) > 1 and len(parts[-2]) <= 2 * len(parts[-1]):
                parts[-2:] = [np.concatenate(parts[-2:])]
        ops = rows[rows[:, 5] == OP]
        for track in np.unique(ops[:, 3]).tolist():
            found = ops[ops[:, 3] == track, :2]
            self.ops[track] = union(np.concatenate((self.ops.get(track, NONE), found)))

    def _row_of(self, event: _Event) -> tuple[int, int, int, int]:
        """Of a span its name, track and link as numbers, and its kind."""
        cat = event.cat.lower()
        name = event.name
        args = event.args
        kind = NOTE if name.startswith(CALLED) else KINDS[cat]
        if cat in _COPIES and not name.lower().startswith(("mem", "copy")):
            name = f"{COPY_MARK}{name}"
        facts = None if args is None or args.op is None or kind == CALL else _facts_of(args)
        label = self.labels.setdefault((name[:LONGEST_NAME], facts), len(self.labels))
        track = self.tracks.setdefault((event.pid, event.tid), len(self.tracks))
        link = None if args is None else args.correlation
        return label, track, -1 if link is None else link, kind

    def spans(self) -> dict[int, TraceSpans]:
        """By kind, each span once, sorted by start."""
        return {kind: sorted_spans(parts) for kind, parts in self.parts.items()}


def _microseconds(values: Sequence[_Loose]) -> NDArray[np.float64]:
    """Of numbers or texts; NaN for what is no time."""
    try:
        found = np.array(values, dtype=np.float64)
    except (ValueError, OverflowError):
        found = np.array([_number(value) for value in values], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(found) < _LATEST, found, np.nan)


def _whole(value: Any) -> int | None:
    """A whole number of some few digits; ``None`` where it is none."""
    return value if isinstance(value, int) and 0 <= value < 10**7 else None


def _number(value: _Loose) -> float:
    try:
        return math.nan if value is None else float(value)
    except (ValueError, OverflowError):
        return math.nan


def _facts_of(args: _Args) -> CollectiveFacts:
    item = ITEM_BYTES.get(str(args.dtype).lower())
    ends = () if args.mine is None else (args.source, args.target)
    peers = [each for each in ends if each is not None and each != args.mine]
    return CollectiveFacts(
        op=str(args.op)[:LONGEST_NAME],
        group="" if args.group is None else str(args.group)[:LONGEST_NAME],
        ranks=_ranks(args.ranks),
        sequence=args.sequence,
        bytes=None if args.elements is None or item is None else args.elements * item,
        peer=peers[0] if peers else None,
    )


def _ranks(value: Any) -> tuple[int, ...]:
    """Of a list, or of a text of one, which long groups have cut short."""
    if isinstance(value, str) and "..." not in value:
        return tuple(int(number) for number in re.findall(r"\d{1,9}", value))
    is_known = isinstance(value, list) and all(isinstance(each, int) for each in value)
    return tuple(value) if is_known else ()


# From bytes to events


def _unpack_file(path: Path) -> Iterator[bytes]:
    """A file's bytes, unpacked; raises ``_DamageError`` where they end too early, OSError, UserError."""
    with opened_regular(path) as file:
        head = file.read(4)
        file.seek(0)
        if head.startswith(b"\x1f\x8b"):
            yield from _inflate_file(file, path)
        elif head == b"PK\x03\x04":
            yield from _unzip_file(file, path)
        else:
            while piece := file.read(_PIECE):
                yield piece


def _inflate_file(file: BinaryIO, path: Path) -> Iterator[bytes]:
    inflate = zlib.decompressobj(31)
    packed = 0
    unpacked = 0
    is_whole = False
    while piece := file.read(1 << 20):
        packed += len(piece)
        while piece:
            try:
                found = inflate.decompress(piece, _PIECE)
            except zlib.error:
                raise _DamageError(
                    f"its compressed data is damaged near byte {packed - len(piece)}"
                ) from None
            unpacked += len(found)
            _check_ratio(packed, unpacked, path)
            yield found
            piece = inflate.unconsumed_tail
            is_whole = inflate.eof
            if is_whole:
                piece = inflate.unused_data.lstrip(b"\0")
                inflate = zlib.decompressobj(31)
    if not is_whole:
        yield inflate.flush()
        raise _DamageError(f"its compressed data ends early, at byte {packed}")


def _unzip_file(file: BinaryIO, path: Path) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.lower().endswith(".json")]
            if len(names) != 1:
                raise UserError(
                    f"{path} holds {len(names)} JSON files, not one trace; unpack it into a folder"
                )
            packed = archive.getinfo(names[0]).compress_size
            unpacked = 0
            with archive.open(names[0]) as member:
                while piece := member.read(_PIECE):
                    unpacked += len(piece)
                    _check_ratio(packed, unpacked, path)
                    yield piece
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise _DamageError("its zip archive is damaged") from None


def _check_ratio(packed: int, unpacked: int, path: Path) -> None:
    if unpacked > _SMALL and unpacked > _RATIO * packed:
        raise UserError(
            f"{path} unpacks to more than {_RATIO} times its size, as no trace does; it is not read"
        )


def _last_cut(text: bytes) -> int | None:
    """Where the last event that may be whole ends, in text that begins with one."""
    tail = max(0, len(text) - (1 << 18))
    while True:
        found = list(_BETWEEN.finditer(text, tail))
        if found or tail == 0:
            return found[-1].start() + 1 if found else None
        tail = 0


def _decode_events(text: bytes, with_ops: bool) -> list[_Event]:
    """The events of a piece, without those that tell nothing; raises ValueError where it is not whole."""
    inner = text.strip(b" \t\r\n,")
    if not inner:
        return []
    parts = _BETWEEN.split(inner[1:-1])
    kept = []
    for part in parts:
        dull = _DULL.search(part, 0, _HEAD)
        if dull is None or (with_ops and dull["op"]):
            kept.append(part)
    return _DECODER.decode(b"[{" + b"},{".join(kept) + b"}]") if kept else []


def _one_by_one(text: str, last: bool) -> tuple[list[Any], int, int, int | None]:
    """The events that can be read, characters used, events lost, and where the first of these was."""
    scan = json.JSONDecoder().raw_decode
    found = list[Any]()
    lost = 0
    first_lost = None
    at = 0
    end = len(text)
    while True:
        while at < end and text[at] in " \t\r\n,":
            at += 1
        if at >= end or text[at] == "]":
            return found, at, lost, first_lost
        value = None
        stop = end
        try:
            value, stop = scan(text, at)
        except (ValueError, RecursionError):
            following = re.compile(r"\}\s*,\s*\{").search(text, at)
            if following is not None:
                stop = following.start() + 1
                with suppress(ValueError, RecursionError):
                    value = json.loads(_BAD_ESCAPE.sub(r"\\\\", text[at:stop]))
            elif not last:
                return found, at, lost, first_lost
        if isinstance(value, dict):
            found.append(value)
        else:
            lost = lost + 1
            first_lost = at if first_lost is None else first_lost
        at = stop


def _make_event(value: Mapping[str, Any]) -> _Event:
    """One that Python's own reader has read, with numbers that JSON does not know; empty where it is none."""
    for found in (value, {**value, "args": None}):
        with suppress(ValueError, RecursionError):
            return msgspec.convert(found, _Event)
    return _Event()


# A whole file


def read_trace(path: Path) -> RankTrace:
    """All that is kept of a file; raises UserError for what is no trace, OSError."""
    gathered, outside, damage = _gather(path, with_ops=False)
    if not any(map(len, gathered.parts[DEVICE])):
        gathered, outside, damage = _gather(path, with_ops=True)
    if not gathered.seen:
        raise UserError(not_a_trace(path, outside))
    info = _object_at(outside, b'"distributedInfo"')
    rank = _whole(info.get("rank"))
    if rank is None:
        rank = rank_in_name(path.name)
    if gathered.lost:
        damage.append(
            f"{gathered.lost} events are not whole, the first near byte {gathered.lost_at}"
        )
    host = re.search(rb'"host_?name"\s*:\s*"([^"]{0,300})"', outside, re.IGNORECASE)
    return RankTrace(
        file=printable_line(path.name, LONGEST_NAME),
        rank=rank,
        world=_whole(info.get("world_size")),
        backend=printable_line(str(info.get("backend", "")), 30),
        node="" if host is None else host[1].decode("utf-8", "replace"),
        names=tuple(name for name, _ in gathered.labels),
        spans=gathered.spans(),
        ops=gathered.ops,
        facts={label: facts for (_, facts), label in gathered.labels.items() if facts is not None},
        groups=_groups(info.get("pg_config")),
        damage=tuple(damage),
    )


def rank_in_name(name: str) -> int | None:
    """The rank that a file's name says, like ``rank3.json``."""
    found = _RANK_IN_NAME.search(name)
    return None if found is None else int(found[1])


def _gather(path: Path, with_ops: bool) -> tuple[_Gathered, bytes, list[str]]:
    """What is read of a file, its text before and after the events, and how it is damaged."""
    gathered = _Gathered()
    outside = b""
    damage = list[str]()
    text = b""
    at = 0
    is_begun = False
    try:
        for piece in _unpack_file(path):
            text += piece
            if not is_begun:
                start = _EVENTS.search(text)
                if start is None and len(text) < _LONGEST:
                    continue
                if start is None:
                    break
                at = start.end()
                outside, text = text[:at], text[at:]
                is_begun = True
            cut = _last_cut(text)
            if cut is not None:
                used = _take(gathered, text[:cut], at, with_ops, last=False)
                text = text[used:]
                at = at + used
            elif len(text) > _LONGEST:
                raise _DamageError(f"an event at byte {at} is longer than {_LONGEST >> 20} MB")
    except _DamageError as error:
        damage.append(str(error))
    if not is_begun:
        return gathered, text, damage
    tail = text[_take(gathered, text, at, with_ops, last=True) :]
    if not damage and not tail.startswith(b"]"):
        damage.append(f"it is cut off at byte {at + len(text)}")
    return gathered, outside + tail, damage


def _take(gathered: _Gathered, text: bytes, at: int, with_ops: bool, last: bool) -> int:
    """Add the events of a piece that begins at that byte; how many bytes of it are used."""
    if not last:
        try:
            gathered.take(_decode_events(text, with_ops), at)
            return len(text)
        except (ValueError, RecursionError):
            pass
    readable = text.decode("utf-8", "surrogateescape")
    values, used, lost, first_lost = _one_by_one(readable, last)
    events = [_make_event(value) for value in values]
    lost += sum("ph" in value and not event.ph for value, event in zip(values, events, strict=True))
    gathered.take([each for each in events if with_ops or KINDS.get(each.cat.lower()) != OP], at)
    gathered.lose(lost, at + (first_lost or 0))
    return len(readable[:used].encode("utf-8", "surrogateescape"))


def _object_at(text: bytes, name: bytes) -> dict[str, Any]:
    """The object that follows a name, empty where there is none."""
    found = re.search(re.escape(name) + rb"\s*:\s*(?=\{)", text)
    if found is None:
        return {}
    try:
        value, _ = json.JSONDecoder().raw_decode(text[found.end() :].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _groups(config: Any) -> dict[str, tuple[int, ...]]:
    """Ranks of each process group by its name; older versions write the list as a text."""
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError):
            return {}
    found = {}
    for each in config if isinstance(config, list) else ():
        if isinstance(each, dict) and (ranks := _ranks(each.get("ranks"))):
            found[str(each.get("pg_name", ""))[:LONGEST_NAME]] = ranks
    return found


_OTHERS = (
    (
        rb'^\s*\{\s*"(?:\w+_schema|schema_version)"',
        "a file that Stash wrote: `stash show` shows it",
    ),
    (rb'"schema"\s*:\s*"[^"]*(?:chakra|1\.\d)', "an execution trace, which has no times"),
    (rb'"(?:device_traces|segments)"\s*:', "a snapshot of memory"),
    (rb'"(?:nccl_version|pg_status)"\s*:', "a flight recorder's dump: add --flight-recorder"),
)


_ENDINGS = {
    (
        ".nsys-rep",
        ".qdrep",
    ): "a report of Nsight Systems; export it with `nsys export --type=sqlite`",
    (".pb",): "an XPlane of JAX or TensorFlow; export it as trace.json.gz from its trace viewer",
    (
        ".db",
        ".csv",
        ".rocpd",
    ): "no trace; of rocprof, write one with `rocprofv3 --output-format pftrace json`",
}


def not_a_trace(path: Path, head: bytes) -> str:
    """What a file is instead of a trace, as an error says it."""
    named = (what for endings, what in _ENDINGS.items() if path.name.lower().endswith(endings))
    held = (what for pattern, what in _OTHERS if re.search(pattern, head[:4096]))
    return f"{path} is {next(chain(named, held), 'no trace of torch.profiler: it has no events')}"

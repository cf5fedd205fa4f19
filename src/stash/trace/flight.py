"""Dumps of PyTorch's flight recorder: the first collective that some ranks never joined, mismatches, slow ranks.

A dump is JSON, or a pickle, which is never loaded as such: only numbers, texts, lists, tuples and dictionaries are
made of it, and whatever could call anything is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from stash.analysis.findings.rates import bus_bytes
from stash.core.errors import UserError
from stash.core.files import parse_json, read_up_to
from stash.core.formatting import join_names
from stash.core.grouping import group_by
from stash.core.printable import printable_line
from stash.core.units import (
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
)
from stash.trace.spans import ITEM_BYTES
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

MAX_BYTES = 1 << 28
_HARMLESS = re.compile(
    r"PROTO|FRAME|STOP|MARK|POP|POP_MARK|DUP|NONE|NEWTRUE|NEWFALSE|MEMOIZE|(BIN)?INT[12]?|LONG1?|(BIN)?FLOAT"
    r"|(SHORT_)?(BIN)?(STRING|UNICODE|BYTES)8?|(EMPTY_)?(LIST|DICT|TUPLE)|APPENDS?|TUPLE[123]|SETITEMS?"
    r"|(LONG_)?(BIN)?(GET|PUT)"
)
"""Opcodes that make data and call nothing."""
_RANK = re.compile(r"(\d{1,6})(?:\.(?:json|pkl|pickle|bin))?$")
_UNEVEN = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv", "allgather")
"""Collectives whose ranks may put in unlike sizes."""
_LATE = 2.0
"""How many times later than others usually a rank must come to be called late."""


@dataclass(frozen=True)
class JoinedCall:
    """One collective as one rank recorded it."""

    sequence: int
    op: str
    sizes: str
    created: int
    """Nanoseconds."""
    seconds: float | None
    """How long it took, where the recorder timed it."""
    is_done: bool
    bytes: int | None
    place: str


@dataclass(frozen=True)
class FlightFinding:
    """Something wrong, the first of its kind in a group."""

    kind: str
    text: str
    when: int


class CollectiveSpeed(NamedTuple):
    """How fast collectives of one kind and size are."""

    collective: str
    ranks: int
    bytes: int
    seconds: float
    bus_bytes_per_second: float


@dataclass(frozen=True)
class FlightAccount:
    """What all dumps say together."""

    ranks: tuple[int, ...]
    findings: tuple[FlightFinding, ...]
    late: Mapping[int, float]
    """Seconds that a rank comes later than the first one."""
    speeds: tuple[CollectiveSpeed, ...]


class _Data(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no data")


def read_dump(path: Path) -> dict[str, Any]:
    """A dump as data; raises UserError."""
    try:
        content = read_up_to(path, MAX_BYTES)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise UserError(
            f"{path} is larger than {MAX_BYTES >> 20} MB, and no dump of a flight recorder"
        )
    try:
        found = _unpickle_data(content) if content.startswith(b"\x80") else parse_json(content)
    except (
        ValueError,
        RecursionError,
        MemoryError,
        EOFError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        pickle.UnpicklingError,
    ) as error:
        raise UserError(
            f"{path} is no dump of a flight recorder, or damaged: {printable_line(str(error), 200)}"
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise UserError(f"{path} is no dump of a flight recorder: it has no entries")
    return found


def _unpickle_data(content: bytes) -> Any:
    for opcode, argument, _ in pickletools.genops(content):
        # its table would be that long
        is_far = opcode.name.endswith("PUT") and int(argument or 0) > len(content)
        if is_far or _HARMLESS.fullmatch(opcode.name) is None:
            raise pickle.UnpicklingError(f"it holds {opcode.name}, which is more than data")
    return _Data(io.BytesIO(content)).load()


def rank_of(path: Path, dump: Mapping[str, Any]) -> int:
    """Whose dump it is, by its own word or its name; raises UserError."""
    own = dump.get("rank")
    if isinstance(own, int) and own >= 0:
        return own
    named = _RANK.search(path.name)
    if named is None:
        raise UserError(f"{path} does not say of which rank it is; name it like nccl_trace_rank_3")
    return int(named[1])


_ByNumber = Mapping[int, Mapping[int, JoinedCall]]
"""A group's calls by their number, then by rank."""


def account_dumps(dumps: Mapping[int, Mapping[str, Any]]) -> FlightAccount:
    """What the dumps of these ranks say together."""
    groups: dict[str, dict[int, dict[int, JoinedCall]]] = defaultdict(lambda: defaultdict(dict))
    members: dict[str, set[int]] = defaultdict(set)
    for rank, dump in sorted(dumps.items()):
        for entry in dump["entries"]:
            call = _parse_call(entry) if isinstance(entry, dict) else None
            if call is not None and not entry.get("is_p2p"):
                group = entry.get("process_group") or [""]
                first = group[0] if isinstance(group, (list, tuple)) and group else group
                name = printable_line(str(first), 40)
                groups[name][call.sequence][rank] = call
                members[name] |= {rank, *_members(dump.get("pg_config"), name)}
    findings = [
        finding
        for name, calls in groups.items()
        for finding in _find_problems(name, calls, members[name] & set(dumps))
    ]
    return FlightAccount(
        ranks=tuple(sorted(dumps)),
        findings=tuple(sorted(findings, key=lambda finding: finding.when)),
        late=_lateness(groups.values()),
        speeds=tuple(_speeds(groups, members)),
    )


def _members(config: Any, name: str) -> Iterator[int]:
    own = config.get(name) if isinstance(config, dict) else None
    ranks = own.get("ranks") if isinstance(own, dict) else None
    yield from (int(number) for number in re.findall(r"\d{1,6}", str(ranks or ""))[:100_000])


def _parse_call(entry: Mapping[str, Any]) -> JoinedCall | None:
    numbers = (entry.get(name) for name in ("collective_seq_id", "time_created_ns"))
    sequence, created = (value if type(value) is int else 0 for value in numbers)
    if sequence <= 0:
        return None
    took = entry.get("duration_ms")
    name = str(entry.get("profiling_name", ""))
    sizes, dtypes = entry.get("input_sizes"), entry.get("input_dtypes")
    return JoinedCall(
        sequence=sequence,
        op=printable_line(name.rpartition(":")[2], 60),
        sizes=printable_line(re.sub(r"[()']", "", f"{sizes} {dtypes}"), 100),
        created=created,
        seconds=took / 1e3 if isinstance(took, (int, float)) and 0 < took < 1e9 else None,
        is_done=entry.get("state") == "completed"
        or entry.get("retired") is True
        or not name.startswith("nccl"),
        bytes=_size(sizes, dtypes),
        place=_place(entry.get("frames")),
    )


def _size(sizes: Any, dtypes: Any) -> int | None:
    try:
        counts = (
            math.prod(map(int, shape)) * ITEM_BYTES[str(dtype).lower()]
            for shape, dtype in zip(sizes, dtypes, strict=True)
        )
        total = sum(counts)
    except (TypeError, ValueError, KeyError):
        return None
    return total if 0 < total < 1 << 50 else None


def _place(frames: Any) -> str:
    """The innermost frame that is neither PyTorch's nor Stash's."""
    for frame in frames if isinstance(frames, list) else ():
        file = str(frame.get("filename", "")) if isinstance(frame, dict) else ""
        if file and not re.search("^<|/torch/|/stash/measure/", file):
            return printable_line(f" at {Path(file).name}:{frame.get('line', '?')}", 80)
    return ""


def _find_problems(name: str, calls: _ByNumber, ranks: set[int]) -> Iterator[FlightFinding]:
    """What is wrong in one group, the first of each kind."""
    began: dict[int, int] = {}
    for number in sorted(calls):
        began = dict.fromkeys(calls[number], number) | began
    kinds_seen = set[str]()
    group = f" in group {name}" if name not in ("", "0", "default_pg") else ""
    for number in sorted(number for number in calls if number >= max(began.values())):
        missing = sorted(ranks - set(calls[number]))
        for finding in _problems_of(number, calls[number], missing, group):
            if finding.kind not in kinds_seen:
                kinds_seen.add(finding.kind)
                yield finding
        if kinds_seen & {"order", "missing"}:  # what follows is no longer the same collective
            return


def _problems_of(
    number: int, calls: Mapping[int, JoinedCall], missing: Sequence[int], group: str
) -> Iterator[FlightFinding]:
    one = next(iter(calls.values()))
    when = min(call.created for call in calls.values())
    what = f"collective {number}{group} ({one.op} of {one.sizes}{one.place})"
    if missing:
        text = f"{_ranks(missing)} never joined {what}; {_ranks(list(calls))} waited there"
        yield FlightFinding("missing", text, when)
    by_op = group_by(calls, lambda rank: calls[rank].op)
    by_sizes = group_by(calls, lambda rank: calls[rank].sizes)
    if len(by_op) > 1:
        text = f"ranks run different collectives as number {number}{group}: {_ranks_by_text(by_op)}"
        yield FlightFinding("order", text, when)
    elif len(by_sizes) > 1 and not any(word in one.op for word in _UNEVEN):
        text = (
            f"ranks put different sizes into {one.op} {number}{group}: {_ranks_by_text(by_sizes)}"
        )
        yield FlightFinding("size", text, when)
    elif not missing and not any(call.is_done for call in calls.values()):
        text = f"all ranks joined {what}, and none was done with it when it wrote its dump: look at the network"
        yield FlightFinding("not done", text, when)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {join_names([str(rank) for rank in ranks], 8)}"


def _ranks_by_text(ranks: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{text} on {_ranks(own)}" for text, own in ranks.items())


def _lateness(groups: Iterable[_ByNumber]) -> dict[int, float]:
    """Seconds that each rank comes after the first one: mean, but for the longest; needs clocks that agree."""
    delays: dict[int, list[float]] = defaultdict(list)
    for by_number in groups:
        ranks = {rank for calls in by_number.values() for rank in calls}
        for calls in by_number.values():
            if calls.keys() == ranks:
                first = min(call.created for call in calls.values())
                for rank, call in calls.items():
                    delays[rank].append((call.created - first) / 1e9)
    return {
        rank: fmean(sorted(found)[: max(1, len(found) - 1)])
        for rank, found in sorted(delays.items())
    }


def _speeds(
    groups: Mapping[str, _ByNumber], members: Mapping[str, set[int]]
) -> Iterator[CollectiveSpeed]:
    """Of each collective, group and size: the median time that the last rank needed, and bytes on the bus."""
    times: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for name, by_number in groups.items():
        for calls in by_number.values():
            one = next(iter(calls.values()))
            timed = [call.seconds for call in calls.values() if call.seconds is not None]
            if timed and one.bytes:
                times[one.op, len(members[name]), one.bytes].append(min(timed))
    for (op, count, size), found in sorted(times.items()):
        bus = bus_bytes(op, count, size)
        if bus is not None:
            yield CollectiveSpeed(op, count, size, median(found), bus / median(found))


# What it looks like


def sentences(found: FlightAccount) -> Iterator[str]:
    """The first thing that is wrong, and who comes late."""
    first = "all ranks ran the same collectives, and joined all of them"
    if found.findings:
        first = found.findings[0].text
    yield f"{first[:1].upper()}{first[1:]}."
    by_delay = sorted(found.late, key=lambda rank: found.late[rank])
    if len(by_delay) > 1:
        other, seconds = (found.late[rank] for rank in by_delay[-2:])
        if seconds > max(_LATE * other, 1e-3):
            text = format_seconds(seconds)
            yield f"Rank {by_delay[-1]} comes {text} later than the first, if their clocks agree."


def page(found: FlightAccount, title: str) -> Page:
    """The account of dumps as a page."""
    rows = tuple(
        (op, str(count), format_bytes(size), format_seconds(seconds), format_rate(rate))
        for op, count, size, seconds, rate in found.speeds
    )
    chapters = []
    if len(found.findings) > 1:
        points = tuple(each.text for each in found.findings[1:])
        chapters.append(Chapter("more", "Besides", points=points, brief=True, most=5))
    if rows:
        grid = Grid("", ("ranks", "size", "time", "bus"), rows, frozenset({0}), first="collective")
        chapters.append(Chapter("speed", "Speed", grids=(grid,), brief=True))
    return Page(
        title=f"{title} | flight recorder of {format_count(len(found.ranks), 'rank')}",
        verdict=tuple(sentences(found)),
        chapters=tuple(chapters),
    )


def document(found: FlightAccount) -> dict[str, Any]:
    """The account of dumps as JSON."""
    return {
        "schema": 1,
        "kind": "flight recorder",
        "ranks": list(found.ranks),
        "findings": [{"kind": each.kind, "text": each.text} for each in found.findings],
        "late": [{"rank": rank, "seconds": seconds} for rank, seconds in found.late.items()],
        "speeds": [speed._asdict() for speed in found.speeds],
    }

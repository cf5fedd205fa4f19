"""Dumps of PyTorch's flight recorder: the first collective that some ranks never joined, mismatches, slow ranks.

A dump is JSON, or a pickle, which is never loaded as such: only numbers, texts, lists, tuples and dictionaries are
made of it, and whatever could call anything is refused.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from stash.analysis.findings.rates import bus_bytes
from stash.core.errors import UserError
from stash.core.files import parse_json, read_up_to
from stash.core.formatting import join_names
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


def account_dumps(dumps: Mapping[int, Mapping[str, Any]]) -> FlightAccount:
    """What the dumps of these ranks say together."""
    groups: dict[str, dict[int, dict[int, JoinedCall]]] = defaultdict(
        lambda: {rank: {} for rank in sorted(dumps)}
    )
    members: dict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        config = dump.get("pg_config")
        for entry in dump["entries"]:
            if (
                isinstance(entry, dict)
                and (found := _parse_call(entry)) is not None
                and not entry.get("is_p2p")
            ):
                group = entry.get("process_group") or [""]
                name = printable_line(
                    str(group[0] if isinstance(group, (list, tuple)) and group else group), 40
                )
                groups[name][rank][found.sequence] = found
                members[name] |= {rank, *_members(config, name)}
    findings = [
        each
        for name, ranks in groups.items()
        for each in _find_problems(name, ranks, members[name])
    ]
    return FlightAccount(
        ranks=tuple(sorted(dumps)),
        findings=tuple(sorted(findings, key=lambda each: each.when)),
        late=_lateness(groups.values()),
        speeds=tuple(_speeds(groups, members)),
    )


def _members(config: Any, name: str) -> Iterator[int]:
    own = config.get(name) if isinstance(config, dict) else None
    ranks = own.get("ranks") if isinstance(own, dict) else None
    yield from (int(number) for number in re.findall(r"\d{1,6}", str(ranks or ""))[:100_000])


def _parse_call(entry: Mapping[str, Any]) -> JoinedCall | None:
    def number(name: str) -> int:
        value = entry.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    sequence = number("collective_seq_id")
    if sequence <= 0:
        return None
    took = entry.get("duration_ms")
    name = str(entry.get("profiling_name", ""))
    sizes = entry.get("input_sizes")
    dtypes = entry.get("input_dtypes")
    return JoinedCall(
        sequence=sequence,
        op=printable_line(name.rpartition(":")[2], 60),
        sizes=printable_line(re.sub(r"[()']", "", f"{sizes} {dtypes}"), 100),
        created=number("time_created_ns"),
        seconds=took / 1e3 if isinstance(took, (int, float)) and 0 < took < 1e9 else None,
        is_done=entry.get("state") == "completed"
        or entry.get("retired") is True
        or not name.startswith("nccl"),
        bytes=_size(sizes, dtypes),
        place=_place(entry.get("frames")),
    )


def _size(sizes: Any, dtypes: Any) -> int | None:
    try:
        total = 0
        for shape, dtype in zip(sizes, dtypes, strict=True):
            count = ITEM_BYTES[str(dtype).lower()]
            for extent in shape:
                count *= int(extent)
            total += count
        return total if 0 < total < 1 << 50 else None
    except (TypeError, ValueError, KeyError):
        return None


def _place(frames: Any) -> str:
    """The innermost frame that is neither PyTorch's nor Stash's."""
    for frame in frames if isinstance(frames, list) else ():
        file = str(frame.get("filename", "")) if isinstance(frame, dict) else ""
        if file and not re.search("^<|/torch/|/stash/measure/", file):
            return printable_line(f" at {Path(file).name}:{frame.get('line', '?')}", 80)
    return ""


def _find_problems(
    name: str, ranks: Mapping[int, Mapping[int, JoinedCall]], members: set[int]
) -> Iterator[FlightFinding]:
    """What is wrong in one group, the first of each kind."""
    there = {rank: found for rank, found in ranks.items() if rank in members}
    first = max((min(found) for found in there.values() if found), default=1)
    kinds_seen = set[str]()
    group = f" in group {name}" if name not in ("", "0", "default_pg") else ""
    for sequence in sorted(
        {number for found in there.values() for number in found if number >= first}
    ):
        having = {rank: found[sequence] for rank, found in there.items() if sequence in found}
        for finding in _problems_of(sequence, having, sorted(set(there) - set(having)), group):
            if finding.kind not in kinds_seen:
                kinds_seen.add(finding.kind)
                yield finding
        if (
            "order" in kinds_seen or "missing" in kinds_seen
        ):  # what follows is no longer the same collective
            return


def _problems_of(
    sequence: int, having: Mapping[int, JoinedCall], missing: Sequence[int], group: str
) -> Iterator[FlightFinding]:
    one = next(iter(having.values()))
    when = min(each.created for each in having.values())
    what = f"collective {sequence}{group} ({one.op} of {one.sizes}{one.place})"
    if missing:
        text = f"{_ranks(missing)} never joined {what}; {_ranks(list(having))} waited there"
        yield FlightFinding("missing", text, when)
    ops, sizes = (
        {rank: getattr(each, name) for rank, each in having.items()} for name in ("op", "sizes")
    )
    if len({*ops.values()}) > 1:
        text = f"ranks run different collectives as number {sequence}{group}: {_ranks_by_text(ops)}"
        yield FlightFinding("order", text, when)
    elif len({*sizes.values()}) > 1 and not any(word in one.op for word in _UNEVEN):
        text = f"ranks put different sizes into {one.op} {sequence}{group}: {_ranks_by_text(sizes)}"
        yield FlightFinding("size", text, when)
    elif not missing and not any(each.is_done for each in having.values()):
        text = f"all ranks joined {what}, and none was done with it when it wrote its dump: look at the network"
        yield FlightFinding("not done", text, when)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {join_names([str(rank) for rank in ranks], 8)}"


def _ranks_by_text(texts: Mapping[int, str]) -> str:
    return ", ".join(
        f"{text} on {_ranks([rank for rank, own in texts.items() if own == text])}"
        for text in dict.fromkeys(texts.values())
    )


def _lateness(groups: Any) -> dict[int, float]:
    """Seconds that each rank comes after the first one: mean, but for the longest; needs clocks that agree."""
    delays: dict[int, list[float]] = defaultdict(list)
    for ranks in groups:
        for sequence in (
            set.intersection(*(set(found) for found in ranks.values() if found))
            if any(ranks.values())
            else ()
        ):
            created = {rank: found[sequence].created for rank, found in ranks.items() if found}
            for rank, moment in created.items():
                delays[rank].append((moment - min(created.values())) / 1e9)
    return {
        rank: fmean(sorted(found)[: max(1, len(found) - 1)])
        for rank, found in sorted(delays.items())
    }


def _speeds(
    groups: Mapping[str, Mapping[int, Mapping[int, JoinedCall]]], members: Mapping[str, set[int]]
) -> Iterator[CollectiveSpeed]:
    """Of each collective, group and size: the median time that the last rank needed, and bytes on the bus."""
    times: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for name, ranks in groups.items():
        for sequence in {number for found in ranks.values() for number in found}:
            having = [found[sequence] for found in ranks.values() if sequence in found]
            timed = [each.seconds for each in having if each.seconds is not None]
            if timed and having[0].bytes:
                times[having[0].op, len(members[name]), having[0].bytes].append(min(timed))
    for (op, count, size), found in sorted(times.items()):
        seconds = median(found)
        bus = bus_bytes(op, count, size)
        if bus is not None:
            yield CollectiveSpeed(op, count, size, seconds, bus / seconds)


# What it looks like


def sentences(found: FlightAccount) -> Iterator[str]:
    """The first thing that is wrong, and who comes late."""
    first = "all ranks ran the same collectives, and joined all of them"
    if found.findings:
        first = found.findings[0].text
    yield f"{first[:1].upper()}{first[1:]}."
    *others, (seconds, late) = sorted((time, rank) for rank, time in found.late.items()) or [
        (0.0, 0)
    ]
    if others and seconds > max(_LATE * others[-1][0], 1e-3):
        text = format_seconds(seconds)
        yield f"Rank {late} comes {text} later than the first, if their clocks agree."


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

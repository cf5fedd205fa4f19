"""A profile's stamped steps as a trace, in the Trace Event Format that Perfetto and chrome://tracing read:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.

A process per node, a thread per rank, and on it blocks, the steps in them, and what each step waited. How long a step
and its waits took was measured; where in its step a wait stands was not: the loader's comes first and the exchange
last, as a training loop has them. On a GPU steps are stamped when they are enqueued.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stash.core.printable import printable_line
from stash.core.records.profile import Block, Profile

_PLACED = (
    "a step's wait for the loader is drawn first and its wait for the exchange last; only durations are measured"
)

SUFFIX = ".trace.json"

Event = dict[str, Any]


def render(profile: Profile) -> str:
    """The trace as JSON; of a profile without blocks, one with the names of its ranks only."""
    events = [*_names(profile)]
    nodes = {rank.rank: rank.node for rank in profile.ranks}
    for block in profile.blocks:
        at = {"pid": nodes.get(block.rank, 0), "tid": block.rank}
        events += ({**event, **at} for event in _block(block))
    facts = {"workload": profile.workload.name, "created": profile.created, "stash": profile.stash_version}
    about = {name: printable_line(text) for name, text in facts.items()} | {"drawn": _PLACED}
    return json.dumps({"displayTimeUnit": "ms", "otherData": about, "traceEvents": events}, separators=(",", ":"))


def _names(profile: Profile) -> Iterator[Event]:
    for node in sorted({rank.node for rank in profile.ranks}):
        named = node < len(profile.hosts) and profile.hosts[node].hostname
        name = f"node {node} ({printable_line(named)})" if named else f"node {node}"
        yield {"ph": "M", "name": "process_name", "pid": node, "tid": 0, "args": {"name": name}}
    for rank in profile.ranks:
        name = printable_line(f"rank {rank.rank} ({rank.device})")
        yield {"ph": "M", "name": "thread_name", "pid": rank.node, "tid": rank.rank, "args": {"name": name}}


def _block(block: Block) -> Iterator[Event]:
    """The block and what is inside, in whole nanoseconds: no part ends after the whole."""
    begin = _nanoseconds(block.started)
    lengths = [_nanoseconds(seconds) for seconds in block.step_seconds]
    length = max(_nanoseconds(block.seconds + block.interrupted_seconds), sum(lengths))
    facts: Event = {"round": block.round, "launch": block.launch, "steps": block.steps}
    if block.wait_seconds is not None:
        facts["seconds waited for the loader"] = block.wait_seconds
    if block.interrupted_seconds:
        facts["seconds of no training"] = block.interrupted_seconds
    yield _slice(block.rung, "block", begin, length, facts)
    for number, step in enumerate(lengths):
        samples = {"samples": block.step_samples[number]} if number < len(block.step_samples) else {}
        yield _slice("step", "step", begin, step, samples)
        wait = _part(block.step_waits, number, step)
        exchange = _part(block.step_exchanges, number, step - wait)
        if wait:
            yield _slice("wait for the loader", "stall", begin, wait)
        if exchange:
            yield _slice("wait for the exchange", "stall", begin + step - exchange, exchange)
        begin += step


def _part(seconds: tuple[float, ...], number: int, most: int) -> int:
    """Of a step's waits the one with this number, if it was stamped; by two clocks it may be longer than its step."""
    return min(_nanoseconds(seconds[number]), most) if number < len(seconds) else 0


def _slice(name: str, kind: str, begin: int, length: int, args: Event | None = None) -> Event:
    given = {"args": args} if args else {}
    return {"ph": "X", "name": name, "cat": kind, "ts": begin / 1000, "dur": length / 1000, **given}


def _nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))

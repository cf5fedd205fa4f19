"""What ranks tell each other comes out as it went in, and nothing else comes out at all."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

from stash.measure.agent.runner import cache_check
from stash.measure.agent.runner.block_plan import BlockSize, Plan, StepPace
from stash.measure.agent.runner.discovery import FirstBatch, Introduction, Ladder
from stash.measure.agent.runner.judge import BlockReport, Outcome
from stash.measure.agent.runner.rank import LoopEnded
from stash.measure.agent.wraps.scope import Membership
from stash.measure.protocol import wire
from stash.measure.protocol.messages import BlockDone, Payload, RankSeen
from stash.measure.protocol.wire import WireError, packed, unpacked

PLAN = Plan(BlockSize(1, 2), BlockSize(1, 4), BlockSize(3, 4), 1.5, 2)
GROUP = Membership("7", (0, 3), "cpu:gloo")
BLOCK = Payload.of(BlockDone(0, "cold", 1, 2, 0.5, step_seconds=(0.25, 0.25)))
SAID: list[Any] = [
    None, True, 3, 0.1, 1e-300, "a\n\u202e\x00 \ud7ff", [], [[1, 2], []], (), (1, [0.5], [2.0]), {"a": (1,), 2: None},
    "x" * 200, ["y" * 150, "\"" * 150, " " * 150, "z\n" * 100], {"k" * 120: "é\r\t" * 60},
    {"record": "Plan", "fields": []}, LoopEnded(), PLAN, StepPace(0.1, 2), Outcome(True, "cold", plan=PLAN),
    BlockReport(BLOCK, 0.5, cache_check.CacheEvidence(batches=2, file_system="nfs"), 0.5, (BLOCK,)),
    Ladder(("solo", "crowd"), (GROUP,), None, False, 3),
    Introduction(
        RankSeen(0, 0, 0, "cpu", 1), {"cores": 2, "gpus": []}, (GROUP,), ("send",), (), FirstBatch(7, (1,)), 0.2
    ),
]  # fmt: skip


@pytest.mark.parametrize("said", SAID, ids=lambda said: type(said).__name__)
def test_what_ranks_say_comes_out_as_it_went_in(said: Any) -> None:
    heard = unpacked(packed(said))
    assert heard == said
    assert type(heard) is type(said)


STRANGE = [
    b"", b"\xff", b"[" * 4000, b"[" * 1_000_000, b"9" * 5000, b"Infinity", b"[NaN]",
    b"-Infinity", b"1e999", b"{}",
    b'{"record": "Orders", "fields": []}', b'{"record": "os.system", "fields": ["id"]}', b'{"record": 1}',
    b'{"record": ["Plan"]}', b'{"record": "BlockSize", "fields": [1]}',
    b'{"record": "BlockSize", "fields": [1, 2, 3]}',
    b'{"record": "BlockSize", "fields": {"settle": 1, "steps": 2}}', b'{"record": "BlockSize", "fields": [1, 2.5]}',
    b'{"record": "BlockSize", "fields": [true, 2]}', b'{"record": "BlockSize", "fields": ["1", 2]}',
    b'{"record": "Told", "fields": ["one line\\nand another"]}', b'{"dict": [[[], 1]]}',
    b'{"line": 0}', b'{"line": 1}\nonly one', b'{"line": "0"}\nx', b'{"dict": [1]}',
    pickle.dumps(PLAN),
]  # fmt: skip


@pytest.mark.parametrize("said", STRANGE, ids=range(len(STRANGE)))
def test_anything_else_is_refused(said: bytes) -> None:
    with pytest.raises(WireError):
        unpacked(said)


def test_what_is_too_long_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_BYTES", 10)
    with pytest.raises(WireError, match="11 bytes"):
        unpacked(b'"' + b"x" * 9 + b'"')


@dataclass(frozen=True)
class Undeclared:
    field: int = 0


@pytest.mark.parametrize("value", [Undeclared(), object(), b"bytes", float("nan"), float("inf"), {1, 2}])
def test_what_does_not_cross_is_found_where_it_is_said(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        packed(value)

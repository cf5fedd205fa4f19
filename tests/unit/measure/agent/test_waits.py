"""What steps wait for in collectives is counted once, where it happens; functional collectives are seen too."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from stash.measure.agent import script
from stash.measure.agent.runner import timed_steps
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import scope, waits
from stash.measure.agent.wraps.scope import wrap_functional
from stash.measure.agent.wraps.waits import (
    Ledger,
    remember_works,
    steps_of,
    wrap_stages,
)


class Ticks:
    """A clock that goes on by a second with every look."""

    def __init__(self):
        self._next = itertools.count()
        self.here, self.captures = True, False

    def now(self):
        return float(next(self._next))

    @staticmethod
    def seconds(mark):
        return mark


@pytest.fixture
def ledger(monkeypatch) -> Ledger:
    made = Ledger()
    for module in (waits, scope):
        monkeypatch.setattr(module, "ledger", made)
    monkeypatch.setattr(waits, "HostMarks", Ticks)
    return made


def test_a_collective_inside_another_is_part_of_its_time(ledger: Ledger):
    ledger.begin()  # 0
    inner = lambda: ledger.outer(("0", "all_gather"), 8, lambda: 5)  # noqa: E731
    assert ledger.outer(("0", "all_gather_object"), 0, inner) == 5  # 1 to 2
    ledger.outer(("1", "all_reduce"), 400, lambda: None)  # 3 to 4
    ledger.end(steps=1)
    ledger.names = {"1": "tp"}
    assert ledger.waits() == {"group/all_gather_object": 1.0, "tp/all_reduce": 1.0}
    assert ledger.totals["1", "all_reduce"].bytes == 400
    ledger.outer(("1", "all_reduce"), 400, lambda: None)
    assert ledger.totals["1", "all_reduce"].calls == 1  # between blocks nothing counts


def test_waits_for_works_belong_to_what_was_called(ledger: Ledger):
    ledger.begin()
    handed = [SimpleNamespace(op=SimpleNamespace(__name__=name)) for name in ("isend", "irecv")]
    works = [object(), object()]
    remember_works(works, ("0", "send"), handed)
    found = [ledger.waited_for(id(work)) for work in works]
    assert [each.key for each in found if each] == [("0", "send"), ("0", "recv")]
    assert ledger.waited_for(id(works[0])) is None  # only once


def test_what_was_under_way_is_told_from_what_was_waited(ledger: Ledger):
    ledger.begin()  # 0
    key = ("0", "all_reduce")
    ledger.outer(key, 4, lambda: None)  # 1 to 2: nothing of it hides
    ledger.goes_on(1, key)  # 3
    ledger.goes_on(2, key)  # 4
    waits.wait_in_flight(ledger.waited_for(1), lambda: None)  # 5 to 6: two of three seconds hide
    # 7 to 8: two of four seconds hide, as in one the other was waited for
    waits.wait_in_flight(ledger.waited_for(2), lambda: None)
    ledger.end(steps=1)
    assert ledger.waits() == {"group/all_reduce": 1.0 + 1.0 + 1.0}
    assert ledger.under_way() == {"group/all_reduce": 1.0 + 3.0 + 3.0}


def test_what_was_there_before_anybody_waited_is_unknown_where_nothing_says_when(
    ledger: Ledger, monkeypatch
):
    monkeypatch.setattr(waits, "_WAITED", 1.0)  # a second of waiting is none
    ledger.begin()  # 0
    for handle, name in enumerate(("all_gather", "all_reduce")):
        for _ in range(20 * handle):
            ledger.outer(("0", name), 4, lambda: None)  # a second each
        ledger.goes_on(handle, ("0", name))
        waits.wait_in_flight(ledger.waited_for(handle), lambda: None)  # a second later
    ledger.end(steps=1)
    assert set(ledger.waits()) == {"group/all_gather", "group/all_reduce"}
    # and at most one more: less than a tenth
    assert ledger.under_way() == {"group/all_reduce": 21.0}


def test_a_call_on_another_stream_is_under_way_there(ledger: Ledger):
    ledger.begin()
    ledger.last_block.marks.here = False
    ledger.outer(("0", "all_gather"), 4, ledger.last_block.marks.now)  # 1 to 3
    ledger.last_block.marks.here = True
    ledger.outer(("0", "all_gather"), -1, lambda: None)  # the step's stream waits for half of it
    ledger.end(steps=1)
    assert ledger.waits() == {"group/all_gather": 1.0}
    assert ledger.under_way() == {"group/all_gather": 2.0}
    assert ledger.totals["0", "all_gather"][:2] == (1, 4)


def test_groups_whose_collectives_are_all_issued_out_of_sight_are_named(
    ledger: Ledger, monkeypatch
):
    notes: list[str] = []
    rank: Any = SimpleNamespace(note=notes.append)
    monkeypatch.setattr(timed_steps, "ledger", ledger)
    monkeypatch.setattr(
        timed_steps.replicas, "list_groups", lambda: [SimpleNamespace(group_name="2")]
    )
    monkeypatch.setattr(
        timed_steps.private, "sequence_numbers", lambda: {"0": 9, "1": 9, "2": 9, "3": 9, "4": 9}
    )
    ledger.begin()
    ledger.outer(("1", "all_reduce"), 4, lambda: None)
    ledger.end(steps=1)
    timed_steps.note_blind_groups(rank, {"3": 7})
    assert not notes  # as typed, before groups have names
    ledger.names = {"3": "tp"}
    # of group 0 nothing was issued, of 1 it was seen, 2 is a reducer's, 4 is new: only 3 is out of sight
    timed_steps.note_blind_groups(rank, {"0": 9, "1": 7, "2": 7, "3": 7})
    assert [each.partition(" (")[0] for each in notes] == [
        "collectives of tp are issued where Stash does not see them"
    ]
    timed_steps.note_blind_groups(rank, {"0": 9, "1": 7, "2": 7, "3": 9})
    assert len(notes) == 1


def test_a_pass_lasts_until_the_next_and_the_rest_of_a_step_is_told_apart():
    readings: list[Any] = [
        ("cut", 10.0),
        ((0, "F", 0), 11.0),
        ("end", 12.0),
        ((0, "B", 0), 13.0),
        ("end", 15.0),
        ("cut", 19.0),
        ((0, "F", 0), 19.0),
        ("end", 20.0),
        ((0, "B", 0), 20.0),
        ("end", 22.0),
        ("cut", 22.0),
    ]
    assert steps_of(readings) == [
        [((0, "F", 0), 2.0), ((0, "B", 0), 2.0), (None, 5.0)],
        [((0, "F", 0), 1.0), ((0, "B", 0), 2.0), (None, 0.0)],
    ]


def test_what_is_waited_for_other_stages_is_no_part_of_a_pass(ledger: Ledger):
    ledger.begin()  # 0
    ledger.note_pass((0, "F", 0))  # 1
    ledger.note_pass("end")  # 2
    ledger.outer(("0", "recv"), 4, lambda: None)  # 3 to 4
    ledger.outer(("1", "all_reduce"), 4, lambda: None)  # 5 to 6
    ledger.note_pass((0, "B", 0))  # 7
    ledger.note_pass("end")  # 8
    ledger.last_block.cut()  # 9
    ledger.end(steps=1)
    assert ledger.last_block.passes == [[((0, "F", 0), 5.0), ((0, "B", 0), 1.0), (None, 2.0)]]


class StageListener(script.Listener):
    listens = True

    def __init__(self):
        self.events: list[ThreadEvent] = []

    def handle(self, event: ThreadEvent, about=None):
        self.events.append(event)


@pytest.mark.parametrize("compiled", [False, True])
def test_functional_collectives_are_seen_in_compiled_graphs_too(compiled, ledger: Ledger):
    import torch.distributed._functional_collectives as functional

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    listener = StageListener()
    script.subscribe(listener)
    try:
        if not _Registered.once:
            _Registered.once = True
            wrap_functional(functional)

        def doubled(tensor: torch.Tensor) -> torch.Tensor:
            return functional.all_reduce(tensor * 2, "sum", dist.group.WORLD) + 1

        run = torch.compile(doubled, backend="eager") if compiled else doubled
        run(torch.ones(10))
        ledger.begin()
        run(torch.ones(10))
        ledger.end(steps=1)
    finally:
        script.unsubscribe()
        dist.destroy_process_group()
    (key, use), *others = ledger.last_block.uses.items()
    assert key[1] == "all_reduce"
    assert (use.calls, use.bytes) == (1, 40)
    assert use.seconds == 2.0  # the call, and the wait for it
    assert not others
    assert ThreadEvent.COLLECTIVE_BEGINS in listener.events


def test_functional_collectives_count_only_where_everything_is_exchanged(monkeypatch):
    counted = scope.Scope()
    monkeypatch.setattr(scope, "scope", counted)
    script.subscribe(StageListener())
    for counted.name in ("self", "world", "self"):
        scope._run_functional("all_reduce", lambda: torch.ones(10), (torch.ones(10), "sum", "0"))
    script.unsubscribe()
    assert (counted.issued["all_reduce"], counted.sent["all_reduce"]) == (1, 40)


class _Registered:
    """A kernel is put in front of an operator once in a process."""

    once = False


def test_passes_of_stages_are_told_by_what_they_do(ledger: Ledger):
    class Stage:
        stage_index = 2

        def forward_one_chunk(self, chunk, args):
            return f"forward {chunk}"

        def backward_one_chunk(self, chunk, loss=None, full_backward=True): ...

        def backward_weight_one_chunk(self, chunk): ...

    wrap_stages(SimpleNamespace(_PipelineStageBase=Stage))  # type: ignore[arg-type]
    stage = Stage()
    ledger.begin()
    assert stage.forward_one_chunk(0, ()) == "forward 0"
    stage.backward_one_chunk(0)
    stage.backward_one_chunk(1, full_backward=False)
    stage.backward_weight_one_chunk(1)
    ledger.last_block.cut()
    ledger.end(steps=1)
    assert [which for which, _ in ledger.last_block.passes[0]] == [
        (2, "F", 0),
        (2, "B", 0),
        (2, "I", 1),
        (2, "W", 1),
        None,
    ]


def test_what_goes_into_a_captured_graph_is_not_counted(ledger: Ledger):
    ledger.begin()
    ledger.last_block.marks.captures = True
    assert ledger.outer(("0", "all_reduce"), 8, lambda: "result") == "result"
    ledger.end(steps=1)
    assert not ledger.last_block.uses


def test_rows_of_experts_are_counted_where_they_are_computed_and_not_where_they_return(
    ledger: Ledger,
):
    ledger.begin()
    out, back = [3, 5], [7, 2]
    for given, taken in ((out, back), (back, out)) * 2:  # forward, and backward: there, and back
        ledger.note_dispatch("1", given, taken)
    ledger.note_dispatch("1", [4, 4], [8, 8])  # of another layer
    ledger.names = {"1": "ep"}
    assert ledger.received_rows() == {"ep": 9 + 9 + 16}
    ledger.end(steps=1)
    ledger.note_dispatch("1", out, back)
    assert ledger.received_rows() == {"ep": 34}  # between blocks nothing counts
    ledger.begin()
    assert ledger.received_rows() == {}


def test_phases_count_inside_blocks_whole_or_in_part_and_within_each_other_once(ledger: Ledger):
    assert ledger.phase_begins("train")  # before the block
    ledger.begin()  # 0 is when the phase is taken up, 1 the cut
    ledger.phase_ends()  # 2
    assert ledger.phase_begins("rollout")  # 3
    assert not ledger.phase_begins("sampling")
    ledger.phase_ends()  # 4
    assert ledger.phase_begins("train")  # 5
    ledger.end(steps=1)  # 6
    assert ledger.phase_seconds() == {"train": 2.0 + 1.0, "rollout": 1.0}
    assert ledger.waits() == {}
    ledger.phase_ends()
    assert ledger.phase_seconds() == {"train": 3.0, "rollout": 1.0}
    assert {use[:2] for use in ledger.totals.values()} == {(0, 0)}

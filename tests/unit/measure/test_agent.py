"""The agent's parts without a job around them: batches, sampler taps, blocks on a fake clock, scopes, page cache."""

from __future__ import annotations

import os
import struct
import types
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from stash.measure.agent.climb.blocks import Running
from stash.measure.agent.data import batches, reading
from stash.measure.agent.wraps import collectives
from stash.measure.agent.wraps.loader import Tap
from stash.measure.launch.gathered import Tail
from stash.measure.linux import pagecache
from stash.measure.run.orders import Plan
from stash.measure.run.stream import Heart, Trace

# Batches ------------------------------------------------------------------------------------------------


def test_a_replayed_batch_has_fresh_containers_around_the_same_tensors():
    ring = batches.Ring()
    ring.offer({"x": torch.zeros(4, 2), "y": [torch.ones(4)], "id": "a"})
    ring.next(False, None)
    ring.judge()
    first, second = ring.next(False, None), ring.next(False, None)
    assert first["x"] is second["x"]
    first.pop("y")
    assert set(second) == {"x", "y", "id"}


def test_named_tuples_and_objects_survive_replay():
    pair = namedtuple("pair", "x y")
    rebuilt = batches.rebuilt(pair(torch.zeros(1), 3), lambda t: t + 1)
    assert isinstance(rebuilt, pair)
    assert rebuilt.x.item() == 1
    thing = types.SimpleNamespace(x=torch.zeros(3), name="n")
    again = batches.rebuilt(thing, lambda t: t + 1)
    assert again is not thing
    assert thing.x.sum() == 0
    assert again.x.sum() == 3


def test_a_script_that_writes_into_its_batch_is_handed_clones_from_then_on():
    ring = batches.Ring(capacity=1)
    ring.offer(torch.ones(3))
    ring.next(False, None).mul_(2)
    ring.judge()
    assert ring.written_to
    ring.next(False, None).mul_(2)
    assert ring.next(False, None).tolist() == [1, 1, 1]


def test_a_script_that_leaves_its_batches_alone_is_handed_the_same_ones():
    ring = batches.Ring(capacity=1)
    ring.offer(torch.ones(3))
    assert ring.next(False, None).sum() == 3
    ring.judge()
    assert not ring.written_to
    assert ring.next(False, None) is ring.next(False, None)


def test_the_ring_keeps_several_batches_within_its_memory():
    ring = batches.Ring(capacity=4, limit_bytes=3 * 400)
    for _ in range(9):
        ring.offer(torch.zeros(100))
    assert len(ring) == 3


@pytest.mark.parametrize(
    ("batch", "count"),
    [((torch.zeros(8, 3), torch.zeros(8)), 8), ({"a": torch.zeros(5)}, 5), ([["a", "b"], [1, 2]], 2), (7, None)],
)
def test_samples_are_counted_along_the_first_dimension(batch, count):
    assert batches.samples(batch) == count


# Taps ---------------------------------------------------------------------------------------------------


def test_a_tap_passes_a_samplers_indices_on_and_ends_with_it():
    assert list(Tap([1, 2, 3], iter([1, 2, 3]))) == [1, 2, 3]


def test_an_endless_tap_starts_its_sampler_over():
    tap = Tap([1, 2], iter([1, 2]))
    tap.endless = True
    assert [next(tap) for _ in range(5)] == [1, 2, 1, 2, 1]
    assert tap.drawn == 5


def test_a_blocks_own_indices_go_first_and_then_nothing_comes():
    tap = Tap([1, 2, 3], iter([1, 2, 3]))
    from collections import deque

    tap.queue = deque([9, 8])
    assert list(tap) == [9, 8]
    assert tap.take(4) == [1, 2, 3, 1]
    assert Tap([], iter([])).take(3) == []


def test_the_remainder_at_the_end_of_an_epoch_is_passed_over():
    sampler = [[1, 2], [3, 4], [5]]
    assert Tap(sampler, iter(sampler)).take(6) == [[1, 2], [3, 4]] * 3


# Blocks on a fake clock -----------------------------------------------------------------------------------


def test_a_blocks_steps_are_what_lies_between_its_ticks():
    block = Running(10.0)
    for now in (11.0, 13.0, 13.5):
        block.step(now)
    assert block.steps == [1.0, 2.0, 0.5]
    assert block.interrupted == 0


def test_a_validation_loop_inside_a_step_is_not_training_time():
    block = Running(0.0)
    block.step(1.0)
    block.interrupt(1.5)
    block.interrupt(1.7)  # a second loader of the same validation
    block.resume(4.5)
    block.step(5.0)
    assert block.steps == [1.0, 1.0]
    assert block.interrupted == 3.0


# Scopes -------------------------------------------------------------------------------------------------


class Group:
    """A process group of four of which this is rank 1."""

    def rank(self):
        return 1

    def size(self):
        return 4


@pytest.fixture
def c10d():
    """A stand-in for ``distributed_c10d`` whose collectives must not be reached, wrapped."""

    def unreachable(*args, **kwargs):
        raise AssertionError("the real collective was called")

    def all_reduce(tensor, op=None, group=None, async_op=False):
        unreachable()

    def all_gather(tensor_list, tensor, group=None, async_op=False):
        unreachable()

    def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
        unreachable()

    def reduce_scatter_tensor(output, input, op=None, group=None, async_op=False):
        unreachable()

    def all_gather_object(object_list, obj, group=None):
        unreachable()

    def scatter(tensor, scatter_list=None, src=0, group=None, async_op=False):
        unreachable()

    module = types.ModuleType("c10d")
    for function in (
        all_reduce,
        all_gather,
        all_gather_into_tensor,
        reduce_scatter_tensor,
        all_gather_object,
        scatter,
    ):
        setattr(
            module,
            function.__name__,
            collectives._scoped(function.__name__, function, collectives._LOCAL[function.__name__]),
        )
    collectives.set_scope("self")
    yield module
    collectives.set_scope("world")
    collectives.issued.clear()


def test_alone_a_reduction_leaves_its_tensor_and_an_asynchronous_one_is_done(c10d):
    tensor = torch.ones(2)
    assert c10d.all_reduce(tensor, group=Group()) is None
    work = c10d.all_reduce(tensor, group=Group(), async_op=True)
    assert work.wait()
    assert work.get_future().wait()[0] is tensor
    assert tensor.tolist() == [1, 1]


def test_alone_gathers_replicate_in_the_shapes_the_caller_made(c10d):
    outputs = [torch.zeros(2) for _ in range(4)]
    c10d.all_gather(outputs, torch.tensor([3.0, 4.0]), group=Group())
    assert all(output.tolist() == [3, 4] for output in outputs)
    flat = torch.zeros(8)
    c10d.all_gather_into_tensor(flat, torch.tensor([3.0, 4.0]), group=Group())
    assert flat.tolist() == [3, 4] * 4
    objects = [None] * 4
    c10d.all_gather_object(objects, "me", group=Group())
    assert objects == ["me"] * 4


def test_alone_scatters_keep_this_ranks_part(c10d):
    part = torch.zeros(2)
    c10d.reduce_scatter_tensor(part, torch.arange(8.0), group=Group())
    assert part.tolist() == [2, 3]
    c10d.scatter(part, [torch.full((2,), float(i)) for i in range(4)], group=Group())
    assert part.tolist() == [1, 1]


def test_collectives_are_counted_by_name_but_not_stashs_own(c10d):
    collectives.set_scope("world")
    for _ in range(2):
        with pytest.raises(AssertionError):  # the stand-in for the real one was reached
            c10d.all_reduce(torch.ones(1), group=Group())
    with collectives.untouched(), pytest.raises(AssertionError):
        c10d.scatter(torch.ones(1), group=Group())
    assert collectives.issued == {"all_reduce": 2}
    assert collectives.beyond_node_scope() == []


# Page cache and counters ----------------------------------------------------------------------------------


@pytest.fixture
def cached_file(tmp_path: Path) -> Path:
    """A file of 64 pages on a real disk, in the page cache and not dirty."""
    path = tmp_path / "data.bin"
    with path.open("wb") as file:
        file.write(os.urandom(64 * pagecache.PAGE))
        file.flush()
        os.fsync(file.fileno())
    path.read_bytes()
    return path


def test_eviction_empties_the_page_cache_and_the_count_proves_it(cached_file: Path):
    descriptor, size = os.open(cached_file, os.O_RDONLY), cached_file.stat().st_size
    try:
        assert reading.examine(descriptor, size, cold=False) == (64, 64)
        if reading.examine(descriptor, size, cold=True)[1] == 64:
            pytest.skip("the temporary folder is a RAM disk")
        assert reading.examine(descriptor, size, cold=True) == (64, 0)
        os.pread(descriptor, pagecache.PAGE, 0)
        assert reading.examine(descriptor, size, cold=False)[1] > 0
    finally:
        os.close(descriptor)


def test_mincore_and_cachestat_agree(cached_file: Path):
    descriptor, size = os.open(cached_file, os.O_RDONLY), cached_file.stat().st_size
    try:
        assert pagecache._mincore(descriptor, size) == pagecache.resident_pages(descriptor, size)
    finally:
        os.close(descriptor)


def test_a_dirty_file_is_written_before_it_is_dropped(tmp_path: Path):
    path = tmp_path / "fresh.bin"
    path.write_bytes(os.urandom(16 * pagecache.PAGE))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pages, resident = reading.examine(descriptor, 16 * pagecache.PAGE, cold=True)
    finally:
        os.close(descriptor)
    if resident == pages:
        pytest.skip("the temporary folder is a RAM disk")
    assert resident == 0


def test_a_board_sums_the_workers_counters_and_a_new_mode_zeroes_them(tmp_path: Path):
    board, same = (reading.Board(str(tmp_path / "board")) for _ in range(2))
    board.set_mode(reading.COLD)
    same.add(1, files=2, bytes=10)
    same.add(2, files=1, bytes=5)
    assert (board.totals()["files"], board.totals()["bytes"]) == (3, 15)
    assert same.mode() == (reading.COLD, 1)
    board.set_mode(reading.WARM)
    assert same.totals()["files"] == 0
    assert same.mode() == (reading.WARM, 2)


# What leaves the process ------------------------------------------------------------------------------------


def plan(folder: Path) -> Plan:
    return Plan(folder=str(folder), launcher_pid=os.getpid(), rungs=("solo",), budget=1.0)


def test_a_trace_is_followed_line_by_line_and_half_a_line_waits(tmp_path: Path):
    orders = plan(tmp_path)
    trace, tail = Trace(orders), Tail(orders.trace)
    assert tail.rows() == []
    trace.write("round", number=0)
    with orders.trace.open("a") as file:
        file.write('{"kind": "rou')
    assert tail.rows() == [{"kind": "round", "number": 0}]
    with orders.trace.open("a") as file:
        file.write('nd", "number": 1}\n')
    assert tail.rows() == [{"kind": "round", "number": 1}]


def test_a_heart_beats_into_one_small_file(tmp_path: Path):
    heart = Heart(plan(tmp_path))
    heart.beat(3, 7)
    heart.beat(3, 8)
    (file,) = tmp_path.glob("beat.3.*")
    pid, steps, _ = struct.unpack(Heart.FORMAT, file.read_bytes())
    assert (pid, steps) == (os.getpid(), 8)


def test_a_plan_survives_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from stash.measure.run import orders as plans

    orders = Plan(str(tmp_path), 1, ("solo", "warm"), 9.0, gang=(1, 2), host={"hostname": "h"})
    orders.write(tmp_path / "plan.json")
    monkeypatch.setenv(plans.VARIABLE, str(tmp_path / "plan.json"))
    plans.current.cache_clear()
    assert plans.current() == orders
    monkeypatch.delenv(plans.VARIABLE)
    plans.current.cache_clear()
    assert plans.current() is None

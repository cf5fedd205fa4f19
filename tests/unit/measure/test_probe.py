"""Measuring links without a launch: repetitions on fake clocks, real files, real sockets, what cannot be measured."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from stash.base.errors import one_line
from stash.base.records import Copy, DiskRead, Host, Stream, Timing, Unmeasured
from stash.measure.launch.probe import probe
from stash.measure.launch.request import Cluster
from stash.measure.linux import pagecache
from stash.measure.probe import copies, exchanges, fio, pieces, preparation, reader, reads, streams
from stash.measure.probe.board import Board, links
from stash.measure.probe.orders import PARTS, ProbeOrders, read_orders, shares
from stash.measure.probe.repeat import equal_parts, repeat
from stash.measure.probe.team import AbsentError, Team


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def act(self, seconds: float) -> float:
        self.now += seconds
        return seconds


# Repetitions ----------------------------------------------------------------------------------------------


def test_the_first_repetition_warms_up_and_the_others_fill_the_share():
    clock = Clock()
    costs = iter([9.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
    assert repeat(lambda: clock.act(next(costs)), 14, least=3, clock=clock) == (1.0, 2.0, 1.0, 2.0)


def test_a_slow_repetition_is_still_made_the_least_number_of_times_and_a_fast_one_not_for_ever():
    clock = Clock()
    assert repeat(lambda: clock.act(100.0), 1, least=3, clock=clock) == (100.0,) * 3
    assert len(repeat(lambda: clock.act(1e-9), 1, most=50, clock=clock)) == 50


def test_a_transfer_is_cut_into_parts_of_equal_bytes():
    marks = [(10.0, 100), (11.0, 110), (13.0, 120)]
    assert equal_parts(marks, 2) == Timing(bytes=10, seconds=(1.0, 2.0))
    assert equal_parts(marks, 4) == Timing(bytes=5, seconds=(0.5, 0.5, 1.0, 1.0))


@pytest.mark.parametrize("marks", [[], [(0.0, 5)], [(0.0, 5), (1.0, 5)], [(0.0, 0), (1.0, 1)]])
def test_a_transfer_of_nothing_has_no_repetitions(marks: list[tuple[float, int]]):
    assert equal_parts(marks, 2) is None


def test_shares_add_up_to_the_budget_in_the_order_of_the_parts():
    found = shares(["exchanges", "copies"], 8.0)
    assert list(found) == ["copies", "exchanges"]
    assert found == {"copies": 2.0, "exchanges": 6.0}
    assert sum(shares(PARTS, 45.0).values()) == pytest.approx(45.0)


def test_orders_survive_their_file(tmp_path: Path):
    orders = ProbeOrders(str(tmp_path), "scratch", 9.0, ("copies",), data="d", kind="images")
    orders.write(tmp_path / "orders.json")
    assert read_orders(tmp_path / "orders.json") == orders


# Copies ---------------------------------------------------------------------------------------------------


def _cache(root: Path, cpu: int, level: int, sharers: str, size: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/cache/index{level}"
    folder.mkdir(parents=True)
    for name, text in (("level", str(level)), ("shared_cpu_list", sharers), ("size", size)):
        (folder / name).write_text(text + "\n")


def test_the_last_cache_level_is_counted_once_for_all_that_share_it(tmp_path: Path):
    for cpu, sharers in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        _cache(tmp_path, cpu, 2, str(cpu), "512K")
        _cache(tmp_path, cpu, 3, sharers, "32M")
    assert copies.cache_bytes(tmp_path) == 64 << 20


def test_a_copy_through_memory_counts_what_is_read_and_what_is_written():
    found = copies.host_memory(0.01, threads=1, free_bytes=8 << 20, cache=1 << 20)
    assert isinstance(found, Copy)
    assert found.timings[0].bytes == 2 * (1 << 20)
    assert len(found.timings[0].seconds) >= 3
    assert torch.get_num_threads() > 0


def test_without_a_device_the_copies_to_it_are_unmeasured():
    found = copies.measure(0.01, 1, 8 << 20, devices=0)
    assert [type(one) for one in found] == [Copy, Unmeasured]


# Exchanges ------------------------------------------------------------------------------------------------


class Quiet(exchanges.Group):
    """A group of one that takes 100 µs and a second for every 100 MB, on its own clock."""

    def slowest(self, values: list[float]) -> list[float]:
        return values

    def timed(self, tensor: torch.Tensor, calls: int) -> float:
        cost = 1e-4 + 4 * tensor.numel() / 100e6
        assert isinstance(self.clock, Clock)
        self.clock.act(cost * calls)
        return cost


def _curve(seconds: float) -> tuple[tuple[Timing, ...], float]:
    clock = Clock()
    return exchanges.curve(Quiet(None, None, 2, torch.device("cpu"), clock), seconds), clock.now


def test_messages_grow_until_the_next_would_not_fit_into_the_share():
    long, spent = _curve(60.0)
    assert [timing.bytes for timing in long] == list(exchanges.SIZES)
    assert spent < 60.0
    short, spent = _curve(2.0)
    assert [timing.bytes for timing in short] == list(exchanges.SIZES[: len(short)])
    assert 1 << 20 <= short[-1].bytes < exchanges.SIZES[-1]
    assert spent < 2.0
    assert all(len(timing.seconds) >= 5 for timing in short)
    assert short[0].seconds[0] == pytest.approx(1e-4 + 1024 / 100e6)


# Streams --------------------------------------------------------------------------------------------------


def test_every_node_meets_node_0_both_ways_and_a_slow_node_0_would_show():
    wanted, left = streams.directions(3, 100.0)
    ends = [(one.source, one.target) for one in wanted if one.flows == 1]
    assert ends == [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]
    assert left == []
    wanted, left = streams.directions(3, 1.0)
    assert len(wanted) == 2
    assert left[0].link == "streams from node 1 to node 0, 1 at once"
    assert len(left) == 10


@pytest.mark.parametrize("flows", [1, 8])
def test_a_stream_over_loopback_is_timed_where_it_arrives(flows: int):
    sender: list[threading.Thread] = []

    def connect(place: tuple[str, int]) -> None:
        sender.append(threading.Thread(target=streams.send, args=(place, flows, 0.4)))
        sender[0].start()

    marks = streams.receive("127.0.0.1", flows, 0.4, connect)
    sender[0].join(5)
    assert not sender[0].is_alive()
    assert marks[0][1] > 0  # the first part was left out
    timing = equal_parts(marks, 8)
    assert timing is not None
    assert 0.05 < sum(timing.seconds) < 0.4


def test_a_peer_that_never_connects_ends_a_stream_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "_PATIENCE", 0.2)
    began = time.monotonic()
    with pytest.raises(OSError, match="timed out"):
        streams.receive("127.0.0.1", 1, 0.4, lambda place: None)
    assert time.monotonic() - began < 2


# Reads ----------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder on a real disk; skips where pages cannot be dropped."""
    path = tmp_path / "try"
    path.write_bytes(os.urandom(1 << 20))
    piece = pieces.Piece(path, 0, 1 << 20)
    pieces.evict([piece])
    if pieces.resident([piece]) != 0.0:
        pytest.skip("this file system keeps its pages in memory")
    path.unlink()
    return tmp_path


def test_pieces_read_ahead_of_time_count_as_whole_ones():
    # Half of each piece comes at once, because it was read ahead; what is left of the fifth was not read to its end.
    steps = [(n + part, 8000 * n + size) for n in range(4) for part, size in ((0.1, 4000), (1.0, 8000))]
    marks = [(0.0, 0), *steps, (4.1, 36_000)]
    found = reads._by_pieces(marks, 8000)
    assert found is not None
    assert found.bytes == 8000
    assert found.seconds == pytest.approx((1.0, 1.0, 1.0, 1.0))
    few = reads._by_pieces(marks, 16_000)
    assert few is not None
    assert few.bytes * len(few.seconds) <= 32_000
    assert sum(few.seconds) == pytest.approx(4.0, rel=0.01)
    assert reads._by_pieces(marks, 64_000) is not None  # not even one was read to its end


def test_files_that_are_not_in_the_page_cache_come_first(disk: Path):
    for number in range(20):
        (disk / f"{number:02d}").write_bytes(os.urandom(4 * pagecache.PAGE))
    unread = {f"{number:02d}" for number in range(0, 20, 2)}
    pieces.evict([pieces.Piece(disk / name, 0, 1) for name in unread])
    large, small = pieces.of_data(disk)
    assert large is None
    assert small is not None
    assert {piece.path.name for piece in small.pieces[:10]} == unread
    assert small.file_bytes == 4 * pagecache.PAGE
    first, second = small.halves()
    assert not set(first) & set(second)
    assert len(first) + len(second) == 20


def test_a_large_file_is_cut_into_pieces_from_front_to_back(tmp_path: Path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(5 * pieces.PIECE_BYTES // 2)
    large, small = pieces.of_data(tmp_path)
    assert small is None
    assert large is not None
    assert [piece.offset for piece in large.pieces] == [0, pieces.PIECE_BYTES]


def test_what_is_written_stays_within_a_tenth_of_the_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(pieces.shutil, "disk_usage", lambda path: usage)
    chosen = pieces.written(tmp_path / "scratch", 30_000, 100, 5.0)
    assert chosen is not None
    assert len(chosen.pieces) == 3
    assert pieces.written(tmp_path / "scratch", 30_000, 100, 5.0) is None


@pytest.mark.parametrize("readers", [1, 4])
def test_all_bytes_of_all_pieces_are_read_and_marked(tmp_path: Path, readers: int):
    chosen = pieces.written(tmp_path / "scratch", 1_500_000, 6, 10.0)
    assert chosen is not None
    marks, done = reader.read(chosen.pieces, 10.0, readers)
    assert done == len(chosen.pieces)
    assert marks[-1][1] == done * 1_500_000
    assert [mark[1] for mark in marks] == sorted(mark[1] for mark in marks)


def test_the_disk_is_read_cold_and_warm_and_says_what_the_page_cache_held(disk: Path, monkeypatch):
    monkeypatch.setattr(fio, "present", lambda: False)
    found = reads.measure(reads.Folders(None, disk / "scratch", 100_000), 4.0)
    records = [one for one in found if isinstance(one, DiskRead)]
    cold = [one for one in records if one.cold]
    warm = [one for one in records if not one.cold]
    assert {one.pattern for one in cold} == {one.pattern for one in warm} == {"sequential", "random"}
    assert all(one.resident is not None and one.resident <= reads.COLD_ENOUGH for one in cold)
    assert all(one.resident is not None and one.resident > 0.9 for one in warm)
    assert {one.readers for one in cold} == {1, reads.MANY}
    assert {one.reader for one in records} == {"stash"}


def test_a_file_system_in_memory_is_never_read_cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("there is no /dev/shm here")
    monkeypatch.setattr(fio, "present", lambda: False)
    scratch = memory / f"stash-test-{os.getpid()}"
    try:
        found = reads.measure(reads.Folders(None, scratch, 50_000), 1.0)
    finally:
        pieces.shutil.rmtree(scratch, ignore_errors=True)
    whys = {one.link: one.why for one in found if isinstance(one, Unmeasured)}
    assert "as on a file system kept in memory" in whys["reads random cold"]
    assert not [one for one in found if isinstance(one, DiskRead) and one.cold and not one.direct]


def test_where_nothing_can_be_written_the_reads_are_unmeasured_in_one_sentence():
    found = reads.measure(reads.Folders(None, Path("/proc/stash-none"), 50_000), 1.0)
    assert [one.link for one in found if isinstance(one, Unmeasured)] == ["reads sequential", "reads random"]
    assert all("no file can be written in /proc" in one.why for one in found if isinstance(one, Unmeasured))


def test_data_on_another_disk_is_not_replaced_by_files_elsewhere(tmp_path: Path):
    if not os.access("/dev/shm", os.W_OK) or Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    found = reads.measure(reads.Folders(tmp_path, Path("/dev/shm/none"), 50_000), 1.0)
    assert all(isinstance(one, Unmeasured) and "run it from the data's disk" in one.why for one in found)
    assert not Path("/dev/shm/none").exists()


# fio ------------------------------------------------------------------------------------------------------


def test_fio_s_log_becomes_marks_of_the_reads_alone():
    log = "11, 8000000, 0, 1048576, 0\n12, 500000, 0, 1048576, 0\n"
    assert fio.marks_of(log) == [(0.0, 0), (pytest.approx(0.008), 1 << 20), (pytest.approx(0.0085), 2 << 20)]


@pytest.mark.parametrize("log", ["", "no log", "1, 2"])
def test_what_fio_does_not_log_is_unknown(log: str):
    assert fio.marks_of(log) is None


def test_fio_reads_one_stretch_or_the_fronts_of_several_files():
    a, b = Path("/a"), Path("/b")
    stretch = fio.command([pieces.Piece(a, 8, 8), pieces.Piece(a, 16, 8)], 3, False, Path("logs"))
    assert stretch is not None
    assert {"--offset=8", "--size=16", "--nrfiles=1"} <= set(stretch)
    fronts = fio.command([pieces.Piece(a, 0, 8), pieces.Piece(b, 0, 8)], 3, True, Path("logs"))
    assert fronts is not None
    assert {"--filename=/a:/b", "--size=16", "--direct=1"} <= set(fronts)
    assert fio.command([pieces.Piece(a, 0, 8), pieces.Piece(b, 8, 8)], 3, True, Path("logs")) is None


@pytest.mark.skipif(not fio.present(), reason="fio is not installed")
def test_fio_reads_every_byte_once_and_leaves_no_log(tmp_path: Path):
    chosen = pieces.written(tmp_path / "scratch", 2 << 20, 2, 10.0)
    assert chosen is not None
    marks = fio.read(chosen.pieces, 20.0, False, tmp_path / "logs")
    assert marks is not None
    assert marks[-1][1] == 4 << 20
    assert 0 < marks[-1][0] < 10
    assert list((tmp_path / "logs").iterdir()) == []


# Preparation ----------------------------------------------------------------------------------------------


def test_processes_double_up_to_the_cores():
    assert [preparation.process_counts(cores) for cores in (1, 2, 6, 8)] == [(1,), (1, 2), (1, 2, 4, 6), (1, 2, 4, 8)]
    assert preparation.process_counts(200)[-1] == 64


def test_without_a_kind_and_without_samples_preparation_is_unmeasured(tmp_path: Path):
    unnamed = preparation.measure(None, None, tmp_path, 1, 1.0)
    assert next(one.why for one in unnamed if isinstance(one, Unmeasured)).startswith("no kind of data set")
    (tmp_path / "empty").mkdir()
    empty = preparation.measure("clicks", tmp_path / "empty", tmp_path, 1, 1.0)
    assert "holds no clicks" in next(one.why for one in empty if isinstance(one, Unmeasured))


# The team and its board -----------------------------------------------------------------------------------


def test_somebody_who_does_not_come_is_waited_for_only_once():
    store = HashStore()
    store.set_timeout(timedelta(seconds=1))
    team = Team(store, 0, 2, {"LOCAL_RANK": "0"})
    began = time.monotonic()
    with pytest.raises(AbsentError, match="stopped answering"):
        team.meet("begin", 0.2)
    with pytest.raises(AbsentError):
        team.meet("next", 60.0)
    assert time.monotonic() - began < 5


def test_two_who_come_both_go_on():
    store = HashStore()
    teams = [Team(store, rank, 2, {}) for rank in range(2)]
    threads = [threading.Thread(target=team.meet, args=("begin", 5.0), daemon=True) for team in teams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    assert all(team.lost is None for team in teams)


def test_an_error_of_a_library_is_one_line_without_its_source():
    error = RuntimeError("[/src/gloo/pair.cc:598] Connection closed by peer [10.0.0.2]:1234\nmore\n")
    assert one_line(error) == "Connection closed by peer [10.0.0.2]:1234"
    assert one_line(ValueError()) == "ValueError"


def test_streams_are_kept_where_they_come_from_and_what_is_left_is_unmeasured(tmp_path: Path):
    orders = ProbeOrders(str(tmp_path), "", 9.0, ("streams", "exchanges"))
    board = Board(orders, [Host(hostname="a"), Host(hostname="b")])
    stream = Stream(source=0, target=1, flows=1, timings=(Timing(bytes=1, seconds=(1.0,)),))
    board.take("streams", [(links([], 1.0), 0.1), (links([stream], 1.0), None)], 2.0)
    board.save()
    first, second = (host.links for host in board.probe().hosts)
    assert first is not None
    assert second is not None
    assert (first.streams, second.streams) == ((stream,), ())
    assert [one.link for one in first.skipped] == ["exchanges"]
    assert board.probe().hosts[0].steal_fraction == 0.1
    assert orders.result.exists()


def test_a_budget_of_nothing_is_the_users_mistake():
    with pytest.raises(Exception, match="--budget 45"):
        probe(Cluster(1), budget=0, data=None, kind=None, instance=None)

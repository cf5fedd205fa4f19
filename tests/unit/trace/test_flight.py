"""Flight recorders' dumps: recorded from two gloo ranks with planted faults, and written by hand."""

import json
from pathlib import Path

import pytest

from stash.trace.flight import account_dumps, rank_of, read_dump

RECORDED = Path("tests/recorded/flight")


def recorded(name):
    dumps = {path: read_dump(path) for path in sorted((RECORDED / name).iterdir())}
    return account_dumps({rank_of(path, dump): dump for path, dump in dumps.items()})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "skip",
            "rank 1 never joined collective 9 (all_reduce of [[500]] [Float]); rank 0 waited there",
        ),
        (
            "skip-json",
            "rank 1 never joined collective 9 (all_reduce of [[500]] [Float]); rank 0 waited there",
        ),
        (
            "size",
            "ranks put different sizes into all_reduce 9: [[1000]] [Float] on rank 0, [[2000]] [Float] on rank 1",
        ),
        (
            "order",
            "ranks run different collectives as number 9: all_reduce on rank 0, broadcast on rank 1",
        ),
    ],
)
def test_a_planted_fault_is_the_first_finding(name, sentence):
    assert [finding.text for finding in recorded(name).findings] == [sentence]


def test_a_rank_that_comes_late_is_seen(run_stash):
    found = recorded("slow")
    assert found.findings == ()
    assert found.late[1] > 0.01 > found.late[0]
    assert "Rank 1 comes" in run_stash("trace", str(RECORDED / "slow"), "--flight-recorder").out


def entry(number, **about):
    return {
        "collective_seq_id": number,
        "profiling_name": "nccl:all_reduce",
        "process_group": ["0", "default_pg"],
        "input_sizes": [[1 << 20]],
        "input_dtypes": ["Float"],
        "state": "completed",
        "time_created_ns": 10**9 * number,
        **about,
    }


def test_what_all_joined_and_none_ended_is_the_networks():
    frames = [
        {"filename": "/x/torch/nn/a.py", "line": 3},
        {"filename": "/home/me/train.py", "line": 88},
    ]
    dumps = {
        rank: {"entries": [entry(1), entry(2, state="started", frames=frames)]} for rank in range(4)
    }
    (finding,) = account_dumps(dumps).findings
    assert finding.kind == "not done"
    assert "train.py:88" in finding.text
    assert "look at the network" in finding.text


def test_a_ring_that_has_forgotten_its_first_entries_misses_none():
    dumps = {0: {"entries": [entry(5), entry(6)]}, 1: {"entries": [entry(6)]}}
    assert account_dumps(dumps).findings == ()


def test_speed_is_that_of_the_last_to_arrive_on_the_bus():
    dumps = {rank: {"entries": [entry(1, duration_ms=10.0 - rank)]} for rank in range(4)}
    assert account_dumps(dumps).speeds == (
        ("all_reduce", 4, 4 << 20, 0.007, (4 << 20) * 1.5 / 0.007),
    )


def test_dumps_are_told_as_json(run_stash):
    document = json.loads(
        run_stash("trace", str(RECORDED / "skip"), "--flight-recorder", "--json").out
    )
    assert [finding["kind"] for finding in document["findings"]] == ["missing"]


def test_options_of_traces_are_none_of_dumps(run_stash):
    run_stash("trace", str(RECORDED / "skip"), "--flight-recorder", "--whole", code=2)

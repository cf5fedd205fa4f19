"""What `stash fix` says while it works: what it tries, in words, and the time that is left."""

from __future__ import annotations

import pytest
from searches import Job, change, searched

from stash.fix.command import _say_with_time
from stash.fix.script_changes import ScriptChange


def test_each_line_says_what_is_tried_and_the_time_left(capsys: pytest.CaptureFixture[str]):
    # GIVEN a search by a clock of its own, in which a launch takes 8 s
    job = Job(lambda names: 0.1 - 0.02 * ("workers=4" in names))
    until = job.clock() + 300.0
    workers = ScriptChange("workers=4", "workers", "num_workers 0 -> 4")
    # WHEN it runs
    searched(
        job,
        workers,
        change("idle"),
        within=300.0,
        say=lambda text: _say_with_time(text, until, 300.0, job.clock),
    )
    # THEN its lines are words, each with the time that is left then
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "  trying 4 loader workers (4 min 52 s left of 5 min)",
        "  trying idle (4 min 44 s left of 5 min)",
        "  trying the script as typed, round 2 (4 min 36 s left of 5 min)",
    ]
    assert any(line.startswith("  comparing 4 loader workers, round 2 (") for line in lines)
    assert all(line.endswith(" left of 5 min)") for line in lines)
    assert not any("->" in line or "workers=" in line or "screening" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num_workers 0 -> 1", "1 loader worker"),
        ("num_workers 0 -> 4, threads of a rank 2 -> 1", "4 loader workers, threads of a rank 1"),
        ("bucket_cap_mb 25 -> 100", "bucket_cap_mb 100"),
        ("pin_memory False -> True, copies non_blocking", "pin_memory True, copies non_blocking"),
        ("torch.compile", "torch.compile"),
    ],
)
def test_a_change_is_named_by_what_it_sets(text: str, words: str):
    assert ScriptChange("name", "knob", text).new_value == words


def test_time_that_is_over_is_none(capsys: pytest.CaptureFixture[str]):
    _say_with_time("trying pin_memory True", 10.0, 60.0, lambda: 11.0)
    assert capsys.readouterr().err == "  trying pin_memory True (0 s left of 1 min)\n"

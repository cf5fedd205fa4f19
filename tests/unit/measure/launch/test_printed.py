"""The parts of a log: its end, the job's own words, its launcher's, tracebacks."""

from __future__ import annotations

from pathlib import Path

from stash.measure.launch.printed import (
    MOST_BYTES,
    closed,
    errors,
    last_traceback,
    launchers_words,
    own_output,
    tail,
)

CRASH = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: no\n'
LAUNCHER = """E1120 10:00:00.000000 77 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1)
Traceback (most recent call last):
  File "/usr/lib/python3/torch/distributed/run.py", line 905, in <module>
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def test_of_a_log_its_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    assert tail(log) == ""
    log.write_bytes(b"\xe9" * MOST_BYTES + b"the end")
    assert tail(log).endswith("the end")
    assert len(tail(log)) == MOST_BYTES


def test_the_jobs_own_last_lines_are_told_from_its_launchers() -> None:
    log = "usage: train.py\n\ntrain.py: error: no\n" + LAUNCHER
    assert own_output(log) == "usage: train.py\ntrain.py: error: no"
    assert launchers_words(log) == LAUNCHER
    assert launchers_words("only the job") == ""


def test_a_traceback_is_found_before_the_launchers_and_behind_a_ranks_prefix() -> None:
    prefixed = "".join(f"[rank0]: {line}" for line in CRASH.splitlines(keepends=True))
    assert last_traceback("words\n" + CRASH + LAUNCHER) == CRASH
    assert last_traceback(prefixed + LAUNCHER) == CRASH
    assert last_traceback(CRASH.replace("no", "earlier") + "caught\n" + CRASH) == CRASH
    assert last_traceback(LAUNCHER) == ""


def test_errors_are_what_a_traceback_says_without_the_source() -> None:
    assert errors(CRASH) == ["ValueError: no"]


def test_the_ranks_that_torchrun_ended_itself_are_known() -> None:
    assert closed("W1120 api.py:897] Sending process 71 closing signal SIGTERM\n") == {71}

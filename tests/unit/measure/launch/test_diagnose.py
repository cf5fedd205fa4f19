"""One sentence for every way a job can fail, from what its ranks and torchrun leave behind."""

from __future__ import annotations

import pytest

from stash.measure.launch.diagnose import Evidence, diagnose, own_output


def torchruns_report(root, other):
    """What torchrun prints of two failed ranks, each given as (rank, exit code)."""
    return f"""
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
Failures:
[1]:
  rank      : {other[0]} (local_rank: {other[0]})
  exitcode  : {other[1]} (pid: 4)
Root Cause (first observed failure):
[0]:
  rank      : {root[0]} (local_rank: {root[0]})
  exitcode  : {root[1]} (pid: 5)
"""


TORCHRUN = """
E1120 10:00:00.000000 77 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -9) local_rank: 1
Traceback (most recent call last):
  File "/usr/lib/python3/torch/distributed/run.py", line 905, in <module>
    main()""" + torchruns_report(root=(1, -9), other=(0, -15))
CRASH = (
    'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: no such layer\n'
)


def said(output="", crashes=(), code=1, steps=None, batch=None, silent=(), left=None):
    return diagnose(Evidence(code, crashes, output, steps or {}, "train.py", batch, silent, left))


def test_a_ranks_own_traceback_is_shown_and_its_last_line_is_the_sentence():
    found = said(TORCHRUN, crashes=[CRASH], steps={0: 0, 1: 0})
    assert found.own_words == CRASH
    assert found.sentence == "train.py failed before its first training step: ValueError: no such layer"


def test_a_traceback_only_in_the_output_is_found_before_the_launchers():
    found = said(CRASH + TORCHRUN, steps={0: 12})
    assert "ValueError: no such layer" in found.sentence
    assert "after 12 training steps" in found.sentence


def test_a_killed_rank_is_named_as_the_root_cause_and_not_the_ranks_that_were_ended_after_it():
    assert said(TORCHRUN, steps={0: 9, 1: 9}).sentence.startswith("rank 1 of train.py was ended by SIGKILL")


SURVIVOR = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    loss.backward()\n'
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242\n"
)
SURVIVOR_FIRST = torchruns_report(root=(0, 1), other=(1, -9))


def test_a_killed_rank_outranks_the_survivor_who_noticed_even_if_that_one_was_heard_first():
    found = said(SURVIVOR + SURVIVOR_FIRST, crashes=[SURVIVOR], steps={0: 9, 1: 8})
    assert found.sentence.startswith("rank 1 of train.py was ended by SIGKILL")
    assert found.own_words == ""


SPAWN = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    mp.spawn(train)\n'
KILLED_IN_SPAWN = SPAWN + (
    "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\n"
)
PASSED_ON = SPAWN + (
    "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 0 terminated with the following error:\n"
    + SURVIVOR
)


def test_a_rank_of_mp_spawn_that_was_killed_is_named():
    assert said(crashes=[KILLED_IN_SPAWN], steps={0: 9}).sentence == (
        "rank 1 of train.py was ended by SIGKILL (killed, or out of memory) after 9 training steps"
    )


def test_so_it_is_where_the_parent_heard_of_the_survivor_first():
    found = said(crashes=[PASSED_ON], steps={0: 9, 1: 9}, silent=[0, 1])
    assert found.sentence.startswith("rank 1 of train.py ended without a word after 9 training steps, most likely by")


def test_without_any_launchers_report_the_rank_that_said_nothing_is_named():
    assert said(crashes=[SURVIVOR], silent=[1]).sentence.startswith("rank 1 of train.py ended without a word")
    several = said(crashes=[SURVIVOR], silent=[1, 3]).sentence
    assert several.startswith("one of the ranks 1 and 3 of train.py ended without a word")


def test_ranks_that_said_nothing_are_not_blamed_for_anothers_exception():
    assert "ValueError: no such layer" in said(crashes=[CRASH], silent=[1]).sentence
    assert "ValueError: no such layer" in said(crashes=[SURVIVOR, CRASH], silent=[2]).sentence


def test_a_node_that_was_ended_in_order_is_named_by_those_that_lost_their_connection_to_it():
    found = said(crashes=[SURVIVOR], steps={0: 9}, left=(1, "10.0.0.2"))
    assert found.sentence == (
        "train.py was ended on node 1 (10.0.0.2) after 9 training steps: what is printed there says why"
    )
    assert found.own_words == ""
    assert "ValueError: no such layer" in said(crashes=[CRASH], left=(1, "10.0.0.2")).sentence


def test_a_shells_word_for_a_signal_is_translated():
    assert (
        "exit code 137 (what a shell says of SIGKILL (killed, or out of memory))" in said("Killed", code=137).sentence
    )
    assert "exit code 3 before" in said("no", code=3).sentence


def test_an_exception_that_is_not_about_a_lost_peer_is_the_cause_whatever_became_of_the_others():
    assert "ValueError: no such layer" in said(SURVIVOR_FIRST, crashes=[CRASH], steps={0: 9}).sentence


def test_a_lost_connection_is_the_cause_where_no_rank_was_killed():
    ended_by_torchrun = SURVIVOR_FIRST.replace("-9", "-15")
    assert "Connection closed by peer" in said(ended_by_torchrun, crashes=[SURVIVOR], steps={0: 9}).sentence


def test_a_script_that_exits_is_not_taken_for_the_rank_that_torchrun_ended_because_of_it():
    exits = TORCHRUN.replace("exitcode  : -9", "exitcode  : 3")
    found = said("no more data\n" + exits, steps={0: 4})
    assert found.sentence == "train.py ended with exit code 3 after 4 training steps"
    assert found.own_words == "no more data"


def test_each_rank_of_a_report_keeps_its_own_exit_code():
    assert said(SURVIVOR_FIRST.replace("-9", "3"), steps={0: 1}).sentence.startswith(
        "train.py ended with exit code 1"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "try --batch 32"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "ran out of memory"),
        ("DistNetworkError: The server socket has failed to listen: EADDRINUSE", "already in use"),
        ("RendezvousTimeoutError", "did not find each other"),
        ("PIL.UnidentifiedImageError: cannot identify image file '/data/a.jpg'", "/data/a.jpg"),
    ],
)
def test_common_failures_come_with_what_to_do(words, sentence):
    assert sentence in said(crashes=[f"Traceback (most recent call last):\n  x\n{words}\n"], batch=64).sentence


def test_a_users_mistake_told_by_a_workload_is_passed_on_as_one():
    found = said("error: /data holds 3 samples, too few\n" + TORCHRUN)
    assert found.users_mistake
    assert found.sentence == "/data holds 3 samples, too few"


def test_of_the_output_only_the_jobs_own_last_lines_are_shown():
    assert own_output("usage: train.py\ntrain.py: error: no\n" + TORCHRUN) == "usage: train.py\ntrain.py: error: no"

"""One sentence for every way a job can fail, from what its ranks and torchrun leave behind."""

import pytest

from stash.measure.launcher.diagnose import Evidence, diagnose


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
CRASH = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: no such layer\n'


def diagnosis_of(output="", crashes=(), code=1, steps=None, silent=(), left=None):
    return diagnose(Evidence(code, crashes, output, steps or {}, "train.py", silent, left))


SURVIVOR = (
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    loss.backward()\n'
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242\n"
)
SURVIVOR_FIRST = torchruns_report(root=(0, 1), other=(1, -9))


def test_a_killed_rank_outranks_the_survivor_who_noticed_even_if_that_one_reported_first():
    found = diagnosis_of(SURVIVOR + SURVIVOR_FIRST, crashes=[SURVIVOR], steps={0: 9, 1: 8})
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
    assert diagnosis_of(crashes=[KILLED_IN_SPAWN], steps={0: 9}).sentence == (
        "rank 1 of train.py was ended by SIGKILL (killed, or out of memory) after 9 training steps"
    )


def test_so_it_is_where_the_parent_learned_of_the_survivor_first():
    found = diagnosis_of(crashes=[PASSED_ON], steps={0: 9, 1: 9}, silent=[0, 1])
    assert found.sentence.startswith(
        "rank 1 of train.py ended without a word after 9 training steps, most likely by"
    )


def test_without_any_launchers_report_the_rank_that_said_nothing_is_named():
    assert diagnosis_of(crashes=[SURVIVOR], silent=[1]).sentence.startswith(
        "rank 1 of train.py ended without a word"
    )
    several = diagnosis_of(crashes=[SURVIVOR], silent=[1, 3]).sentence
    assert several.startswith("one of the ranks 1 and 3 of train.py ended without a word")


def test_ranks_that_said_nothing_are_not_blamed_for_anothers_exception():
    assert "ValueError: no such layer" in diagnosis_of(crashes=[CRASH], silent=[1]).sentence
    assert (
        "ValueError: no such layer" in diagnosis_of(crashes=[SURVIVOR, CRASH], silent=[2]).sentence
    )


def test_a_node_that_was_ended_in_order_is_named_by_those_that_lost_their_connection_to_it():
    found = diagnosis_of(crashes=[SURVIVOR], steps={0: 9}, left=(1, "10.0.0.2"))
    assert found.sentence == (
        "train.py was ended on node 1 (10.0.0.2) after 9 training steps: what is printed there says why"
    )
    assert found.own_words == ""
    assert (
        "ValueError: no such layer" in diagnosis_of(crashes=[CRASH], left=(1, "10.0.0.2")).sentence
    )


def test_a_shells_word_for_a_signal_is_translated():
    assert (
        "exit code 137 (what a shell says of SIGKILL (killed, or out of memory))"
        in diagnosis_of("Killed", code=137).sentence
    )
    assert "exit code 3 before" in diagnosis_of("no", code=3).sentence


def test_a_rank_that_exits_is_named_with_its_code_where_the_others_only_noticed():
    report = torchruns_report(root=(1, 1), other=(0, 5))
    found = diagnosis_of(SURVIVOR + report, crashes=[SURVIVOR], steps={0: 5, 1: 5}, silent=[0])
    assert found.sentence.startswith(
        "rank 0 of train.py ended with exit code 5 after 5 training steps; the others"
    )


def test_a_script_that_exits_is_not_taken_for_the_rank_that_torchrun_ended_because_of_it():
    exits = TORCHRUN.replace("exitcode  : -9", "exitcode  : 3")
    found = diagnosis_of("no more data\n" + exits, steps={0: 4})
    assert found.sentence == "train.py ended with exit code 3 after 4 training steps"
    assert found.own_words == "no more data"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "use a smaller batch"),
        (
            "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory",
            "ran out of memory",
        ),
        ("DistNetworkError: The server socket has failed to listen: EADDRINUSE", "already in use"),
        ("RendezvousTimeoutError", "did not find each other"),
        ("PIL.UnidentifiedImageError: cannot identify image file '/data/a.jpg'", "/data/a.jpg"),
    ],
)
def test_common_failures_come_with_what_to_do(words, sentence):
    assert (
        sentence
        in diagnosis_of(crashes=[f"Traceback (most recent call last):\n  x\n{words}\n"]).sentence
    )


def test_a_users_mistake_told_by_a_workload_is_passed_on_as_one():
    found = diagnosis_of("error: /data holds 3 samples, too few\n" + TORCHRUN.replace("-9", "2"))
    assert found.users_mistake
    assert found.sentence == "/data holds 3 samples, too few"


@pytest.mark.parametrize(
    "noticed",
    [
        "torch.distributed.DistStoreError: Socket Timeout",
        "RuntimeError: NCCL communicator was aborted on rank 0.",
    ],
)
def test_so_it_is_whatever_words_the_survivor_has_for_it(noticed):
    survivor = SURVIVOR.replace("RuntimeError: [../third_party", f"{noticed} [..")
    assert diagnosis_of(SURVIVOR_FIRST, crashes=[survivor], steps={0: 9}).sentence.startswith(
        "rank 1 of train.py was ended"
    )


HINTS = [
    "tip: if you run out of memory, use a smaller batch",
    "CUDA out of memory errors can be avoided with --fp16",
    "port 6006 is already in use, trying 6007",
    "data server timed out once, trying to connect again",
]


@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_that_is_printed_is_not_the_failure(hint):
    assert (
        diagnosis_of(f"{hint}\n", code=3).sentence
        == "train.py ended with exit code 3 before its first training step"
    )
    assert diagnosis_of(f"{hint}\n{CRASH}").sentence.endswith("ValueError: no such layer")
    assert diagnosis_of(crashes=[CRASH.replace("no such layer", hint)]).sentence.endswith(
        f"ValueError: {hint}"
    )
    assert diagnosis_of(
        crashes=[CRASH.replace("f()", f"raise ValueError({hint!r})")]
    ).sentence.endswith("no such layer")


@pytest.mark.parametrize(
    "words",
    [
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "MemoryError",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7 GiB for an array",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: unable to mmap 64 bytes from file </torch_1>: Cannot allocate memory (12)",
    ],
)
def test_a_job_that_could_only_print_its_error_is_understood(words):
    assert (
        "ran out of memory before its first training step; use a smaller batch"
        in diagnosis_of(words).sentence
    )


def test_a_time_out_after_steps_were_taken_is_no_meeting_that_failed():
    timed_out = CRASH.replace(
        "ValueError: no such layer", "RuntimeError: timed out waiting for the store"
    )
    assert "did not find each other" in diagnosis_of(crashes=[timed_out]).sentence
    assert "timed out waiting" in diagnosis_of(crashes=[timed_out], steps={0: 9}).sentence


@pytest.mark.timeout(60)  # matching that was quadratic took minutes of each
@pytest.mark.parametrize(
    "log",
    [
        "\r".join(f"epoch {number} port 1 timed out 3 loss 0.1" for number in range(40_000)),
        "port 1 timed out " * 80_000,
        "Traceback (most recent call last):\n" + '  File "x.py", line 1\n' * 60_000,
        "Traceback (most recent call last):\n" * 30_000,
        "rank : 1 " * 100_000,
        "E1234 " + "torch/distributed/elastic " * 40_000,
        "unable to " * 100_000,
    ],
)
def test_any_log_is_read_at_once(log):
    assert "train.py" in diagnosis_of(log, steps={0: 1}).sentence
    assert "train.py" in diagnosis_of(crashes=[log], steps={0: 1}).sentence


def test_a_crash_without_a_word_is_none():
    assert (
        diagnosis_of(crashes=["\n \n"]).sentence
        == "train.py ended with exit code 1 before its first training step"
    )


def test_a_long_message_is_cut_in_the_sentence_and_whole_below_it():
    found = diagnosis_of(crashes=[CRASH.replace("no such layer", "x" * 5_000)])
    assert len(found.sentence) < 1_000
    assert "x" * 5_000 in found.own_words


@pytest.mark.parametrize(
    "error",
    [
        '  File "/usr/lib/python3/multiprocessing/synchronize.py", line 57, in __init__\n'
        "    sl = self._semlock = _multiprocessing.SemLock(\nFileNotFoundError: [Errno 2] No such file or directory",
        "RuntimeError: unable to open shared memory object </torch_41_7_0> in read-write mode: No such file",
        "RuntimeError: unable to write to file </torch_41_7_0>: No space left on device (28)",
        "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error (run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or "
        "external library call failed or device error. \nLast error:\n"
        "Error while creating shared memory segment /dev/shm/nccl-vzIpS6 (size 9637888)",
    ],
)
def test_shared_memory_that_is_missing_or_full_is_named(error):
    found = diagnosis_of(crashes=[f"Traceback (most recent call last):\n{error}\n"])
    assert (
        "could not use shared memory before its first training step: /dev/shm is missing"
        in found.sentence
    )


def test_a_wrong_option_is_in_the_sentence():
    output = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --nope\n"
    found = diagnosis_of(output, code=2)
    assert found.sentence == (
        "train.py ended with exit code 2 before its first training step: unrecognized arguments: --nope"
    )

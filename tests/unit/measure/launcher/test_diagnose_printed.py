"""The parts of a log: its end, the job's own words, its launcher's, tracebacks."""

import pytest

from stash.measure.launcher import diagnose
from stash.measure.launcher.diagnose import (
    MAX_BYTES,
    read_tail,
)

CRASH = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    f()\nValueError: no\n'
LAUNCHER = """E1120 10:00:00.000000 77 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1)
Traceback (most recent call last):
  File "/usr/lib/python3/torch/distributed/run.py", line 905, in <module>
    main()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def test_of_a_log_its_end_is_read(tmp_path):
    log = tmp_path / "output.log"
    assert read_tail(log) == ""
    log.write_bytes(b"\xe9" * MAX_BYTES + b"the end")
    assert read_tail(log).endswith("the end")
    assert len(read_tail(log)) == MAX_BYTES


STATED = {
    "argparse": (
        "usage: train.py [-h] [--lr LR]\n           [--epochs N]\ntrain.py: error: unrecognized arguments: --nope\n",
        "unrecognized arguments: --nope",
    ),
    "click": (
        "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option '--nope'.\n",
        "No such option '--nope'",
    ),
    "a loss that is called an error": ("epoch 1: error: 0.3\n", ""),
    "a traceback": (
        'Traceback (most recent call last):\n  File "a"\nValueError: x\n',
        "",
    ),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("output", "why"), STATED.values(), ids=STATED)
def test_why_a_job_ended_is_read_where_it_says_so_without_a_traceback(output, why):
    assert diagnose.find_stated_cause(output) == why
    assert why in diagnose.find_cause(diagnose.own_output(output))  # blank lines are left out there


def test_of_an_error_and_a_hint_below_it_the_error_is_the_cause():
    words = 'Traceback (most recent call last):\n  File "a"\nMisconfigurationException: no strategy\n\nSee https://'
    assert diagnose.find_cause(words) == "MisconfigurationException: no strategy"


ACCELERATES = (
    'Traceback (most recent call last):\n  File "/x/accelerate/commands/launch.py", line 1, in simple_launcher\n'
    "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.\n"
)


def test_what_accelerate_says_of_its_process_is_not_the_jobs_error():
    own = 'Traceback (most recent call last):\n  File "train.py"\nValueError: loss is nan\n'
    assert "loss is nan" in diagnose.last_traceback(own + ACCELERATES)
    assert diagnose.last_traceback(ACCELERATES) == ""

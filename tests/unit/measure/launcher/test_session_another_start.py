"""Which error of a plain process speaks for a launcher, and what is started where ranks turn out to be no job."""

import pytest

from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.session import restart_as_ranks

PLAIN, RANKS = Cluster(engine="local", all_devices=4), Cluster(2, engine="torchrun")
WANTS_RANK = (
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
    "but not set"
)


def failed(error, file="train.py"):
    return Diagnosis(
        "it failed",
        f'Traceback (most recent call last):\n  File "{file}", line 3\n    f()\n{error}\n',
    )


@pytest.mark.parametrize(
    "error",
    [
        WANTS_RANK,
        "KeyError: 'LOCAL_RANK'",
        "ModuleNotFoundError: No module named 'mpi4py'",
        "SystemExit: start me with torchrun",
        "ValueError: Default process group has not been initialized, please make sure to call init_process_group.",
    ],
)
def test_a_script_that_cannot_start_without_its_rank_is_started_on_every_device(error):
    assert restart_as_ranks(PLAIN, failed(error)) == Cluster(4, engine="torchrun", all_devices=4)
    assert restart_as_ranks(RANKS, failed(error)) is None


def test_as_many_as_were_asked_for_are_started():
    another = restart_as_ranks(Cluster(engine="local", all_devices=1), failed(WANTS_RANK))
    assert another.nproc == 1


LINE = '  File "train.py", line 3, in <module>\n    local = int(os.environ.get("LOCAL_RANK"))\n'


@pytest.mark.parametrize(
    ("failure", "is_reason"),
    [
        (
            Diagnosis("it failed", f"Traceback (most recent call last):\n{LINE}TypeError: int()"),
            True,
        ),
        (failed("ValueError: no such layer", file="/home/me/torchrun/train.py"), False),
        (failed("KeyError: 'learning_rate'"), False),
        (Diagnosis("it ended with exit code 3"), False),
    ],
)
def test_the_line_that_failed_tells_too_and_what_a_file_is_called_does_not(failure, is_reason):
    assert (restart_as_ranks(PLAIN, failure) is not None) is is_reason

"""Which error of a script speaks for a launcher, which for none, and which for neither."""

from __future__ import annotations

import pytest

from stash.measure.launch.another_start import another_start
from stash.measure.launch.diagnose import Diagnosis
from stash.measure.launch.engines.base import Cluster

PLAIN, RANKS = Cluster(engine="local"), Cluster(2, engine="torchrun")
WANTS_RANK = (
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
    "but not set"
)
NO_CUDA = "AssertionError: Torch not compiled with CUDA enabled"


def failed(error: str, file: str = "train.py") -> Diagnosis:
    return Diagnosis("it failed", f'Traceback (most recent call last):\n  File "{file}", line 3\n    f()\n{error}\n')


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
def test_a_script_that_asks_for_its_rank_is_started_by_torchrun(error: str) -> None:
    another = another_start(PLAIN, 0, failed(error))
    assert another is not None
    assert another.cluster == Cluster(engine="torchrun")
    assert f"started by torchrun, since as a plain process it failed ({error})" in another.note
    assert another_start(RANKS, 0, failed(error)) is None


@pytest.mark.parametrize(
    "error",
    [
        NO_CUDA,
        "RuntimeError: Found no NVIDIA driver on your system.",
        "RuntimeError: Distributed package doesn't have NCCL built in",
        "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
        "ValueError: DistributedDataParallel device_ids and output_device arguments only work with single-device …",
    ],
)
def test_ranks_on_cpus_that_ask_for_cuda_are_tried_as_one_plain_process(error: str) -> None:
    another = another_start(RANKS, 0, failed(error))
    assert another is not None
    assert another.cluster == Cluster(1, engine="local")
    assert f"as one plain process, since its 2 ranks on CPUs failed ({error})" in another.note


@pytest.mark.parametrize(
    ("cluster", "gpus"), [(RANKS, 2), (PLAIN, 0), (Cluster(2, 2, 0, "a:1"), 0), (Cluster(2, engine="inherited"), 0)]
)
def test_nothing_else_is_tried_where_there_are_gpus_other_nodes_or_no_other_way(cluster: Cluster, gpus: int) -> None:
    assert another_start(cluster, gpus, failed(NO_CUDA)) is None


def test_the_line_that_failed_tells_too() -> None:
    line = '  File "train.py", line 3, in <module>\n    local = int(os.environ.get("LOCAL_RANK"))\n'
    words = f"Traceback (most recent call last):\n{line}TypeError: int() argument must be a string, not 'NoneType'\n"
    assert another_start(PLAIN, 0, Diagnosis("it failed", words)) is not None


def test_what_a_file_is_called_is_no_reason() -> None:
    assert another_start(RANKS, 0, failed("ValueError: no such layer", file="/home/me/cuda/nccl.py")) is None
    assert another_start(PLAIN, 0, failed("KeyError: 'learning_rate'")) is None
    assert another_start(RANKS, 0, Diagnosis("it ended with exit code 3")) is None

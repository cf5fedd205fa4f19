"""``stash.profile``: profile a Python function, from a program or a notebook."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stash.core.errors import UserError
from stash.core.interrupts import require_linux
from stash.core.ladder import NAMES, parse_rungs
from stash.core.records.profile import Profile
from stash.measure.host.gpus import count_gpus
from stash.measure.launcher.engines import Asked, Machine, cluster
from stash.measure.launcher.job import Job
from stash.measure.launcher.neighbours import TemporaryFolder
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.launcher.session import measure


def profile(
    train: Callable[..., Any],
    *args: Any,
    nproc_per_node: int | None = None,
    precision: float | None = None,
    budget: float = 60.0,
    rungs: str | None = None,
    isolate: bool = False,
    data_root: str | None = None,
    keep_logging: bool = False,
    **kwargs: Any,
) -> Profile:
    """Profile ``train(*args, **kwargs)`` in a process of its own, or in several, and return the profile.

    The function is what a script's ``main`` would be: it builds model and loader, and loops. It runs in one new
    process, or in ``nproc_per_node`` ranks; one that cannot start without ranks (it forms its process group from the
    environment, ``init_process_group()``) gets one per GPU, or 2 on CPUs. So it works from a notebook, and what it
    returns is lost. Measuring ends when the verdict holds, or when noise leaves every stall ± ``precision``, a
    fraction of the step (0.01 is the command's ``--precision 1``); in any case after ``budget`` seconds. Raises
    JobError with the function's own traceback when nothing could be measured, UserError for arguments that do not
    fit.
    """
    import cloudpickle

    require_linux("stash.profile")
    if precision is not None and not 0 < precision < 1:
        raise UserError(
            f"precision={precision:g}: it is a fraction of the step, more than 0 and less than 1; "
            "write 0.02 for the ±2 % that the command calls --precision 2"
        )

    if not budget > 0:
        raise UserError(f"budget={budget:g}: it must be more than 0 seconds")
    where = cluster(Asked(ranks=False, nproc=nproc_per_node), Machine(count_gpus(), len(os.sched_getaffinity(0))))
    chosen = parse_rungs(rungs) if rungs else NAMES
    wishes = ProfileOptions(
        precision=precision, budget=budget, rungs=chosen, isolate=isolate, data_root=data_root,
        keep_logging=keep_logging,
    )  # fmt: skip
    called = cloudpickle.dumps((train, args, kwargs))
    with TemporaryFolder() as folder:
        pickled = folder.path / "function.pkl"
        pickled.write_bytes(pickle.dumps((sys.path, called)))
        name = getattr(train, "__name__", "function")
        job = Job("module", "stash.measure.launcher.function", (str(pickled),), name=name)
        return measure(job, where, wishes)


def _call(path: str) -> None:
    path_of_caller, called = pickle.loads(Path(path).read_bytes())
    sys.path += [folder for folder in path_of_caller if folder not in sys.path]
    train, args, kwargs = pickle.loads(called)
    train(*args, **kwargs)


if __name__ == "__main__":
    _call(sys.argv[1])

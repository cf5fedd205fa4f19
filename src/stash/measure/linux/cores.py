"""Which cores ranks and their loaders' workers run on, as ``stash fix`` found and ``stash run`` sets it.

Standard library only: it runs at the start of every process of a job. A plan is ``{"ranks": [[0], [1]], "workers":
[2, 3]}``: the cores of each local rank, and of all workers; without ``workers`` they share their rank's.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

VARIABLE = "STASH_CORES"
"""The plan as JSON, in the environment of ``stash run``."""


def place_rank(plan: Mapping[str, Any]) -> None:
    """Keep this process, and what it starts, to the cores of its rank; as it is where the plan has none for it."""
    ranks, local = plan.get("ranks") or [], int(os.environ.get("LOCAL_RANK") or 0)
    if "LOCAL_RANK" in os.environ or len(ranks) == 1:
        _keep_to(ranks[local] if local < len(ranks) else ())


def wrap_worker_loop(module: ModuleType, plan: Mapping[str, Any]) -> None:
    """Keep loader workers to theirs; ``module`` is ``torch.utils.data._utils.worker``."""
    cores, loop = plan.get("workers"), module._worker_loop
    if not cores:
        return

    @functools.wraps(loop)
    def placed(*args: Any, **kwargs: Any) -> Any:
        _keep_to(cores)
        return loop(*args, **kwargs)

    module._worker_loop = placed  # type: ignore[attr-defined]


def planned() -> Mapping[str, Any] | None:
    """The plan in this process's environment; None where there is none that can be read."""
    try:
        found = json.loads(os.environ.get(VARIABLE, ""))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _keep_to(cores: Any) -> None:
    """Run on these cores only, those that this process was kept from among them; as before where there is none."""
    if cores:
        with suppress(OSError, ValueError):
            os.sched_setaffinity(0, set(map(int, cores)))

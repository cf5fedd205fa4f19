"""A Python function, or the text of a loop, as a job: pickled here, called in the process that is profiled."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from stash.core.errors import UserError, one_line
from stash.core.imports import require_package
from stash.core.records.profile import Profile
from stash.measure.host.gpus import count_gpus
from stash.measure.launcher.engines import choose_cluster
from stash.measure.launcher.job import Job, require_torch
from stash.measure.launcher.neighbours import TemporaryFolder
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.launcher.rank_options import RankOptions
from stash.measure.launcher.session import Watching, profile_job, watch_nothing


@dataclass(frozen=True)
class LoopText:
    """Lines of Python that train, and those of the caller's variables that they name."""

    text: str
    variables: Mapping[str, Any]

    def __call__(self) -> None:
        exec(compile(self.text, "<the loop>", "exec"), {"__name__": "__main__", **self.variables})


def loop_text(text: str, variables: Mapping[str, Any]) -> LoopText:
    """The loop with what it names of ``variables``; raises UserError for text that is not Python."""
    try:
        named = set(_iter_names(compile(text, "<the loop>", "exec")))
    except SyntaxError as error:
        raise UserError(f"the loop is not Python: {error.msg} (line {error.lineno})") from None
    return LoopText(text, {name: value for name, value in variables.items() if name in named})


def _iter_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iter_names(constant)


def measure_function(
    train: Callable[..., Any],
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    nproc_per_node: int | None,
    wishes: ProfileOptions,
    watching: Watching = watch_nothing,
) -> Profile:
    """The profile of ``train`` called with positional and named ``arguments``; raises JobError and UserError."""
    cloudpickle = require_package("cloudpickle", "profiling a function")
    require_torch("profiling a function")
    asked, cores = RankOptions(nproc_per_node=nproc_per_node), len(os.sched_getaffinity(0))
    where = choose_cluster(asked, False, count_gpus(), cores)
    name = "loop" if isinstance(train, LoopText) else getattr(train, "__name__", "function")
    try:
        called = cloudpickle.dumps((train, *arguments))
    except Exception as error:  # whatever an object's own __reduce__ raises
        raise UserError(
            f"{name} cannot be given to a process of its own ({one_line(error)}); make what it names inside it"
        ) from error
    with TemporaryFolder() as folder:
        pickled = folder.path / "function.pkl"
        pickled.write_bytes(pickle.dumps((sys.path, called)))
        job = Job("module", "stash.measure.launcher.function", (str(pickled),), name=name)
        return profile_job(job, where, wishes, watching)


def _call_pickled(path: str) -> None:
    path_of_caller, called = pickle.loads(Path(path).read_bytes())
    sys.path += [folder for folder in path_of_caller if folder not in sys.path]
    train, args, kwargs = pickle.loads(called)
    train(*args, **kwargs)


if __name__ == "__main__":
    _call_pickled(sys.argv[1])

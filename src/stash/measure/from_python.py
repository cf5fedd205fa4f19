"""``stash.profile``, and the cell magic ``%%stash``: a function or a loop profiled from a program or a notebook."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from stash.core import parsers
from stash.core.errors import StashError, UserError
from stash.core.interrupts import require_linux
from stash.core.ladder import NAMES, parse_rungs
from stash.core.records.profile import Profile
from stash.measure.launcher.function import loop_text, measure_function
from stash.measure.launcher.measurement import Watcher
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.launcher.session import ProfileSession, watch_nothing
from stash.measure.live import NotebookProgress, Progress
from stash.measure.ranks import LocalRankOptions
from stash.ui.options import declarations


def profile(
    train: Callable[..., Any] | str,
    *args: Any,
    nproc_per_node: int | None = None,
    noise: float | None = None,
    budget: float | str = 60.0,
    rungs: str | None = None,
    data_root: str | None = None,
    keep_logging: bool = False,
    progress: bool | None = None,
    variables: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Profile:
    """Profile ``train(*args, **kwargs)`` in a process of its own, or in several.

    The function is what a script's ``main`` would be: it builds model and loader, and loops. Or it is the text of a
    loop, with the ``variables`` that it names (``globals()``), of which the process gets copies. It runs in one new
    process, or in ``nproc_per_node`` ranks; one that cannot start without ranks (it forms its process group from the
    environment, ``init_process_group()``) gets one per GPU, or 2 on CPUs. So it works from a notebook, and what it
    returns is lost. Measuring ends when the verdict holds, or when noise leaves every stall ± ``noise``, a
    fraction of the step (0.01 is the command's ``--noise 1``); in any case after ``budget`` seconds, or ``"2m"``.
    Live ``progress`` is shown in notebooks and on terminals unless it is given as True or False. Raises JobError with
    the function's own traceback when nothing could be measured, UserError for arguments that do not fit.
    """
    require_linux("stash.profile")
    if noise is not None and not 0 < noise < 1:
        raise UserError(
            f"noise={noise:g}: it is a fraction of the step, more than 0 and less than 1; "
            "write 0.02 for the ±2 % that the command calls --noise 2"
        )
    if isinstance(budget, str):
        budget = parsers.duration(budget)
    if not budget > 0:
        raise UserError(f"budget={budget:g}: it must be more than 0 seconds")
    if isinstance(train, str):
        if args or kwargs:
            raise UserError(
                "the text of a loop takes no arguments; give what it names as variables={...}"
            )
        train = loop_text(train, variables or {})
    wishes = ProfileOptions(
        noise=noise,
        budget=budget,
        rungs=parse_rungs(rungs) if rungs else NAMES,
        data_root=data_root,
        keep_logging=keep_logging,
    )
    if progress is None:
        progress = _is_in_notebook() or sys.stderr.isatty()
    watching = _show_progress if progress else watch_nothing
    return measure_function(train, (args, kwargs), nproc_per_node, wishes, watching)


@contextmanager
def _show_progress(session: ProfileSession) -> Iterator[Watcher]:
    with (NotebookProgress if _is_in_notebook() else Progress)(session) as progress:
        yield progress.show


def _is_in_notebook() -> bool:
    """Whether IPython runs in a kernel, whose front end shows HTML; IPython in a terminal is a terminal."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@dataclass(frozen=True, kw_only=True)
class MagicOptions(LocalRankOptions, ProfileOptions):
    """One call of ``%%stash``."""


class _MagicParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"%%stash: {message}; {' '.join(self.format_usage().split())}")


def parse_magic(line: str) -> MagicOptions:
    """The options after ``%%stash``, which are those of ``stash profile``; raises UserError."""
    parser = _MagicParser(prog="%%stash", add_help=False, allow_abbrev=False)
    for name, one in declarations(MagicOptions).items():
        action = "store_true" if one.kind == "flag" else "store"
        parser.add_argument(one.name(name), dest=name, action=action, default=argparse.SUPPRESS)
    return MagicOptions(**vars(parser.parse_args(shlex.split(line))))


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext stash``."""

    def stash(line: str, cell: str) -> Profile | None:
        """%%stash [--budget SECONDS] [--noise PCT] [--nproc-per-node N] …: profile the loop in this cell."""
        try:
            options = parse_magic(line)
            loop = loop_text(shell.transform_cell(cell), shell.user_ns)
            return measure_function(loop, ((), {}), options.nproc_per_node, options, _show_progress)
        except StashError as error:  # a sentence; the traceback through Stash helps nobody
            print(f"error: {error}", file=sys.stderr)
            return None

    shell.register_magic_function(stash, "cell")

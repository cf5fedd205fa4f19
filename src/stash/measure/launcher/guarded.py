"""The user's files while a job runs: whatever becomes of the launcher, what its job changed is put back.

The launcher itself does it at the end; if it dies, a guardian process does, and if that was killed too, the next
``stash`` command. Of what is kept, and how, the job's processes decide (``file_backup``). Standard library only: the
guardian imports this too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stash.core.interrupts import postpone_requests
from stash.core.printable import printable_line
from stash.core.units import format_count
from stash.measure.launcher.neighbours import SweepResult
from stash.measure.protocol.folder import KEPT
from stash.measure.protocol.put_back import RestoreReport, claim_for_run, put_all_back

_GUARDIAN = Path(__file__).with_name("guardian.py")
_NAMED = 3
"""Files that a sentence names."""


class GuardedFiles:
    """A context that makes a place for what the job keeps, in the folder of a run.

    ``locked``: the descriptor of the working folder's lock, which lasts until the files are back.
    """

    def __init__(self, run: Path, locked: int | None = None) -> None:
        self._run, self._locked = run, locked
        self._kept = run / KEPT
        self._claimed: int | None = None
        self._guardian: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> GuardedFiles:
        with postpone_requests():
            made = claim_for_run(self._run)
            if made is None:
                # that is what there is: it is lost if the temporary folder is
                self._kept.mkdir(mode=0o700)
            else:
                (self._run / KEPT).symlink_to(made[0])
                self._kept, self._claimed = made
            with suppress(OSError):  # no process can be started: nor can the job
                self._guardian = subprocess.Popen(
                    (
                        sys.executable,
                        "-I",
                        "-S",
                        _GUARDIAN,
                        str(os.getpid()),
                        self._run,
                        self._kept,
                    ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # what ends the launcher's group or session does not end it
                    pass_fds=[
                        each for each in (self._claimed, self._locked) if each is not None
                    ],  # its own after us
                )
        return self

    def __exit__(self, *_: object) -> None:
        with postpone_requests():
            put_all_back(self._kept)  # an interrupt may have come while a launch's files were
            if self._claimed is not None:
                (self._run / KEPT).unlink(missing_ok=True)
            if self._guardian is not None:
                self._guardian.kill()
                self._guardian.wait()
            if self._claimed is not None:
                os.close(self._claimed)


def report_sentences(report: RestoreReport) -> list[str]:
    """What was put back, what could not be, and what is new; nothing where the job changed nothing."""
    found = []
    if report.restored:
        found.append(
            f"put back as before, since the job wrote to or removed {format_count(len(report.restored), 'file')}: "
            f"{_name_paths(report.restored)}"
        )
    if report.unprotected:
        found.append(
            f"look at files that could not be kept from the job: {_name_paths(report.unprotected)}"
        )
    if report.new:
        found.append(
            f"left where nothing was before: {format_count(len(report.new), 'file')}; remove what you do not need: "
            f"{_name_paths(report.new)}"
        )
    return found


def killed_run_sentences(swept: SweepResult) -> list[str]:
    """What earlier runs had left, and the same of their files, which only this run could put back."""
    whose = "a killed run" if swept.dead == 1 else f"{swept.dead} killed runs"
    removed = (
        [f"removed what {whose} of Stash had left in the temporary folder"] if swept.dead else []
    )
    return removed + restored_sentences(swept.reports)


def restored_sentences(reports: Iterable[RestoreReport]) -> list[str]:
    """The same of the files of earlier runs."""
    return [
        f"an earlier profile was killed; {sentence}"
        for report in reports
        for sentence in report_sentences(report)
    ]


def name_left_file(path: str) -> str:
    """A new file or folder (with a slash at its end) as seen from here, on one line."""
    name = path.removeprefix(os.getcwd() + os.sep)
    return printable_line(f"{name}{os.sep}" if os.path.isdir(path) else name)


def _name_paths(paths: tuple[str, ...]) -> str:
    """The first few, as seen from here."""
    here = os.getcwd() + os.sep
    named = ", ".join(path.removeprefix(here) for path in paths[:_NAMED])
    more = len(paths) - _NAMED
    return f"{named} and {more} more" if more > 0 else named

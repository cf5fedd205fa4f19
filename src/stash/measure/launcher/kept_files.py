"""What became of the files that a job wrote to, in sentences for the profile's reader. Pure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from stash.core.units import counted
from stash.measure.launcher.neighbours import Swept
from stash.measure.protocol.put_back import RestoreReport

_NAMED = 3


def sentences(aftermath: RestoreReport) -> list[str]:
    """What was put back, what could not be, and what is new; nothing where the job changed nothing."""
    found = []
    if aftermath.restored:
        found.append(
            f"put back as before, since the job wrote to or removed {_count(aftermath.restored)}: "
            f"{_names(aftermath.restored)}"
        )
    if aftermath.unprotected:
        found.append(f"look at files that could not be kept from the job: {_names(aftermath.unprotected)}")
    if aftermath.new:
        found.append(
            f"new from replicas that had trained apart, and of no use but to the job, {_count(aftermath.new)}; "
            f"remove what you do not need: {_names(aftermath.new)}"
        )
    return found


def of_killed_runs(swept: Swept) -> list[str]:
    """What earlier runs had left, and the same of their files, which only this run could put back."""
    whose = "a killed run" if swept.dead == 1 else f"{swept.dead} killed runs"
    removed = [f"removed what {whose} of Stash had left in the temporary folder"] if swept.dead else []
    return removed + of_restored(swept.aftermaths)


def of_restored(aftermaths: Iterable[RestoreReport]) -> list[str]:
    """The same of the files of earlier runs."""
    return [f"an earlier profile was killed; {said}" for aftermath in aftermaths for said in sentences(aftermath)]


def _count(paths: Sequence[str]) -> str:
    return counted(len(paths), "file")


def _names(paths: Sequence[str]) -> str:
    """The first few, as seen from here."""
    here = os.getcwd() + os.sep
    named = ", ".join(path.removeprefix(here) for path in paths[:_NAMED])
    more = len(paths) - _NAMED
    return f"{named} and {more} more" if more > 0 else named

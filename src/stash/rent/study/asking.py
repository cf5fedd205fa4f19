"""What is asked about a cell by its engine's own commands: for its profile, and whether it will ever begin."""

from __future__ import annotations

import re

from stash.base.printable import printable_line
from stash.rent.study.programs import Programs
from stash.rent.study.submission import Submission

_TRIES = 3
_FETCH_SECONDS = 60.0
"""For a file of some megabytes. Nothing else is looked at meanwhile, limits neither."""
_LOOK_SECONDS = 30.0
_LONGEST = 200


def fetch(programs: Programs, submission: Submission) -> str | None:
    """Bring the profile into the cell's folder; why not, if it cannot be brought."""
    for words in submission.fetch:
        for number in range(_TRIES):
            if number:
                programs.sleep(2.0**number)
            called = programs.call(words, _FETCH_SECONDS)
            if called.code == 0:
                break
        else:
            last = (called.output.strip().splitlines() or [f"exit code {called.code}"])[-1]
            return printable_line(last, _LONGEST)
    return None


def hopeless(programs: Programs, submission: Submission) -> str | None:
    """Why what is submitted will never begin, if somebody who knows says so."""
    if not submission.hopeless:
        return None
    called = programs.call(submission.check, _LOOK_SECONDS)
    found = re.search(submission.hopeless, called.output) if called.code == 0 else None
    return None if found is None else printable_line(found[1], _LONGEST)

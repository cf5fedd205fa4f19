"""Revocations as users write them, and the moments at which they happen: a notice, then a machine that is gone.

``worker2@40s,notice=20s``: notice at 40 s that it will be gone 20 s later. ``v100@1m``: all of that type, at once and
without a word. Knows no training; who bears which name, whoever runs one knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stash.core.errors import UnitError, UserError
from stash.core.units import parse_seconds

EXAMPLE = "worker2@40s,notice=20s"


@dataclass(frozen=True)
class Revocation:
    """One machine, or all of a type, that are taken away."""

    who: str
    at: float
    """Seconds after training began: when it gets notice, or vanishes if it gets none."""
    notice: float | None = None
    """Seconds between the two."""


@dataclass(frozen=True, order=True)
class RevocationMoment:
    """Something to do at a certain time."""

    at: float
    what: Literal["notice", "vanish"]
    who: str
    seconds: float = 0.0
    """That are left, of a notice."""


def parse_revocation(text: str) -> Revocation:
    """``worker2@40s,notice=20s``; raises UserError."""
    who, at, rest = text.partition("@")
    when, comma, more = rest.partition(",")
    name, equals, notice = more.partition("=")
    if not who.strip() or not at or (comma and (name.strip() != "notice" or not equals)):
        raise UserError(f"--revoke {text!r} cannot be read; write it like {EXAMPLE}")
    try:
        seconds = [
            parse_seconds(each.strip(), named="s")
            for each in ((when, notice) if comma else (when,))
        ]
    except UnitError as error:
        raise UserError(f"--revoke {text!r}: {error}; write it like {EXAMPLE}") from error
    if not all(each >= 0 and math.isfinite(each) for each in seconds):
        raise UserError(
            f"--revoke {text!r}: a time cannot be below 0 or endless; write it like {EXAMPLE}"
        )
    return Revocation(who.strip(), *seconds)


def moments(revocations: Iterable[Revocation]) -> list[RevocationMoment]:
    """What happens, in order."""
    found = []
    for each in revocations:
        if each.notice is not None:
            found.append(RevocationMoment(each.at, "notice", each.who, each.notice))
        found.append(RevocationMoment(each.at + (each.notice or 0.0), "vanish", each.who))
    return sorted(found)

"""What a mistyped name was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The ``count`` known names most like ``name``, best first; empty when none is alike."""
    folded = {item.lower(): item for item in known}
    found = difflib.get_close_matches(name.lower(), folded, n=count, cutoff=0.5)
    return [folded[item] for item in found]

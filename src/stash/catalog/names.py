"""Finding a GPU or an instance by the name a person types, and naming the nearest ones when there is none.

Knows how names are written (``A100``, ``A100-80GB``, ``NVIDIA A100-SXM4-80GB``, ``aws/p3.8xlarge``); knows
nothing of what the things are.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from stash.errors import UserError

_MAKERS = {"nvidia", "tesla", "geforce", "quadro"}


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The ``count`` known names most like ``name``, best first; empty when none is alike."""
    folded = {item.lower(): item for item in known}
    found = difflib.get_close_matches(name.lower(), folded, n=count, cutoff=0.5)
    return [folded[item] for item in found]


def unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not there: says what it is and what it may have been meant to be."""
    alike = nearest(name, known)
    hint = f"did you mean {', '.join(alike)}?" if alike else "`stash catalog` lists what there is"
    return UserError(f"unknown {what} {name!r}; {hint}")


def tokens(name: str) -> frozenset[str]:
    """The words of a GPU's name in lower case, without its maker: {"a100", "sxm4", "80gb"}."""
    words = re.split(r"[\s\-_]+", name.strip().lower())
    return frozenset(word for word in words if word and word not in _MAKERS)

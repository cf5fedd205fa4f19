"""Finding a GPU or an instance by the name a person types, and naming the nearest ones when there is none.

Knows how names are written (``A100``, ``A100-80GB``, ``NVIDIA A100-SXM4-80GB``, ``aws/p3.8xlarge``); knows
nothing of what the things are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from stash.base.errors import UserError
from stash.base.words.spelling import nearest

_MAKERS = {"nvidia", "tesla", "geforce", "quadro"}

_DRIVERS = {
    "h100 80gb hbm3": "h100 sxm5 80gb",
    "b300 sxm6 ac": "b300",
}
"""Names that NVML reports and that say nothing, or something else, of the variant they belong to: in words without
the maker, with the words of the catalog's name. Of the H100s only SXM5 boards have 80 GB of HBM3. All other names
(``Tesla V100-SXM2-16GB``) hold the catalog's words already."""


def unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not there: says what it is and what it may have been meant to be."""
    alike = nearest(name, known)
    hint = f"did you mean {', '.join(alike)}?" if alike else "`stash catalog` lists what there is"
    return UserError(f"unknown {what} {name!r}; {hint}")


@lru_cache(maxsize=4096)
def tokens(name: str) -> frozenset[str]:
    """The words of a GPU's name in lower case, without its maker: {"a100", "sxm4", "80gb"}.

    A name that only drivers use has the words of the catalog's name instead.
    """
    words = [word for word in re.split(r"[\s\-_]+", name.strip().lower()) if word and word not in _MAKERS]
    return frozenset(_DRIVERS.get(" ".join(words), " ".join(words)).split())

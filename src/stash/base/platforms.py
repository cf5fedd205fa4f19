"""Where Stash can measure: on Linux, whose page cache, /proc and /sys it reads. Everything else works anywhere."""

from __future__ import annotations

import sys

from stash.base.errors import UserError

_NAMES = {"darwin": "macOS", "win32": "Windows"}


def require_linux(what: str) -> None:
    """Raise UserError on any other system; ``what`` is what was to be done."""
    if sys.platform != "linux":
        raise UserError(
            f"{what} needs Linux, and this is {_NAMES.get(sys.platform, sys.platform)}: run it in a Linux container "
            "or virtual machine; `stash show` and `stash catalog` work here too"
        )

"""Tracebacks of the job as outside a profile: without the frames of what Stash wraps around its calls."""

from __future__ import annotations

import re

_FRAME = re.compile(
    r"""^[ ]+File[ ]"[^"]*/stash/measure/(?:agent/|run/|linux/|torchrun\.py)[^"]*",[ ]line[ ]\d+,[ ]in[ ].*\n
        (?:[ ]{4}.*\n)*                          # its source
        (?=[ ]+File[ ]"|KeyboardInterrupt)       # unless it is the last: an interrupt strikes anywhere""",
    re.M | re.X,
)


def without_wraps(text: str) -> str:
    """A traceback without them, and without those that it quotes from loader workers."""
    return _FRAME.sub("", text)

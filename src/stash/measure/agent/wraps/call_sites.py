"""Where a script calls what ``stash fix`` may change, recorded while it runs: a patch has to be written there."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))) + os.sep
"""The folder of Stash."""
SITES: dict[str, dict[str, Any]] = {}
"""By ``kind:file:line:column``."""
_places: dict[tuple[str, CodeType, int], str] = {}
"""Keys of the calls recorded so far."""


def site_of(kind: str) -> str:
    """Record the call under way, in the first file that is neither PyTorch's nor Stash's; the value is its key."""
    frame: FrameType | None = sys._getframe(2)
    torch_folder = os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep
    while frame is not None and (
        frame.f_code.co_filename.startswith((torch_folder, HERE)) or frame.f_code.co_filename[:1] == "<"
    ):
        frame = frame.f_back
    if frame is None:
        frame = sys._getframe(2)
    known = _places.get((kind, frame.f_code, frame.f_lasti))
    if known is None:
        known = _places[kind, frame.f_code, frame.f_lasti] = _record(kind, frame)
    SITES[known]["calls"] += 1
    return known


def _record(kind: str, frame: FrameType) -> str:
    """Note where a call stands."""
    place: tuple[Any, ...] = (frame.f_lineno, frame.f_lineno, None, None)
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is not None:
        found = list(positions())[frame.f_lasti // 2]
        place = found if found[0] is not None else place
    line, end_line, column, end_column = place
    key = f"{kind}:{frame.f_code.co_filename}:{line}:{column}"
    SITES[key] = {
        "kind": kind, "file": frame.f_code.co_filename, "line": line, "end_line": end_line, "column": column,
        "end_column": end_column, "function": frame.f_code.co_name, "calls": 0, "values": {},
    }  # fmt: skip
    return key

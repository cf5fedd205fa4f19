"""Stash: where does my training time go, and what should I rent to make it cheaper or faster.

``import stash`` is cheap on purpose: it stands in other people's training scripts. The public names
load what they need on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["attribute", "load", "profile", "save", "watch"]

if TYPE_CHECKING:
    from stash.agent.watch import watch
    from stash.artefact import load, save
    from stash.launch.function import profile
    from stash.stalls import attribute

_HOMES = {
    "watch": "stash.agent.watch",
    "load": "stash.artefact",
    "save": "stash.artefact",
    "profile": "stash.launch.function",
    "attribute": "stash.stalls",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'stash' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

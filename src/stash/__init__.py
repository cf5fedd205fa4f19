"""Stash: where does my training time go, and what should I rent to make it cheaper or faster.

``import stash`` is cheap on purpose: it stands in other people's training scripts. The public names
load what they need on first use.
"""

from __future__ import annotations

from importlib import import_module

from stash.base import notebooks
from stash.base.version import __version__ as __version__

__all__ = ["attribute", "frame", "load", "profile", "save", "step", "watch"]

TYPE_CHECKING = False  # as typing has it, whose import would take longer than all the rest here
if TYPE_CHECKING:
    from typing import Any

    from stash.derive.stalls import attribute
    from stash.derive.tables import frame
    from stash.keep.artefact import load, save
    from stash.measure.agent.watch import step, watch
    from stash.measure.launch.function import profile

_HOMES = {
    "step": "stash.measure.agent.watch",
    "watch": "stash.measure.agent.watch",
    "load": "stash.keep.artefact",
    "save": "stash.keep.artefact",
    "profile": "stash.measure.launch.function",
    "attribute": "stash.derive.stalls.attribution",
    "frame": "stash.derive.tables.frames",
}


def _shown_in_a_notebook(profile: Any) -> str:
    """A profile's cell; what draws it is loaded when a notebook first asks."""
    return import_module("stash.show.report.cell").render(profile)  # type: ignore[no-any-return]


notebooks.show_with(_shown_in_a_notebook)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        globals()[name] = getattr(import_module(_HOMES[name]), name)  # found here from now on: step() stands in loops
        return globals()[name]
    raise AttributeError(f"module 'stash' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

"""Stash: where does my training time go, and what should I rent to make it cheaper or faster.

``import stash`` is cheap on purpose: it stands in other people's training scripts. The public names
load what they need on first use.
"""

from __future__ import annotations

from importlib import import_module

from stash.core import front
from stash.core.front import make_lazy_access
from stash.core.version import __version__ as __version__

__all__ = ["attribute", "load", "loader", "phase", "profile", "save", "step"]

TYPE_CHECKING = False  # as typing has it, whose import would take longer than all the rest here
if TYPE_CHECKING:
    from typing import Any

    from stash.analysis.attribution import attribute
    from stash.core.artefact import load, save
    from stash.measure.agent.watch import loader, phase, step
    from stash.measure.from_python import profile


def _as_text(profile: Any) -> str:
    """A profile's ``repr``; what writes it is loaded when a profile is first shown."""
    return import_module("stash.report.output").profile_text(profile)  # type: ignore[no-any-return]


front.show_with(_as_text)

__getattr__, __dir__ = make_lazy_access(
    __name__,
    {
        "phase": "stash.measure.agent.watch",
        "step": "stash.measure.agent.watch",
        "loader": "stash.measure.agent.watch",
        "load": "stash.core.artefact",
        "save": "stash.core.artefact",
        "profile": "stash.measure.from_python",
        "load_ipython_extension": "stash.measure.from_python",
        "attribute": "stash.analysis.attribution",
    },
)

"""An emulated cluster with known truth: namespaces as hosts, shaped links, emulated accelerators.

``with Testbed(nodes=2, network="1gbit") as bed: bed.run([...], node=1)``. Knows nothing of profiles and
attribution: what is measured on a testbed is measured by the same code as anywhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stash.lab.testbed.bed import Testbed as Testbed
    from stash.lab.testbed.started import Started as Started

__all__ = ["Started", "Testbed"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    homes = {"Testbed": "stash.lab.testbed.bed", "Started": "stash.lab.testbed.started"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(homes[name]), name)

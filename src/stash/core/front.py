"""What the front of a package is made of: names that load their module when they are first used (PEP 562), and what
shows records in notebooks, set there since a record does not know how it looks.

Imported with ``import stash``, so it imports next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = (
    False  # as typing has it, whose import would take longer than all the rest of ``import stash``
)
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_shown: list[Callable[[object], str]] = []


def show_with(text: Callable[[object], str]) -> None:
    """From now on records are shown as this makes them."""
    _shown[:] = [text]


def text_of(record: object) -> str:
    """A record as a few lines of text; only its class where nothing was named to make them."""
    return _shown[0](record) if _shown else f"<{type(record).__name__}>"


def make_lazy_access(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The package's ``__getattr__`` and ``__dir__``.

    ``homes`` says in which module a name lives, and after a colon what it is called there if not the same. A name
    that was found is the package's own from then on.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = homes[name].partition(":")
        found = getattr(import_module(module), there or name)
        setattr(sys.modules[package], name, found)
        return found

    return load, lambda: sorted({*vars(sys.modules[package]), *homes})

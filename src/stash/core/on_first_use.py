"""Names of a package that load the module they live in when they are first used (PEP 562)."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = (
    False  # as typing has it, whose import would take longer than all the rest of ``import stash``
)
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


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

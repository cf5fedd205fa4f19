"""What shows records in notebooks: set once by the package's front, since a record does not know how it looks.

Imported with ``import stash``, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import would take longer than all of Stash's front
if TYPE_CHECKING:
    from collections.abc import Callable

_shown: list[Callable[[object], str]] = []


def show_with(text: Callable[[object], str]) -> None:
    """From now on records are shown as this makes them."""
    _shown[:] = [text]


def text_of(record: object) -> str:
    """A record as a few lines of text; only its class where nothing was named to make them."""
    return _shown[0](record) if _shown else f"<{type(record).__name__}>"

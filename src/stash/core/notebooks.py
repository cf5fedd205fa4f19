"""What shows records in notebooks: set once by the package's front, since a record does not know how it looks.

Knows nothing of HTML; imported with ``import stash``, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, whose import would take longer than all of Stash's front
if TYPE_CHECKING:
    from collections.abc import Callable

_shown: list[Callable[[object], str]] = []


def show_with(render: Callable[[object], str]) -> None:
    """Show records as ``render`` makes them from now on."""
    _shown[:] = [render]


def html_of(record: object) -> str | None:
    """A record as a fragment of HTML, or ``None`` where nothing was named to make one."""
    return _shown[0](record) if _shown else None

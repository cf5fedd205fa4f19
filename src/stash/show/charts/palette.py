"""The colours of series: of every stall, everywhere the same, and of what is told apart besides.

After Okabe and Ito (2008, "Color Universal Design"), whose colours people with any common colour blindness tell
apart; yellow, which paper swallows, gave way to a wine red, and for a dark page all of them are lighter. A test holds
the distances as the colour-blind see them. No chart tells anything by colour alone. ``shade`` is for what is no
stall; ``heat`` is the strongest ground of a matrix, on which words are still read.
"""

from __future__ import annotations

from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "compute": "#009e73",
    "transfer": "#56b4e9",
    "contention": "#0072b2",
    "interconnect": "#e69f00",
    "network": "#d55e00",
    "prep": "#cc79a7",
    "fetch": "#994477",
    "plain": "#8792a0",
    "slower": "#d55e00",
    "faster": "#009e73",
    "shade": "#084f96",
    "heat": "#5a92d0",
}
DARK: Mapping[str, str] = {
    "compute": "#2fbf94",
    "transfer": "#8fd0f7",
    "contention": "#3d94d6",
    "interconnect": "#f2b632",
    "network": "#f0803c",
    "prep": "#e6a5c8",
    "fetch": "#b8558a",
    "plain": "#6f7c8a",
    "slower": "#f0803c",
    "faster": "#2fbf94",
    "shade": "#7cc0f5",
    "heat": "#2b6aa0",
}
NOTEBOOK = {**LIGHT, "fetch": DARK["fetch"], "contention": DARK["contention"]}
"""For a page of which nobody knows whether it is light or dark."""
INK, MUTED, LINES = "#1b1f24", "#5a6472", "#d9dee4"
"""Of paper: text, quiet text, lines of the grid."""


def series(name: str, *tones: str) -> str:
    """The class of a series, behind others; one that has no colour is ``plain``."""
    return " ".join((*filter(None, tones), f"s-{name if name in LIGHT else 'plain'}"))

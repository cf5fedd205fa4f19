"""Telling Stash's own options from the job's: options before the target are ours, all after it is the job's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """``own`` options for Stash; then a ``kind`` (script, module, command, or none) and its words."""

    own: tuple[str, ...]
    kind: str
    words: tuple[str, ...] = ()


def split(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> Split:
    """Split a command line at the job's first word.

    ``takes_value`` says of each of our option names whether a value follows. An unknown option is left to
    the parser to complain about.
    """
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word == "--":
            return Split(tuple(arguments[:index]), "command", tuple(arguments[index + 1 :]))
        if word == "-m":
            return Split(tuple(arguments[:index]), "module", tuple(arguments[index + 1 :]))
        if not word.startswith("-") or word == "-":
            return Split(tuple(arguments[:index]), "script", tuple(arguments[index:]))
        index += 2 if takes_value.get(word, False) else 1
    return Split(tuple(arguments), "none")


def value_takers(options: Iterable[tuple[Sequence[str], bool]]) -> dict[str, bool]:
    """``takes_value`` out of (names, takes a value) of each option."""
    return {name: takes for names, takes in options for name in names}

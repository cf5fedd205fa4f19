"""Telling Stash's own options from the job's: options before the target are ours, all after it is the job's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from stash.cli.options import OneCommand


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


def value_takers(parameters: Iterable[Any]) -> dict[str, bool]:
    """``takes_value`` of a command's parameters, as typer has parsed them from its function."""
    options = [p for p in parameters if p.param_type_name == "option"]
    return {name: not p.is_flag and not p.count for p in options for name in (*p.opts, *p.secondary_opts)}


class ProfileCommand(OneCommand):
    """Takes the job's words off the command line before typer parses the rest; ``ctx.obj`` is the ``Split``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.obj = split(args, value_takers(self.params))
        return super().parse_args(ctx, list(ctx.obj.own))

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return ["[OPTIONS]", "(SCRIPT [ARGS…] | -m MODULE [ARGS…] | --workload NAME | -- COMMAND…)"]

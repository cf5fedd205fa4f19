"""The command line as typed: Stash's own options told from the job's, and output whose reader may leave."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer

from stash.ui.commands import OneCommand

# Telling Stash's own options from the job's: options before the target are ours, all after it is the job's.


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


# Standard output and standard error whose reader may leave: a closed terminal, a pipe into ``head``.
#
# What was to be read there is lost, and nothing else: a measurement goes on, and its profile is saved. So it is
# with letters that the terminal's encoding does not have, which are written as escapes.

_NOBODY_READS = (errno.EPIPE, errno.EIO)


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """Within the block, writing to nobody is no error; streams that are no files (a test's) are left as they are."""
    before = {"stdout": sys.stdout, "stderr": sys.stderr}
    for name, stream in before.items():
        try:
            file = _Unread(stream.fileno(), "wb", closefd=False)
        except (OSError, ValueError, AttributeError):
            continue
        stream.flush()
        # In the C locale bytes of names that are no text go out as they came in; all else that fails is escaped.
        as_it_is = (stream.encoding, stream.errors) == ("utf-8", "surrogateescape")
        errors = stream.errors if as_it_is else "backslashreplace"
        patient = io.TextIOWrapper(io.BufferedWriter(file), stream.encoding, errors, line_buffering=True)
        setattr(sys, name, patient)
    try:
        yield
    finally:
        for name, stream in before.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)


class _Unread(io.FileIO):
    """A file that takes what nobody reads."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NOBODY_READS:
                raise
            return memoryview(data).nbytes

"""The command line as typed: Stash's own options separated from the job's, and output whose reader may leave."""

from __future__ import annotations

import errno
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from stash.core.errors import UserError
from stash.core.files import read_up_to
from stash.ui.commands import OneCommand, note

# Telling Stash's own options from the job's: options before the target are ours, all after it is the job's.


@dataclass(frozen=True)
class Split:
    """``own`` options for Stash; then a ``kind`` (script, module, command, or none) and its words."""

    own: tuple[str, ...]
    kind: str
    words: tuple[str, ...] = ()


def split_command(arguments: Sequence[str], takes_value: Mapping[str, bool]) -> Split:
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
        if is_launcher(word):
            return Split(tuple(arguments[:index]), "command", tuple(arguments[index:]))
        if not word.startswith("-") or word == "-":
            return Split(tuple(arguments[:index]), "script", tuple(arguments[index:]))
        index += 2 if takes_value.get(word, False) else 1
    return Split(tuple(arguments), "none")


_LAUNCHERS = re.compile(
    r"torchrun|accelerate|deepspeed|colossalai|composer|horovodrun|srun|mpirun|mpiexec|python[0-9.]*|uv|poetry|numactl|env|bash|sh"
)


def is_launcher(word: str) -> bool:
    """Whether the first word is a program that starts the job, and no script of that name is here."""
    return _LAUNCHERS.fullmatch(Path(word).name) is not None and not (
        Path(word).is_file() and "/" not in word
    )


def value_takers(parameters: Iterable[Any]) -> dict[str, bool]:
    """``takes_value`` of a command's parameters, as typer has parsed them from its function."""
    options = [p for p in parameters if p.param_type_name == "option"]
    return {
        name: not p.is_flag and not p.count
        for p in options
        for name in (*p.opts, *p.secondary_opts)
    }


def note_strays(found: Split, known: Iterable[str], name: str) -> None:
    """Say which options of Stash, of all that are ``known``, stand after the job's name and are hardly the job's.

    The job may well have a ``--batch`` or an ``-o`` of its own, and a note each time would soon be ignored.
    So there is a note only where the job cannot have it: nothing of that name stands in the script, nor in the files
    next to it that the script may take its parser from. A launcher's own options, before the script, are its own. Of
    a package, whose source is not looked for, only the value tells: nothing else writes profiles.
    """
    job = _started_script(found)
    names = find_strays(job, known)
    if names:
        start = found.words[0] if found is job else f"{found.words[0]} …"
        stand, go, are = (
            ("comes", "is passed", "it is")
            if len(names) == 1
            else ("come", "are passed", "they are")
        )
        note(
            f"{' and '.join(f'`{each}`' for each in names)} {stand} after {job.words[0]} and {go} to the {job.kind}; "
            f"if {are} meant for Stash, type `stash {name} {' … '.join(names)} … {start}`"
        )


def _started_script(found: Split) -> Split:
    """The script that a launcher starts with its own words, where one is here; else what was found."""
    if found.kind == "command":
        for number, word in enumerate(found.words):
            if word.endswith(".py") and Path(word).is_file():
                return Split(found.own, "script", found.words[number:])
    return found


def find_strays(found: Split, known: Iterable[str]) -> list[str]:
    """Find those options, each once."""
    ours = set(known) - {"-h", "--help"}
    words = found.words[1:]
    given = [word.partition("=") for word in words]
    values = [
        value if equals else after
        for (_, equals, value), after in zip(given, [*words, ""][1:], strict=True)
    ]
    named = {name: value for (name, _, _), value in zip(given, values, strict=True) if name in ours}
    text = _source(found) if named else None
    return [
        name
        for name, value in named.items()
        if value.endswith(_PROFILE) or (text is not None and not _stands_in(name, text))
    ]


_PROFILE = ".stash.json"
_MAX_SOURCE = 1 << 20
"""Bytes that are read of a file."""


def _source(found: Split) -> str | None:
    """The script and the files next to it; ``None`` if it is no file of Python."""
    script = Path(found.words[0])
    if found.kind != "script" or script.suffix != ".py":
        return None
    try:
        texts = [read_up_to(path, _MAX_SOURCE) for path in (script, *script.parent.glob("*.py"))]
    except OSError:
        return None
    return b"\n".join(texts).decode(errors="replace")


def _stands_in(name: str, text: str) -> bool:
    """Whether an option, one that it abbreviates, or a field that it is made of stands in a source."""
    if not name.startswith("--"):
        return f'"{name}"' in text or f"'{name}'" in text
    return re.search(rf"\b{'[-_]'.join(map(re.escape, name[2:].split('-')))}", text) is not None


class ProfileCommand(OneCommand):
    """Takes the job's words off the command line before typer parses the rest; ``ctx.obj`` is the ``Split``."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        takes_value = value_takers(self.params)
        ctx.obj = split_command(args, takes_value)
        if ctx.resilient_parsing:
            return super().parse_args(ctx, list(ctx.obj.own))
        quiet = not {"-q", "--quiet"}.isdisjoint(ctx.obj.own)
        if not quiet and ctx.obj.kind == "command" and "--" not in args[: len(ctx.obj.own) + 1]:
            note(f"the job is started by `{ctx.obj.words[0]}`, as if `--` stood before it")
        self._refuse_options_of_the_job(ctx.obj, takes_value, str(ctx.info_name))
        if not quiet and not any(word.startswith("--workload") for word in ctx.obj.own):
            note_strays(ctx.obj, takes_value, str(ctx.info_name))
        return super().parse_args(ctx, list(ctx.obj.own))

    def _refuse_options_of_the_job(
        self, found: Split, takes_value: Mapping[str, bool], name: str
    ) -> None:
        """Raise UserError for an option before the job that this command does not have: where it belongs."""
        for word in found.own:
            option = word.partition("=")[0]
            if not option.startswith("--") or option in takes_value or option == "--help":
                continue
            alike = get_close_matches(option, takes_value, n=1, cutoff=0.75)
            meant = f" (did you mean {alike[0]}?)" if alike else ""
            raise UserError(
                f"stash {name} has no option {option}{meant}; an option of the script goes after the script: "
                f"`stash {name} train.py {option} …`"
            )

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """After the job's name come its own words: the shell offers files."""
        return super().shell_complete(ctx, incomplete) if ctx.obj.kind == "none" else []

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        zoo = " | --workload NAME" if any(each.name == "workload" for each in self.params) else ""
        return ["[OPTIONS]", f"(SCRIPT [ARGS…] | -m MODULE [ARGS…]{zoo} | -- COMMAND…)"]


# Standard output and standard error whose reader may leave, as ``head`` does: what was to be read there is lost,
# and nothing else. Letters that the terminal's encoding does not have are written as escapes.

_READER_GONE = (errno.EPIPE, errno.EIO)


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """Within the block, writing to a closed pipe is no error; streams that are no files stay as they are."""
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
        patient = io.TextIOWrapper(
            io.BufferedWriter(file), stream.encoding, errors, line_buffering=True
        )
        setattr(sys, name, patient)
    try:
        yield
    finally:
        for name, stream in before.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)


class _Unread(io.FileIO):
    """A file that accepts writes after its reader has left."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _READER_GONE:
                raise
            return memoryview(data).nbytes

"""Text from anywhere made fit for a terminal, a log or a report: what would act there instead of being read is shown.

A host's name, an exception, a line of a price list can hold control sequences that set the window's title or clear
the screen, and marks that make text read in another order than it is written. Applied where text leaves, not where
it is kept: what was measured stays as it was.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

MAX_LINES_CHARACTERS = 20_000
"""Of a text of several lines: some screens full."""
MAX_SENTENCE_CHARACTERS = 2_000
"""Of a sentence, a name, a cell of a table."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ACTS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, delete, C1
    r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # marks and overrides of direction, other line ends
    r"\ufff9-\ufffb\ud800-\udfff]"  # annotations; halves of characters, which no encoding has
)


_ESCAPED_BYTES = re.compile("[\udc80-\udcff]+")
"""How Python has bytes of arguments and file names that it could not decode."""
_HALVES = re.compile("[\ud800-\udfff]")
"""Of characters, which no encoding has."""


def escape_bytes(text: str) -> str:
    """``text`` as any encoding can hold it: a byte that is no text is written as ``\\xff``.

    Where only the locale knew no UTF-8, such bytes are text after all.
    """
    text = _ESCAPED_BYTES.sub(
        lambda found: (
            found[0].encode("ascii", "surrogateescape").decode("utf-8", "backslashreplace")
        ),
        text,
    )
    return _HALVES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable(text: str) -> str:
    """``text`` of one line or several, with every character that would act on a terminal as its escape: ``\\x1b``."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _ACTS.sub(escape, _COLOURS.sub("", text.replace("\r\n", "\n")))


def printable_line(text: str, most: int = MAX_SENTENCE_CHARACTERS) -> str:
    """The same in one line of not much more than ``most`` characters: a name, a sentence, a cell of a table."""
    return printable(shorten_text(text, most)).replace("\n", "\\n").replace("\t", " ")


_chosen: list[bool] = []
"""What ``--color`` says: nothing, or whether to use colours."""


def choose_colours(when: str) -> None:
    """From now on use colours as ``--color`` says: "auto", "always" or "never"."""
    _chosen[:] = [] if when == "auto" else [when == "always"]


def has_colours(on_terminal: bool, environment: Mapping[str, str]) -> bool:
    """Whether to use colours: ``--color`` counts before ``NO_COLOR``, then ``FORCE_COLOR``, the terminal last."""
    if _chosen:
        return _chosen[0]
    if environment.get("NO_COLOR"):
        return False
    return bool(environment.get("FORCE_COLOR")) or (
        on_terminal and environment.get("TERM") != "dumb"
    )


def print_note(note: str, json: bool) -> None:
    """Print a note on standard error where standard output is JSON, which must hold nothing else."""
    print(printable_line(note), file=sys.stderr if json else sys.stdout)


def print_written(file: object, json: bool, more: str = "") -> None:
    """Say what ``-o`` wrote, the same of every command: on standard error where standard output carries data.

    ``more`` goes on with the sentence.
    """
    print_note(f"Wrote {file}{more}.", json)


def shorten_text(text: str, most: int) -> str:
    """``text``, or its beginning and its end around how much was left out between them."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end]} … [{len(text) - most} characters left out] … {text[-end:]}"


def last_of(text: str, most: int = MAX_LINES_CHARACTERS) -> str:
    """The last ``most`` characters of ``text``, from the beginning of a line if there is one; what failed is last."""
    if len(text) <= most:
        return text
    kept = text[-most:]
    return f"[{len(text) - most} characters left out] …\n{kept.partition(chr(10))[2] or kept}"


def strict_json(document: Any, indent: int = 1) -> str:
    """``document`` as JSON that every program can read and every terminal can show; raises ValueError for NaN."""
    return _ACTS.sub(
        lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}",
        json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False),
    )

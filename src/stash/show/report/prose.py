"""Sentences as HTML: printable, escaped, and with what is typed somewhere set as code."""

from __future__ import annotations

import re
from html import escape

from stash.base.printable import printable_line

_TYPED = re.compile("`([^`]+)`")


def prose(text: str) -> str:
    """A sentence in which what stands between backticks is code."""
    return _TYPED.sub(r"<code>\1</code>", escape(printable_line(text)))

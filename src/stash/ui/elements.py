"""Elements of HTML and SVG: the one place of ``show`` that writes markup, so that no text can become any.

Names of elements and attributes come from code; whatever stands in them is made printable and escaped, unless it was
built here. A link leads within the page or to a file next to it, never to a scheme. Knows nothing of what is shown.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from stash.core.printable import printable, printable_line

Attribute = str | float | None
_NAME = re.compile(r"[a-z][a-zA-Z0-9]*")
_IS_CODE = frozenset(
    ("script", "style", "iframe", "object", "embed", "base", "meta", "form", "foreignObject")
)
"""Elements that act: the page's template has what it needs of them, and a drawing has ``style_sheet``."""
_TYPED = re.compile("`([^`]+)`")


def element(name: str, *inside: str, **attributes: Attribute) -> Markup:
    """One element with what is in it; ``text_anchor=`` is the attribute ``text-anchor``, ``class_=`` is ``class``.

    An attribute that is ``None`` or empty is left out; a number has no needless digits. Raises ValueError for a name
    that no drawing has.
    """
    if not _NAME.fullmatch(name) or name in _IS_CODE:
        raise ValueError(f"no element {name!r} is built from what was read")
    opened = name + "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    if not inside:
        return Markup("<" + opened + "/>")
    return Markup("<" + opened + ">" + "".join(map(_escape_text, inside)) + "</" + name + ">")


def style_sheet(rules: str) -> Markup:
    """A style sheet of Stash's own rules; raises ValueError for what would end it."""
    if "<" in rules:
        raise ValueError("a style sheet holds no markup")
    return Markup("<style>" + rules + "</style>")


def prose_markup(text: str) -> Markup:
    """A sentence in which what stands between backticks is code."""
    parts = _TYPED.split(printable_line(text))
    return Markup("").join(
        element("code", part) if at % 2 else part for at, part in enumerate(parts)
    )


def local_address(address: str) -> str:
    """``address`` as a place within this page (``#row``) or as a file near it, also where it looks like a scheme."""
    plain = address.lstrip("/\\ ")
    is_safe = address.startswith("#") or (":" not in plain and plain == address)
    return address if is_safe else f"./{plain}"


def short_number(number: float) -> str:
    """A number of pixels without needless digits."""
    return f"{number:.1f}".rstrip("0").rstrip(".")


def _escape_text(text: str) -> str:
    return str(text) if isinstance(text, Markup) else str(escape(printable_line(text)))


def _attribute(key: str, value: str | float) -> str:
    name = key.rstrip("_").replace("_", "-")
    if name.startswith("on") or name == "style":
        raise ValueError(f"no attribute {name!r} is built from what was read")
    if not isinstance(value, str):
        text = short_number(value)
    else:
        text = str(escape(printable(local_address(value) if name == "href" else value)))
    return " " + name + '="' + text + '"'

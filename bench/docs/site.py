"""What makes pages of ``docs/`` into pages of the site: mkdocs calls what is here (``hooks:`` in mkdocs.yml).

Pages are written for GitHub, where they are read too. Links to files that the site does not have lead to the
repository, and pages of the reference get what stands nowhere but in the source.
"""

from __future__ import annotations

import os
import re
from typing import Any

from bench.docs import columns, options
from bench.docs import format as formats

ON_THE_WEB = "https://github.com/stash-ddl/stash/blob/main/"
GENERATED = {"commands": options.page, "fields": formats.page, "columns": columns.page}
"""What a page has in place of ``<!-- generated: NAME -->``."""
OFF_SITE = ("docs/decisions/", "docs/log.md")
"""Pages that are read in the repository alone: ``exclude_docs`` of mkdocs.yml."""
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def anchor(heading: str, separator: str = "-") -> str:
    """The anchor that GitHub gives a heading, so that links work there and on the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", separator)


def outward(text: str, folder: str) -> str:
    """A page of ``docs/FOLDER`` whose links to files that the site lacks lead to the repository on the web."""

    def resolve_link(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join("docs", folder, link[1]))
        on_site = path.startswith("docs/") and not path.startswith(OFF_SITE)
        return link[1] if on_site else ON_THE_WEB + path

    return _LINK.sub(resolve_link, text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    text = outward(markdown, os.path.dirname(page.file.src_uri))
    return MARK.sub(lambda mark: GENERATED[mark[1]](), text)

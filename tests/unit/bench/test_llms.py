"""``docs/llms.txt``: every page with what it says first, as ``python -m bench.docs.llms`` writes it."""

from __future__ import annotations

import re

from bench.docs.llms import DOCS, text


def test_the_file_is_what_the_command_writes():
    assert (DOCS / "llms.txt").read_text() == text(), "python -m bench.docs.llms writes it again"


def test_every_page_is_in_it_and_there_with_a_description():
    found = re.findall(r"^- \[(.+?)\]\((.+?)\): (.{20,})$", text(), re.MULTILINE)
    pages = {
        str(page.relative_to(DOCS)) for page in (*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md"))
    }
    assert {page for _, page, _ in found} == pages - {"index.md", "log.md"}
    assert len(text().encode()) < 10_000
    assert "```" not in text()

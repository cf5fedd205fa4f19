"""``docs/llms.txt``: pages for programs that read (https://llmstxt.org); ``python -m bench.docs.llms`` writes it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SHORT = 30
"""Letters of a sentence that says too little alone."""
_HEAD = """# Stash

> Stash profiles PyTorch training jobs without changing them, and attributes every millisecond of a step to compute
> or to a stall (transfer, contention, interconnect, network, prep, fetch), with 95 % intervals; predicts steps on
> other machines; says what to rent.

Start with `stash profile train.py`; `stash show FILE --json` has the result for programs. An agent has the same as
tools of `stash mcp`, whose answers are short. Commands given `--json` print errors as
`{"error": {"code": ..., "message": ...}}`.
"""


def text() -> str:
    """The whole file."""
    how_to = sorted((DOCS / "how-to").glob("*.md"))
    left_out = ("index.md", "log.md")  # the map itself, and what the site does not have
    others = [page for page in sorted(DOCS.glob("*.md")) if page.name not in left_out]
    sections = {"Guides": how_to, "Concepts and reference": others}
    parts = [
        f"## {title}\n\n" + "".join(_entry(page) for page in pages)
        for title, pages in sections.items()
    ]
    return "\n".join([_HEAD, *parts])


def _entry(page: Path) -> str:
    content = page.read_text()
    title = content.partition("\n")[0].removeprefix("# ")
    prose = [
        part
        for part in _FENCE.sub("", content).split("\n\n")[1:]
        if re.match(r"(?!```)[A-Z`*\[\d]", part.strip())
    ]
    sentences = (
        re.split(r"(?<=[.:])\s", _LINK.sub(r"\1", " ".join(prose[0].split()))) if prose else [""]
    )
    text = sentences[0] if len(sentences[0]) > _SHORT else " ".join(sentences[:2])
    text = text.rstrip(":").removesuffix(".")
    return f"- [{title}]({page.relative_to(DOCS)}){f': {text}' if text else ''}\n"


if __name__ == "__main__":
    (DOCS / "llms.txt").write_text(text())

"""Check that links between Markdown files lead somewhere: ``links.py FILE_OR_FOLDER...``; prints the dead ones.

Links to files of this repository on the web, which the README needs on PyPI's page, are held against the checkout.
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
ROOT = Path(__file__).resolve().parent.parent
OURS = re.compile(r"https://github\.com/stash-ddl/stash/(?:blob|tree)/main/?")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    headings = re.findall(r"^#+\s+(.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


def dead_links(page: Path) -> list[str]:
    """Links of one page whose file or heading does not exist; links to the web are not followed."""
    dead = []
    for match in LINK.finditer(FENCE.sub("", page.read_text())):
        link = match[1] or match[2]
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if OURS.match(link):
            target = ROOT / OURS.sub("", name)
        elif re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            dead.append(f"{page}: {link}")
    return dead


def main(roots: list[str]) -> int:
    pages = [
        p
        for root in map(Path, roots)
        for p in ([root] if root.is_file() else sorted(root.rglob("*.md")))
    ]
    dead = [link for page in pages for link in dead_links(page)]
    print("\n".join(dead) if dead else f"{len(pages)} pages, no dead links")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

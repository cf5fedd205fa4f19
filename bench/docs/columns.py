"""The columns of the catalog's data files, from their head lines; docs/catalog.md says what is worth a word."""

from __future__ import annotations

from pathlib import Path

from stash.catalog import shipped

DATA = Path(shipped.__file__).parent / "data"
EVERYWHERE = ("as_of", "source", "notes")


def page() -> str:
    """A table of the files and their columns."""
    table = ["| file | columns |", "|---|---|"]
    for path in sorted(DATA.glob("*.csv")):
        named = (f"`{name}`" for name in shipped.read_rows(path.name)[0] if name not in EVERYWHERE)
        table.append(f"| `{path.name}` | {', '.join(named)} |")
    return "\n".join(table)

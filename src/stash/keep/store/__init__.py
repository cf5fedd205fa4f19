"""A store: a folder or any fsspec URL of artefacts that never change, found by what is in them.

    STORE/20261122T104337Z-3f9a….stash.json   an artefact: the truth; its name says when, and what is in it
    STORE/anything.stash.json                 a file somebody put there: read as it is, each time
    STORE/index/digests/NAME.jsonl            what is derived from one artefact, so that nobody derives it again
    STORE/index/tables.json                   which tables are the newest …
    STORE/index/tables-GENERATION/*.parquet   … and those: all digests and blocks as tables

Everything in ``index/`` is a cache: it may be deleted at any time, and is made anew from the artefacts. What is
derived comes from above (``Deriver``): this room moves rows and knows nothing of what they mean.
"""

from stash.keep.store.compaction import Compacted, compact
from stash.keep.store.digests import Deriver
from stash.keep.store.queries import QueryAnswer, query
from stash.keep.store.shelves import opened
from stash.keep.store.store import Store
from stash.keep.store.tables import TABLES, TableColumn, TableRow, TableRows
from stash.keep.store.verification import Suspect, verify

__all__ = [
    "TABLES",
    "Compacted",
    "Deriver",
    "QueryAnswer",
    "Store",
    "Suspect",
    "TableColumn",
    "TableRow",
    "TableRows",
    "compact",
    "opened",
    "query",
    "verify",
]

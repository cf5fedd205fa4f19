"""Profiles and probes as rows of tables: what a store keeps of each, and what ``stash.frame`` makes of several.

The columns are defined in ``keep/store/tables.py``; what stands in them is derived here. Pure.
"""

from stash.derive.tables.frames import frame
from stash.derive.tables.rows import block_rows, digest_rows

__all__ = ["block_rows", "digest_rows", "frame"]

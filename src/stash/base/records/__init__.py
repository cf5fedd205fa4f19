"""The saved artefacts, as frozen, versioned records: what was measured, nothing derived from it.

Times are in seconds, sizes in bytes, fractions between 0 and 1; ``None`` means "not known" everywhere and is
never written as zero. ``docs/format.md`` describes every field.

History of the schema: 1, November 2026, the first. Later the same month hosts gained their probed links and
more of their identity, all of it optional. 2, the same month: blocks in columns (``stash.keep.columns``).
"""

from stash.base.records.base import SCHEMA, SUFFIX, Record, now
from stash.base.records.host import (
    Copy,
    Disk,
    DiskRead,
    Exchange,
    Gpu,
    Host,
    Limits,
    Links,
    Nic,
    Preparation,
    Probe,
    Route,
    Stream,
    Timing,
    Unmeasured,
)
from stash.base.records.profile import (
    Block,
    Collective,
    Gradient,
    Launch,
    Loader,
    Profile,
    Rank,
    Rate,
    Settings,
    Skipped,
    Workload,
)

__all__ = [
    "SCHEMA",
    "SUFFIX",
    "Block",
    "Collective",
    "Copy",
    "Disk",
    "DiskRead",
    "Exchange",
    "Gpu",
    "Gradient",
    "Host",
    "Launch",
    "Limits",
    "Links",
    "Loader",
    "Nic",
    "Preparation",
    "Probe",
    "Profile",
    "Rank",
    "Rate",
    "Record",
    "Route",
    "Settings",
    "Skipped",
    "Stream",
    "Timing",
    "Unmeasured",
    "Workload",
    "now",
]

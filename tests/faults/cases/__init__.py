"""All cases of the fault matrix, in the order of its table; each module has a list ``CASES``."""

from importlib import import_module

KINDS = (
    "signals",
    "endings",
    "scripts",
    "environments",
    "disks",
    "inputs",
    "networks",
    "concurrency",
    "clocks",
    "mcp",
    "action",
    "watch",
    "fix",
    "run",
    "parsers",
)
"""Modules of this package."""


def all_cases():
    """Every case; names are unique within a kind."""
    return [case for kind in KINDS for case in import_module(f"{__name__}.{kind}").CASES]

"""Where the catalog's own files live on this machine.

``STASH_HOME`` wins over ``XDG_CACHE_HOME`` and ``XDG_CONFIG_HOME``, which win over ``~/.cache`` and ``~/.config``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def snapshot_file(environment: Mapping[str, str] | None = None) -> Path:
    """The snapshot that ``stash catalog refresh`` writes; it need not exist."""
    return _folder(environment, "XDG_CACHE_HOME", ".cache") / "catalog.json"


def own_file(environment: Mapping[str, str] | None = None) -> Path:
    """The user's own instances; it need not exist."""
    return _folder(environment, "XDG_CONFIG_HOME", ".config") / "instances.yaml"


def _folder(environment: Mapping[str, str] | None, variable: str, default: str) -> Path:
    given = os.environ if environment is None else environment
    if given.get("STASH_HOME"):
        return Path(given["STASH_HOME"]).expanduser()
    return Path(given.get(variable) or Path.home() / default).expanduser() / "stash"

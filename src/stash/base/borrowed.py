"""Modules that Stash needs in a job's interpreter which may lack them: taken from where Stash itself is installed.

That folder is on the interpreter's path only for the import, since a job whose environment is another must not find
there what it was not given. Whether what is found fits the interpreter shows when it is imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

_HOME = str(Path(__file__).resolve().parents[2])


def borrowed(name: str) -> ModuleType:
    """The module of that name, the interpreter's own if it has one; raises ImportError if there is none."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        if _HOME in sys.path:
            raise
    sys.path.append(_HOME)
    try:
        return import_module(name)
    finally:
        sys.path.remove(_HOME)

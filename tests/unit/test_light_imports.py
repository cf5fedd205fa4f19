"""What modules load that others wait for: of a training process, of a watcher, of every command."""

from __future__ import annotations

import subprocess
import sys

LIGHT = {
    "stash.core.ladder": {"torch", "numpy", "scipy", "pydantic"},  # in other people's training processes
    "stash.core.imports": {"torch", "numpy"},
    "stash.core.rounds": {"torch", "scipy.stats"},
    "stash.monitor.watcher": {"torch", "scipy.stats", "rich"},
}
"""Modules in the order in which one process imports them, and what none of them may have loaded by then."""


def test_modules_load_no_library_that_they_can_do_without() -> None:
    program = (
        "import importlib, sys\n"
        f"for name, heavy in {LIGHT!r}.items():\n"
        "    importlib.import_module(name)\n"
        "    assert not heavy & sys.modules.keys(), (name, heavy & sys.modules.keys())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

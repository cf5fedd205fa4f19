"""What modules load that others wait for: of a training process, of a watcher, of every command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIGHT = {
    "stash.core.ladder": {
        "torch",
        "numpy",
        "scipy",
        "pydantic",
    },  # in other people's training processes
    "stash.core.imports": {"torch", "numpy"},
    "stash.core.rounds": {"torch", "scipy.stats"},
    "stash.monitor.watcher": {"torch", "scipy.stats", "rich"},
}
"""Modules in the order in which one process imports them, and what none of them may have loaded by then."""


def test_modules_load_no_library_that_they_can_do_without():
    program = (
        "import importlib, sys\n"
        f"for name, heavy in {LIGHT!r}.items():\n"
        "    importlib.import_module(name)\n"
        "    assert not heavy & sys.modules.keys(), (name, heavy & sys.modules.keys())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("show", "tests/golden/one-node.stash.json"), 121),  # with the energy of a step
        (
            ("profile", "--dry-run", "examples/ddp.py"),
            84,
        ),  # nothing that judges: it is loaded once the script runs
    ],
)
def test_commands_load_few_modules_of_stashs_own(words, most):
    program = (
        "import sys\n"
        "from stash.cli.main import main\n"
        "from stash.measure import restore_command\n"
        "restore_command.restore_what_is_left = bool  # what killed runs of others left loads more\n"
        f"sys.argv = ['stash', *{words!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "print(sum(name.partition('.')[0] == 'stash' for name in sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert int(done.stderr.split()[-1]) <= most, done.stderr

"""A command of ``stash`` in the test's own process: what it prints is captured, what it ends with is returned."""

import pytest

from stash.cli.main import main


def run(monkeypatch, *words):
    """The exit code of ``stash WORDS``."""
    monkeypatch.setattr("sys.argv", ["stash", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)

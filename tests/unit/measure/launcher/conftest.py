"""What tests of launches share."""

import pytest

from stash.measure.launcher import launches


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where launches that fail leave their log; minutes in which nothing happens are looked at twice a second."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(launches, "_TICK", 0.5)

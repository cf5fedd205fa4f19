"""What tests of a watch need around them."""

import pytest

from stash.measure.protocol import stamped


@pytest.fixture
def unix_is_monotonic(monkeypatch):
    """Rings that are made tell the clock of the test as it is."""
    monkeypatch.setattr(stamped.time, "time", lambda: 0.0)
    monkeypatch.setattr(stamped.time, "monotonic", lambda: 0.0)

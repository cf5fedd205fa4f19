"""What tests of launches share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where launches that fail leave their log."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

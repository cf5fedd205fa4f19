"""The browser that all pages of one file are looked at with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import Chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    started = Chromium(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()

"""The browser that all pages of one file are looked at with."""

import pytest
from chromium import Chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Chromium(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()

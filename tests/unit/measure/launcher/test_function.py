"""``stash.profile`` of a function: what it refuses before anything is started."""

from __future__ import annotations

import pytest

from stash.core.errors import UserError
from stash.measure.launcher.function import profile


@pytest.mark.parametrize("precision", [2, 1.0, 0, -0.1, float("nan")])
def test_per_cent_is_refused_where_a_fraction_is_meant(precision: float) -> None:
    with pytest.raises(UserError, match=r"write 0\.02 for the ±2 % that the command calls --precision 2"):
        profile(print, precision=precision)

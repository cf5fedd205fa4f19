"""The bounds that ``bench.predict.gpus`` prints beside Stash's forecasts."""

from __future__ import annotations

import pytest

from bench.predict import gpus
from stash.catalog.reference import Speed


def test_what_others_tell_of_a_model_on_the_very_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN three models, two of which take twice as long on a K80 as on a V100, and one four times
    cases = [_case(model, ratio) for model, ratio in (("a", 2.0), ("b", 2.0), ("c", 4.0))]
    monkeypatch.setattr(gpus, "_by_set", lambda: {"some": cases})
    # THEN the median of the others is off by √2 for the first two, and by half for the last
    line = next(line for line in gpus.blind().splitlines() if line.startswith("| some"))
    assert "41.4% / 48.3%" in line
    # 2.6 times is within 30 % of twice, not of four times
    assert line.rstrip(" |").endswith("67%")


def _case(model: str, ratio: float) -> gpus.Case:
    fast = Speed(model, 64, "fp32", "V100", ratio, None, "a source", "a series")
    return gpus.Case(fast, fast._replace(gpu="K80", per_second=1.0))

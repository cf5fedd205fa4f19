"""The bounds that ``bench.plan.published`` and ``bench.predict.gpus`` print beside Stash's choices and forecasts."""

from __future__ import annotations

import numpy as np
import pytest

from bench.plan.published import SAMPLES, Forecast, Question
from bench.plan.tables import Job, Setup
from bench.predict import gpus
from stash.catalog.reference import Speed

VISIBLE = Setup("V100", 1, 1, "one machine")
ONE, OTHER = Setup("V100", 4, 1, "one machine"), Setup("V100", 8, 1, "one machine")


def question(one: tuple[float, ...], other: tuple[float, ...]) -> Question:
    """Draws of seconds and dollars alike; the visible set-up takes so long that no deadline is near."""
    forecasts = {setup.name: Forecast(np.array(each), np.array(each)) for setup, each in ((ONE, one), (OTHER, other))}
    job = Job("a source", "a model", None, "fp32")
    return Question(job, {VISIBLE: SAMPLES / 1e9}, (ONE, OTHER), {}, forecasts)


def test_who_knows_which_is_cheaper_need_regret_nothing():
    assert set(question((1.0, 2.0), (2.0, 3.0)).least_regrets()) == {0.0}


def test_who_cannot_know_it_regrets_half_of_the_difference_at_least():
    # GIVEN two set-ups, of which each is the cheaper one in half of the draws: 2 for 1, and 3 for 1
    least = set(question((2.0, 1.0), (1.0, 3.0)).least_regrets())
    # THEN the first costs (2/1 - 1 + 0) / 2 more than the best, the second (0 + 3/1 - 1) / 2
    assert least == {0.5}


def test_of_what_keeps_no_limit_only_the_goal_without_one_is_judged():
    assert len([*question((1e12, 1e12), (1e12, 1e12)).least_regrets()]) == 1


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

"""What an answer says of the data agrees with the stalls beside it, and with the profile's own reading."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from forecast_profiles import gpu_job

from stash.core.artefact import load
from stash.predict.changes import Alteration
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of
from stash.whatif.answers import WhatIf, answered
from stash.whatif.page import page

SQUEEZENET = Path(__file__).parents[3] / "docs/pictures/squeezenet1_0.stash.json"


def suffices(answer: WhatIf) -> str:
    return dict(page(answer).chapters[0].facts)["suffices"]


def test_workers_that_keep_up_are_not_said_to_hide_a_prep_stall_that_is_there() -> None:
    answer = answered(base_of(load(SQUEEZENET), draws=Draws(64)), Alteration())
    assert answer.next.name == "prep"
    assert answer.data is not None
    assert answer.data.workers is not None
    assert answer.data.workers <= answer.data.workers_now == 2
    sentences = suffices(answer)
    assert "hide" not in sentences
    assert (
        "it has 2, so the 27.6 ms of prep are what loading slows training by: cheaper samples take that" in sentences
    )


def test_too_few_workers_are_what_is_said_where_they_are_too_few() -> None:
    base = base_of(gpu_job(), draws=Draws(64))
    answer = answered(base, Alteration(workers=1))
    assert answer.data is not None
    assert answer.data.workers is not None
    assert answer.data.workers > answer.data.workers_now == 1
    assert "it has 1" not in suffices(answer)
    assert "it has" not in suffices(replace(answer, data=replace(answer.data, workers=None)))

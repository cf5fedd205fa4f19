"""What an answer says of the data agrees with the stalls beside it, and with the profile's own reading."""

from dataclasses import replace
from pathlib import Path

from forecast_profiles import gpu_job
from profile_builder import build, ledger

from stash.core.artefact import load
from stash.predict.changes import Alteration
from stash.predict.draws import Draws
from stash.predict.forecasting import base_of
from stash.whatif.answers import answer_question
from stash.whatif.page import page

SQUEEZENET = Path(__file__).parents[3] / "docs/pictures/squeezenet1_0.stash.json"


def suffices(answer):
    return dict(page(answer).chapters[0].facts)["suffices"]


def test_workers_that_keep_up_are_not_said_to_hide_a_prep_stall_that_is_there():
    answer = answer_question(base_of(load(SQUEEZENET), draws=Draws(64)), Alteration())
    assert answer.next.name == "prep"
    assert answer.data.workers <= answer.data.workers_now == 2
    sentences = suffices(answer)
    assert "hide" not in sentences
    assert (
        "it has 2, so the 27.6 ms of prep are loading and training slowing each other down"
        in sentences
    )


def test_too_few_workers_are_what_is_said_where_they_are_too_few():
    base = base_of(gpu_job(), draws=Draws(64))
    answer = answer_question(base, Alteration(workers=1))
    assert answer.data.workers > answer.data.workers_now == 1
    assert "it has 1" not in suffices(answer)
    assert "it has" not in suffices(replace(answer, data=replace(answer.data, workers=None)))


def test_what_lies_between_steps_is_said_to_stay():
    starts = {"epoch start": {0: 1.2, 20: 1.07, 40: 1.07, 60: 1.07}}
    times = {"solo": [0.02] * 3, "warm": [0.0202] * 3}
    restarted = build(times, ranks=1, ledgers=(ledger(epoch_steps=20, now_and_then=starts),))
    sentence = "Only the step is predicted. Outside of it, epoch start takes 73% of an epoch, which stays as it is."
    answer = answer_question(base_of(restarted, draws=Draws(64)), Alteration())
    assert sentence in page(answer).warnings
    without = answer_question(base_of(build(times, ranks=1), draws=Draws(64)), Alteration())
    assert not any("epoch" in warning for warning in page(without).warnings)

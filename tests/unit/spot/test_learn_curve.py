"""Learning within a budget: what is kept when it ends early, and what a job that does not learn is told."""

from dataclasses import replace

import pytest
import torch
from test_replay import regression
from torch.utils.data import TensorDataset

from stash.core.errors import UserError
from stash.spot.learn_curve import MIN_UPDATES, learn

SMALL = {"sizes": (1, 2), "batches": (4, 8), "budget_seconds": 600}


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr("stash.spot.learn_curve.MAX_UPDATES", MIN_UPDATES)


def learned(job, **changes):
    return learn(job, "job.py:job", **{**SMALL, **changes})


def test_a_job_is_learned_with_what_a_plan_needs_of_it():
    sentences = []
    curve = learned(regression(), say=sentences.append)
    assert curve.ended == "done"
    assert len(curve.replays) == 5  # four pairs, and one of two unlike workers
    assert (curve.parameters, curve.parameter_bytes, curve.samples, curve.batch) == (4, 16, 64, 8)
    assert curve.apply_seconds > 0
    assert curve.learned_range.most_workers == 2
    assert (curve.learned_range.least_batch, curve.learned_range.most_batch) == (4, 8)
    # the job's is 3, of first parameters
    assert {each.seed for each in curve.replays} == {
        4,
        5,
        6,
        7,
        8,
    }
    assert sentences[0] == "replay 1 of 5: 1 worker of 4 samples, 200 updates"


def test_an_interrupted_one_keeps_what_was_replayed():
    def interrupt(sentence):
        if sentence.startswith("replay 5"):
            raise KeyboardInterrupt

    curve = learned(regression(), say=interrupt)
    assert curve.ended == "interrupted"
    assert len(curve.replays) == 4


def test_one_that_is_interrupted_too_early_is_one_sentence():
    def interrupt(sentence):
        raise KeyboardInterrupt

    with pytest.raises(
        UserError, match=r"interrupted after 0 replays: 0 kinds of fleets cannot determine"
    ):
        learned(regression(), say=interrupt)


class Clock:
    """Each look at it takes a second."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_the_budget_ends_it():
    # Each update is followed by one look, of 200 updates each: 4 replays and a half.
    curve = learned(regression(), budget_seconds=4.5 * MIN_UPDATES, clock=Clock())
    assert curve.ended == "budget"
    assert len(curve.replays) == 4


def test_a_budget_that_shows_no_course_is_refused_with_one_that_does():
    with pytest.raises(
        UserError, match=rf"{MIN_UPDATES} are the least that show a course; allow --budget \d+min"
    ):
        learned(regression(), budget_seconds=1e-3)


def test_a_job_that_diverges_is_told_and_what_to_change():
    with pytest.raises(
        UserError, match=r"did not learn \(1 worker of 4 samples: the loss .*smaller learning rate"
    ):
        learned(regression(rate=50.0))


def test_fleets_that_diverge_are_left_out_where_others_do_not():
    # Stale gradients diverge at a rate that a single worker still learns with.
    curve = learned(regression(rate=0.12), sizes=(1, 2, 16))
    assert any("16 workers" in sentence for sentence in curve.left_out)
    assert curve.learned_range.most_workers == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data": lambda: TensorDataset(torch.zeros(0, 3))}, "its data set is empty"),
        ({"data": lambda: iter([])}, "its data set has no length"),
        ({"data": lambda: 1 / 0}, "its data set cannot be made: ZeroDivisionError"),
        ({"loss": lambda model, batch: model(batch)}, "an update of 4 samples fails: "),
        (
            {"data": lambda: TensorDataset(torch.zeros(5, 3))},
            "its data set has 5 samples, and replays take up to 8",
        ),
    ],
)
def test_a_jobs_own_mistake_is_one_sentence(changes, sentence):
    with pytest.raises(UserError) as mistake:
        learned(replace(regression(), **changes))
    assert sentence in str(mistake.value)
    assert "\n" not in str(mistake.value)

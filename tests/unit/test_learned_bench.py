"""The bench of learned curves: parts of an error that were put in are found again, and its jobs are what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from bench.spot.learned import LEARNINGS, ORDERS, Judged, by_form, by_order, coverage, variances
from bench.spot.learned_jobs import REPORTED, TRIED
from stash.spot.train.elastic_job import load_job

FLEETS, LOSSES = 40, 60


def made(order: float, fit: float, form: float) -> Judged:
    """Errors of three known standard deviations; spreads that say their sum."""
    random = np.random.default_rng(1)
    true = random.uniform(4, 7, (FLEETS, LOSSES))
    predicted = (
        true + form * random.standard_normal(true.shape) + fit * random.standard_normal((LEARNINGS, *true.shape))
    )
    spread = float(np.sqrt(order**2 + fit**2 + form**2))
    return Judged(
        name="made",
        predicted={"levels": predicted},
        took=true[:, None] + order * random.standard_normal((FLEETS, ORDERS, LOSSES)),
        whole=np.full((LEARNINGS, 1, 1), spread / 100),
        each=np.full((LEARNINGS, 1, LOSSES), spread),
    )


@pytest.mark.parametrize(("order", "fit", "form"), [(0.1, 0.03, 0.05), (0.02, 0.1, 0.0), (0.0, 0.0, 0.2)])
def test_what_errors_were_made_of_is_found_again(order: float, fit: float, form: float) -> None:
    found = variances(made(order, fit, form))
    assert found == pytest.approx([order**2, fit**2, form**2], rel=0.15, abs=2e-4)


def test_one_order_is_held_against_the_others_alone() -> None:
    job = made(0.1, 0.03, 0.05)
    others = job.took[:, 1:].mean(axis=1)
    assert by_order(job)[:, 0] == pytest.approx(job.took[:, 0] - others)
    assert by_form(job).shape == (FLEETS, LOSSES)


def test_a_true_spread_holds_nine_in_ten_and_a_hundredth_of_it_next_to_none() -> None:
    *_, row = coverage([made(0.1, 0.03, 0.05)]).splitlines()
    whole, _, each, _, _ = (cell.strip() for cell in row.split("|")[2:-1])
    assert int(whole.rstrip("%")) <= 3
    assert 88 <= int(each.rstrip("%")) <= 92


def test_no_job_is_both_chosen_by_and_reported() -> None:
    assert not set(REPORTED) & set(TRIED)


def test_samples_by_number_are_the_samples() -> None:
    from bench.spot.learned_jobs import EXAMPLE

    whole, quick = load_job(f"{EXAMPLE}:job"), REPORTED["convolutional"]()
    data, numbers = whole.data(), quick.data()
    assert len(data) == len(numbers)
    assert quick.collate is not None
    slow, fast = default_collate([data[at] for at in (3, 1, 4)]), quick.collate([numbers[at] for at in (3, 1, 4)])
    assert all(torch.equal(one, other) for one, other in zip(slow, fast, strict=True))

"""The bench of learned curves: a right interval holds nine in ten, and its jobs are what they say."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import default_collate

from bench.spot.learned import LEARNINGS, ORDERS, Judged, coverage
from bench.spot.learned_jobs import EXAMPLE, JOBS
from stash.spot.train.elastic_job import load_job

FLEETS, LOSSES = 40, 60


def test_a_true_spread_holds_nine_in_ten():
    random = np.random.default_rng(1)
    true = random.uniform(4, 7, (FLEETS, LOSSES))
    made = Judged(
        name="made",
        predicted=true + 0.05 * random.standard_normal((LEARNINGS, *true.shape)),
        took=true[:, None] + 0.1 * random.standard_normal((FLEETS, ORDERS, LOSSES)),
        spread=np.full((LEARNINGS, 1, LOSSES), np.hypot(0.05, 0.1)),
    )
    share = coverage([made]).splitlines()[-1].split("|")[2]
    assert 88 <= int(share.strip().rstrip("%")) <= 92


def test_samples_by_number_are_the_samples():
    whole, quick = load_job(f"{EXAMPLE}:job"), JOBS["convolutional"]()
    data, numbers = whole.data(), quick.data()
    assert len(data) == len(numbers)
    slow, fast = (
        default_collate([data[at] for at in (3, 1, 4)]),
        quick.collate([numbers[at] for at in (3, 1, 4)]),
    )
    assert all(torch.equal(one, other) for one, other in zip(slow, fast, strict=True))

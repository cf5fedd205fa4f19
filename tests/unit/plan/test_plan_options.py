"""What was typed of a goal becomes a goal; what cannot be read, or contradicts itself, is told in one sentence."""

import time
from datetime import datetime, timezone

import pytest

from stash.plan.candidates import resolve_names
from stash.plan.plan_options import (
    PlanOptions,
    TrainedJob,
    make_constraints,
    make_goal,
    training_work,
)
from stash.predict.forecasting import shipped_catalog

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
JOB = TrainedJob(samples_per_step=256.0, dataset_samples=1_281_167)


def asked(typed):
    """Of options by name, as they are typed."""
    return PlanOptions(**{name.replace("-", "_"): text for name, text in typed.items()})


@pytest.mark.parametrize(
    ("typed", "samples", "text"),
    [
        ({"samples": "50M"}, 50e6, "50,000,000 samples"),
        (
            {"epochs": "90", "samples": "1,281,167"},
            90 * 1_281_167,
            "90 epochs of 1,281,167 samples",
        ),
        ({"epochs": "90"}, 90 * 1_281_167, "90 epochs of 1,281,167 samples, as profiled"),
        (
            {"epochs": "1", "dataset": "ImageNet"},
            1_281_167,
            "1 epoch of imagenet, 1,281,167 samples",
        ),
        ({"dataset": "cifar10"}, 50_000, "1 epoch of cifar-10, 50,000 samples"),
        (
            {"steps": "100k"},
            25.6e6,
            "100,000 steps of 256 samples, as profiled: 25,600,000 samples",
        ),
        (
            {"tokens": "300B", "tokens-per-sample": "1000"},
            3e8,
            "300,000,000,000 tokens, 1,000 a sample: ",
        ),
        (
            {"epochs": "2", "dataset": "openwebtext", "tokens-per-sample": "1024"},
            2 * 9_035_582_198 / 1024,
            "2 epochs",
        ),
    ],
)
def test_every_way_to_say_how_much_ends_in_samples(typed, samples, text):
    found = training_work(asked(typed), JOB)
    assert found.samples == pytest.approx(samples)
    assert found.text.startswith(text)


def test_a_date_without_a_zone_is_by_the_clocks_of_that_day(
    monkeypatch,
):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        now = datetime(2027, 3, 27, 18).astimezone()  # clocks go forward in the night
        found = make_goal(
            asked({"samples": "1M", "deadline": "2027-03-28T18:00", "confidence": "50%"}), JOB, now
        )
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (found.deadline_seconds, found.confidence) == (23 * 3600, 0.5)


def test_a_goal_has_its_deadline_from_now_and_its_budget_in_dollars():
    typed = {
        "samples": "1M",
        "deadline": "3d",
        "max-dollars": "$1.5k",
        "confidence": "95%",
        "scaling": "global",
    }
    found = make_goal(asked(typed), JOB, NOON)
    assert found.deadline_seconds == 3 * 86400
    assert found.budget_dollars == 1500
    assert (found.confidence, found.scaling) == (0.95, "global")
    dated = make_goal(asked({"samples": "1M", "deadline": "2026-11-23T18:00"}), JOB, NOON)
    assert dated.deadline_seconds == 30 * 3600
    assert make_goal(asked({"samples": "1M"}), JOB, NOON).deadline_seconds is None


def test_constraints_carry_the_catalogs_own_names():
    typed = {
        "cloud": "AWS, gcp",
        "region": "US-EAST-1",
        "gpu": "v100,A100-80GB",
        "exclude": "P2.8xlarge,azure",
        "max-nodes": "4",
        "max-price": "$20/h",
        "min-gpu-memory": "16GiB",
        "allow-spot": True,
        "quota": ["P3.16xlarge=2"],
    }
    found = resolve_names(make_constraints(asked(typed)), shipped_catalog())
    assert found.clouds == ("aws", "gcp")
    assert found.regions == ("us-east-1",)
    assert found.gpus == ("v100", "A100-80GB")
    assert found.excluded == ("p2.8xlarge", "azure")
    assert found.quotas == {"p3.16xlarge": 2}
    assert (found.most_nodes, found.most_dollars_per_hour, found.least_gpu_memory_bytes) == (
        4,
        20.0,
        2**34,
    )
    assert found.spot == "allow"
    assert make_constraints(PlanOptions()).most_nodes == 16

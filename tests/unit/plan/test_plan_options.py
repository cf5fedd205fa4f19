"""What was typed of a goal becomes a goal; what cannot be read, or contradicts itself, is told in one sentence."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import pytest

from stash.core.errors import UserError
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
UNKNOWN_JOB = TrainedJob()


def asked(typed: dict[str, Any]) -> PlanOptions:
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
def test_every_way_to_say_how_much_ends_in_samples(
    typed: dict[str, str], samples: float, text: str
) -> None:
    found = training_work(asked(typed), JOB)
    assert found.samples == pytest.approx(samples)
    assert found.text.startswith(text)


@pytest.mark.parametrize(
    ("typed", "job", "sentence"),
    [
        ({}, JOB, "how much is to be trained? Say it like --epochs 90 --samples 1281167"),
        ({"epochs": "90"}, UNKNOWN_JOB, "--epochs: how large is an epoch?"),
        (
            {"steps": "9"},
            UNKNOWN_JOB,
            "--steps: the profile does not know how many samples a step has",
        ),
        ({"epochs": "90", "steps": "9"}, JOB, "--epochs and --steps both say how much"),
        ({"steps": "9", "samples": "9"}, JOB, "--steps and --samples both say how much"),
        (
            {"samples": "9", "dataset": "imagenet"},
            JOB,
            "--samples and --dataset both say how large",
        ),
        (
            {"tokens": "300B"},
            JOB,
            "300,000,000,000 tokens are how many samples? Add --tokens-per-sample",
        ),
        (
            {"dataset": "openwebtext"},
            JOB,
            "1 epoch of openwebtext: 9,035,582,198 tokens are how many samples?",
        ),
        (
            {"samples": "9", "tokens-per-sample": "9"},
            JOB,
            "--tokens-per-sample turns tokens into samples",
        ),
        (
            {"dataset": "imagenet", "tokens-per-sample": "9"},
            JOB,
            "--tokens-per-sample turns tokens into samples",
        ),
        (
            {"samples": "9", "data-size": "1e18GB"},
            JOB,
            "--data-size 1e18GB: it must be at most 1e+18",
        ),
        ({"samples": "1e30"}, JOB, "--samples 1e30: it must be at most 1e+18"),
        (
            {"epochs": "1e10", "samples": "1e10"},
            JOB,
            "1e+10 epochs of 10,000,000,000 samples: that is more than 1e+18",
        ),
        ({"dataset": "imagenette"}, JOB, "unknown data set 'imagenette'; known are imagenet, "),
        ({"samples": "0"}, JOB, "--samples 0: it must be more than 0"),
        ({"epochs": "many"}, JOB, "--epochs many: cannot read the number"),
        ({"samples": "5 lots"}, JOB, "--samples 5 lots: unknown unit 'lots'"),
    ],
)
def test_work_that_cannot_be_read_is_refused_with_what_to_type(
    typed: dict[str, str], job: TrainedJob, sentence: str
) -> None:
    with pytest.raises(UserError) as refused:
        training_work(asked(typed), job)
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)


def test_a_date_without_a_zone_is_by_the_clocks_of_that_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_a_goal_has_its_deadline_from_now_and_its_budget_in_dollars() -> None:
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


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"deadline": "0h"}, "--deadline 0h: it must be more than 0"),
        ({"deadline": "2026-11-01"}, "--deadline 2026-11-01 is past"),
        ({"deadline": "tomorrow"}, "--deadline tomorrow: it must be a time or a date, like 24h"),
        ({"deadline": "24 fortnights"}, "--deadline 24 fortnights: unknown time unit 'fortnights'"),
        ({"max-dollars": "0"}, "--max-dollars 0: it must be more than 0"),
        (
            {"max-dollars": "300 EUR"},
            "--max-dollars 300 EUR: '300 EUR' is not in US dollars; convert it",
        ),
        ({"max-dollars": "€300"}, "--max-dollars €300: '€300' is not in US dollars"),
        ({"confidence": "1"}, "--confidence 1: it must be a probability from 0.5 to below 1"),
        ({"confidence": "sure"}, "--confidence sure: it must be a fraction"),
        ({"scaling": "weak"}, "--scaling weak: it must be per-device or global"),
    ],
)
def test_a_goal_that_cannot_be_read_is_refused(typed: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        make_goal(asked({"samples": "1M", **typed}), JOB, NOON)
    assert str(refused.value).startswith(sentence)


def test_constraints_carry_the_catalogs_own_names() -> None:
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


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"cloud": "awz"}, "--cloud awz: no such cloud in the catalog; did you mean aws"),
        (
            {"region": "us-eats-1"},
            "--region us-eats-1: no such region in the catalog; did you mean us-east-1",
        ),
        ({"gpu": "V1000"}, "--gpu V1000: no such GPU in the catalog; did you mean V100"),
        ({"gpu": "--"}, "--gpu --: no such GPU"),
        ({"gpu": " , "}, "--gpu ,: it names nothing"),
        (
            {"exclude": "p3.17xlarge"},
            "--exclude p3.17xlarge: no such instance type or cloud in the catalog",
        ),
        (
            {"quota": ("p3.16xlarg=2",)},
            "--quota p3.16xlarg: no such instance type in the catalog; did you mean p3.16xlarge",
        ),
        (
            {"quota": ("p3.16xlarge",)},
            "--quota p3.16xlarge: it must be an instance type and how many",
        ),
        (
            {"quota": ("p3.16xlarge=two",)},
            "--quota p3.16xlarge=two: it must be an instance type and how many",
        ),
        ({"max-nodes": "0"}, "--max-nodes 0: it must be a whole number, 1 or more"),
        ({"max-nodes": "1.5"}, "--max-nodes 1.5: it must be a whole number, 1 or more"),
        ({"max-price": "20 EUR"}, "--max-price 20 EUR: cannot read the price"),
    ],
)
def test_a_mistyped_name_is_told_and_excludes_nothing(typed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        resolve_names(make_constraints(asked(typed)), shipped_catalog())
    assert str(refused.value).startswith(sentence)

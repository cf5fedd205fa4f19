"""The scale of GPUs: transitive whatever it rests on, monotone in the data sheet, right where it can be worked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.catalog.facts import GpuFacts
from stash.catalog.reference import Speed, speeds
from stash.catalog.shipped import gpus
from stash.predict.compute_ratios import time_ratio
from stash.predict.draws import Draws
from stash.predict.gpu_scale import RULE, GpuCell, GpuScale, cell, published_scale, rates, sheets, together

GPUS = gpus()
MODELS = (*sorted({row.key for row in speeds()}), "nobodypublishedthis")
any_gpu, any_model, any_precision = st.sampled_from(GPUS), st.sampled_from(MODELS), st.sampled_from(("fp32", "amp"))


def log_ratio(model: str, first: GpuFacts, second: GpuFacts, precision: str) -> float:
    return published_scale().ratio(GpuCell(model, first, precision), GpuCell(model, second, precision))[0]


@given(any_model, any_gpu, any_gpu, any_gpu, any_precision)
def test_ratios_are_transitive(model: str, a: GpuFacts, b: GpuFacts, c: GpuFacts, precision: str) -> None:
    around = log_ratio(model, a, b, precision) + log_ratio(model, b, c, precision) + log_ratio(model, c, a, precision)
    assert around == pytest.approx(0, abs=1e-9)


@given(any_model, any_gpu, any_precision, st.floats(1.01, 4))
def test_a_gpu_that_is_faster_in_everything_is_never_slower(
    model: str, gpu: GpuFacts, precision: str, times: float
) -> None:
    names = (
        "memory_bytes_per_second", "fp32_flops_per_second", "tensor_fp16_flops_per_second",
        "tensor_tf32_flops_per_second", "fp16_flops_per_second",
    )  # fmt: skip
    more = {name: value * times for name in names if (value := getattr(gpu, name)) is not None}
    assert log_ratio(model, gpu, gpu.model_copy(update=more), precision) < 0
    wider = gpu.model_copy(update={"memory_bytes_per_second": (gpu.memory_bytes_per_second or 0) * times})
    assert log_ratio(model, gpu, wider, precision) < 0


def test_candidates_are_off_together_as_the_scale_has_it_and_each_by_itself_as_before() -> None:
    draws, facts = Draws(), sheets()
    profiled, one, other = (facts[name] for name in ("V100-SXM2-16GB", "A100-SXM4-40GB", "A100-SXM4-80GB"))
    rate, drawn = together("nobodypublishedthis", "amp", draws), []
    for gpu in (one, other):
        quantity = time_ratio(profiled, gpu, "nobodypublishedthis", 64, "amp")
        assert quantity is not None
        drawn.append(draws.of(gpu.name, quantity, rate[profiled.name] - rate[gpu.name]))
        assert np.array_equal(np.sort(drawn[-1]), np.sort(draws.of(gpu.name, quantity)))
    _, spread = published_scale().ratio(*(GpuCell("nobodypublishedthis", gpu, "amp") for gpu in (one, other)))
    assert float(np.log(drawn[0] / drawn[1]).std()) == pytest.approx(spread, rel=0.2)
    assert spread < 0.5 * float(np.log(drawn[0]).std())


def test_without_any_row_that_tells_it_is_the_data_sheets_by_the_prior_powers() -> None:
    one, other = sheets()["A100-SXM4-80GB"], sheets()["H100-SXM5-80GB"]
    row = Speed("M", 32, "amp", "V100", 100.0, None, "a source", "a source", "V100-SXM2-16GB")
    found, spread = GpuScale((row,), sheets()).ratio(cell("other", one, "amp"), cell("other", other, "amp"))
    # Memory 3350 / 2000; instructions (67 / 128 lanes) / (19.5 / 64 lanes); products 989 / 312.
    by_hand = (
        RULE[0] * math.log(3350 / 2000) + RULE[1] * math.log(67 / 128 * 64 / 19.5) + RULE[2] * math.log(989 / 312)
    )
    assert found == pytest.approx(-by_hand, abs=1e-3)
    assert spread > 0.2


def test_a_pair_that_was_measured_draws_the_scale_to_itself() -> None:
    rows = [
        Speed(f"m{number}", 32, "fp32", gpu, rate, None, "a source", "a source", gpu)
        for number in range(12)
        for gpu, rate in (("T4", 100.0), ("L4", 300.0))
    ]
    t4, l4 = sheets()["T4"], sheets()["L4"]
    prior = GpuScale(rows[:1], sheets()).ratio(cell("new", t4, "fp32"), cell("new", l4, "fp32"))
    found = GpuScale(rows, sheets()).ratio(cell("new", t4, "fp32"), cell("new", l4, "fp32"))
    own = GpuScale(rows, sheets()).ratio(cell("m1", t4, "fp32"), cell("m1", l4, "fp32"))
    assert prior[0] > found[0] > -math.log(3)
    assert abs(found[0] + math.log(3)) < abs(prior[0] + math.log(3)) / 2
    assert found[1] < prior[1]
    assert abs(own[0] + math.log(3)) <= abs(found[0] + math.log(3)) + 1e-9


def test_lanes_count_by_multiprocessor() -> None:
    ampere, large = rates(sheets()["A10"], "amp"), rates(sheets()["A100-SXM4-80GB"], "amp")
    # 72 multiprocessors at 1.695 GHz; 108 at 1.41.
    assert math.exp(large.instructions - ampere.instructions) == pytest.approx(108 * 1.41 / (72 * 1.695), rel=0.01)
    assert rates(sheets()["A10"].model_copy(update={"architecture": None}), "amp") is None

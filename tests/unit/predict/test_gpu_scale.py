"""The scale of GPUs: transitive whatever it rests on, monotone in the data sheet, right where it can be worked."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.catalog.reference import Speed, speeds
from stash.catalog.shipped import gpus
from stash.core.records.profile import Operator, Workload
from stash.predict.compute_ratios import time_ratio
from stash.predict.gpu_scale import (
    MEMORY_POWER,
    GpuCell,
    GpuScale,
    StepMix,
    mix_of,
    published_scale,
    sheet_rates,
    shipped_sheets,
)

GPUS = gpus()
MODELS = (*sorted({row.key for row in speeds()}), "nobodypublishedthis")
any_gpu, any_model, any_precision = (
    st.sampled_from(GPUS),
    st.sampled_from(MODELS),
    st.sampled_from(("fp32", "amp")),
)


def log_ratio(model, first, second, precision):
    return published_scale().ratio(
        GpuCell(model, first, precision), GpuCell(model, second, precision)
    )[0]


@given(any_model, any_gpu, any_gpu, any_gpu, any_precision)
def test_ratios_are_transitive(model, a, b, c, precision):
    around = (
        log_ratio(model, a, b, precision)
        + log_ratio(model, b, c, precision)
        + log_ratio(model, c, a, precision)
    )
    assert around == pytest.approx(0, abs=1e-9)


@given(any_model, any_gpu, any_precision, st.floats(1.01, 4))
def test_a_gpu_that_is_faster_in_everything_is_never_slower(model, gpu, precision, times):
    names = (
        "memory_bytes_per_second",
        "fp32_flops_per_second",
        "tensor_fp16_flops_per_second",
        "tensor_tf32_flops_per_second",
        "fp16_flops_per_second",
    )
    more = {name: value * times for name in names if (value := getattr(gpu, name)) is not None}
    assert log_ratio(model, gpu, gpu.model_copy(update=more), precision) < 0
    wider = gpu.model_copy(
        update={"memory_bytes_per_second": (gpu.memory_bytes_per_second or 0) * times}
    )
    assert log_ratio(model, gpu, wider, precision) < 0


def test_without_any_row_that_tells_it_is_each_part_of_a_step_by_its_own_rate():
    one, other = shipped_sheets()["A100-SXM4-80GB"], shipped_sheets()["H100-SXM5-80GB"]
    row = Speed("M", 32, "amp", "V100", 100.0, None, "a source", "a source", "V100-SXM2-16GB")
    mix = StepMix(products=0.6)
    cells = (GpuCell("other", gpu, "amp", mix) for gpu in (one, other))
    found, spread = GpuScale((row,), shipped_sheets()).ratio(*cells)
    # Of an A100's step 0.6 by products, 989 / 312; 0.4 by memory, 3350 / 2000, and instructions of 128 and 64 lanes.
    memory, instructions = 3350 / 2000, 67 / 128 * 64 / 19.5
    rest = 0.4 / (memory**MEMORY_POWER * instructions ** (1 - MEMORY_POWER))
    assert found == pytest.approx(math.log(0.6 / (989 / 312) + rest), abs=1e-3)
    assert spread > 0.1


def test_products_that_may_not_use_tf32_gain_what_float32_does():
    """PyTorch forbids TF32 for products unless told, and allows it for convolutions."""
    v100, a100 = shipped_sheets()["V100-SXM2-16GB"], shipped_sheets()["A100-SXM4-80GB"]
    product = Operator(
        operator="aten.mm", shapes="", dtype="float32", calls=1, flops=3e12, bytes=10**10
    )
    convolution = product.model_copy(
        update={"operator": "aten.convolution_backward", "flops": 1e12}
    )
    work = Workload(
        command=("x",), name="x", operators=(product, convolution), float32_products="highest"
    )
    mix, free = (
        mix_of(work, "fp32"),
        mix_of(work.model_copy(update={"float32_products": "high"}), "fp32"),
    )
    assert mix.strict == 0.75
    assert free.strict == mix_of(work, "amp").strict == 0.0
    assert mix.products == free.products
    strict, allowed = (
        time_ratio(v100, a100, "nobodypublishedthis", None, "fp32", each) for each in (mix, free)
    )
    assert strict is not None
    assert allowed is not None
    assert 1 / 2.2 < strict.value < 1 / 1.2
    assert allowed.value < 1 / 3


def test_a_pair_that_was_measured_draws_its_model_to_itself_and_no_other():
    """What other models reach of a sheet says nothing of the next one's, by published speeds."""
    rows = [
        Speed(f"m{number}", 32, "fp32", gpu, rate, None, "a source", "a source", gpu)
        for number in range(12)
        for gpu, rate in (("T4", 100.0), ("L4", 300.0))
    ]
    t4, l4 = shipped_sheets()["T4"], shipped_sheets()["L4"]
    scale = GpuScale(rows, shipped_sheets())
    found, own, prior = (
        each.ratio(GpuCell(name, t4, "fp32"), GpuCell(name, l4, "fp32"))
        for each, name in (
            (scale, "new"),
            (scale, "m1"),
            (GpuScale(rows[:1], shipped_sheets()), "new"),
        )
    )
    assert found == pytest.approx(prior)
    assert abs(own[0] + math.log(3)) < 0.4 * abs(found[0] + math.log(3))
    assert own[1] < found[1]


def test_lanes_count_by_multiprocessor():
    ampere, large = (
        sheet_rates(shipped_sheets()["A10"], "amp"),
        sheet_rates(shipped_sheets()["A100-SXM4-80GB"], "amp"),
    )
    # 72 multiprocessors at 1.695 GHz; 108 at 1.41.
    assert math.exp(large.instructions - ampere.instructions) == pytest.approx(
        108 * 1.41 / (72 * 1.695), rel=0.01
    )
    assert (
        sheet_rates(
            shipped_sheets()["A10"].model_copy(update={"memory_bytes_per_second": None}), "amp"
        )
        is None
    )

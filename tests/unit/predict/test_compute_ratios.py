"""Compute on other GPUs and in other precisions, from published pairs, by hand."""

import pytest
from forecast_profiles import gpu_job

from stash import catalog
from stash.catalog.reference import model_key, speeds
from stash.core.errors import UserError
from stash.core.records.profile import Operator
from stash.predict.changes import Alteration
from stash.predict.compute_ratios import (
    batch_exponent,
    no_faster_than_launches,
    precision_ratio,
    time_ratio,
    waiting_device_exponent,
    waiting_device_ratio,
)
from stash.predict.draws import Quantity
from stash.predict.forecasting import base_of, what_if
from stash.predict.gpu_scale import StepMix, sheet_rates


def test_names_of_models_are_compared_without_what_people_write_differently():
    assert (
        model_key("ResNet50v1.5") == model_key("resnet-50") == model_key("ResNet 50") == "resnet50"
    )
    assert model_key("mobilenet_v2") != model_key("mobilenet_v3")


def test_every_published_speed_is_positive_dated_or_named_and_of_a_gpu_that_the_catalog_knows():
    known = {gpu.model for gpu in catalog.load().gpus}
    assert len(speeds()) > 100
    for each in speeds():
        assert each.per_second > 0
        assert each.source
        assert each.gpu in known
        assert not each.variant or catalog.gpu(each.variant).model == each.gpu


def test_a_model_that_was_published_on_both_gpus_is_surer_than_one_that_nobody_published():
    old, new = catalog.gpu("V100-SXM2-16GB"), catalog.gpu("A100-SXM4-80GB")
    own = time_ratio(old, new, "resnet50", 64, "fp32")
    other = time_ratio(old, new, "a_model_without_times", 64, "fp32")
    assert "resnet50 on V100 and A100" in own.source
    assert "none of a_model_without_times" in other.source
    assert own.high / own.low < other.high / other.low
    assert own.low < 1 / 2.6 < own.high  # NVIDIA and Lambda: 2.6 and 2.9 times as fast
    assert time_ratio(old, old, "resnet50", 64, "fp32").origin == "given"


def test_no_gpu_of_the_catalog_has_a_hole_that_forecasts_need():
    used = {item.gpu or item.gpu_model for item in catalog.load().instances if item.gpu_model}
    for name in used:
        gpu = next(each for each in catalog.load().gpus if name in (each.name, each.model))
        for precision in ("fp32", "amp"):
            assert sheet_rates(gpu, precision) is not None, gpu.name
    tensor = [
        gpu
        for gpu in catalog.load().gpus
        if gpu.architecture not in ("Kepler", "Maxwell", "Pascal")
    ]
    assert all(gpu.tensor_fp16_flops_per_second for gpu in tensor)
    later = [gpu for gpu in tensor if gpu.architecture not in ("Volta", "Turing", "CDNA2", "CDNA4")]
    assert all(gpu.tensor_tf32_flops_per_second for gpu in later)


def test_of_a_device_that_waits_for_its_host_a_faster_one_waits_as_long_and_a_slower_one_may_keep_up():
    faster = waiting_device_ratio(
        Quantity(value=0.3, low=0.2, high=0.4, origin="data sheet", source="a table")
    )
    assert (faster.value, faster.low, faster.high) == (1.0, 1 / 1.33, 1.33)
    assert "waits for the host" in faster.source
    slower = waiting_device_ratio(
        Quantity(value=4.0, low=3.0, high=5.0, origin="data sheet", source="a table")
    )
    assert (slower.value, slower.low, slower.high) == (2.0, 1 / 1.33, 1.33 * 5.0)


@pytest.mark.parametrize(
    ("seconds", "ratio", "power"),
    [
        (0.16, 4.0, 0.848),  # root 0.4, a fifth of it still: 2 ln(0.2 + 0.8 · 2) / ln 4
        (0.16, 0.25, 0.737),  # 2 ln(0.2 + 0.8 / 2) / ln(1/4)
        (4.0, 4.0, 0.971),
        (0.0004, 4.0, 0.433),  # of a short one 0.65 at most: 2 ln(0.65 + 0.35 · 2) / ln 4
    ],
)
def test_the_shorter_a_pass_is_the_less_of_it_grows_with_its_batch(seconds, ratio, power):
    exponent = batch_exponent(seconds, ratio)
    assert exponent.value == pytest.approx(power, abs=0.001)
    assert exponent.low < exponent.value < exponent.high == 1.05


def test_a_device_that_waits_takes_as_long_for_a_smaller_batch_and_may_be_filled_by_a_larger_one():
    exponent = Quantity(value=0.9, low=0.8, high=1.0, origin="data sheet", source="a table")
    smaller, larger = (waiting_device_exponent(exponent, larger) for larger in (False, True))
    assert (smaller.value, smaller.low, smaller.high) == (0.0, 0.0, 0.1)
    assert (larger.value, larger.low, larger.high) == (0.45, 0.0, 1.0)
    ratio = Quantity(value=0.25, low=0.2, high=0.3, origin="data sheet", source="a table")
    filled = waiting_device_ratio(ratio, filled=True)
    assert (filled.value, filled.low, filled.high) == (0.5, 0.2, 1.33)


def test_a_step_is_never_shorter_than_launching_its_kernels():
    ratio = Quantity(value=0.3, low=0.2, high=0.5, origin="data sheet", source="s")
    assert no_faster_than_launches(ratio, None) is ratio
    assert no_faster_than_launches(ratio, 0.1) is ratio
    bound = no_faster_than_launches(ratio, 0.4)
    assert (bound.value, bound.low, bound.high) == (0.4, 0.4, 0.5)
    assert "40% of the step" in bound.source
    # launched 1.5 times as long as it took: the launches overlap
    whole = no_faster_than_launches(ratio, 1.5)
    assert (whole.value, whole.low, whole.high) == (1.0, 1.0, 1.0)


def test_a_job_in_bfloat16_goes_to_no_gpu_that_does_not_compute_in_it():
    plain = gpu_job()
    products = calls("aten.mm", "4096x4096 4096x4096", "bfloat16", 1, 1e12, 2e8)
    work = plain.workload.model_copy(update={"operators": (products,)})
    base = base_of(plain.model_copy(update={"workload": work}))
    with pytest.raises(
        UserError, match="T4 does not compute in bfloat16, as the job does; profile it in float16"
    ):
        what_if(base, Alteration(gpu="T4"))
    assert what_if(base, Alteration(gpu="L4")).breakdown.seconds("compute") > 0
    assert what_if(base_of(plain), Alteration(gpu="T4")).breakdown.seconds("compute") > 0


def test_mixed_precision_gains_what_the_data_sheet_and_the_products_say():
    v100, t4 = catalog.gpu("V100-SXM2-16GB"), catalog.gpu("T4")
    found, products = precision_ratio(v100, "amp"), precision_ratio(v100, "amp", StepMix(0.7))
    # A100: products 312 and 156, the rest alike, times 1.6. V100: 125 and 15.7 TFLOP/s; 0.91, 1.87 times as long.
    rest = 0.91 / ((0.9 / 2) ** 0.7 * (15.7 / 19.5) ** 0.3)
    by_hand = (0.09 * 312 / 125 + rest) / (0.09 * 156 / 15.7 + rest) / 1.6
    assert found.value == pytest.approx(by_hand, rel=0.01)
    assert products.value < 0.25 < found.value < 0.5
    assert precision_ratio(t4, "fp32").value == pytest.approx(1 / precision_ratio(t4, "amp").value)
    assert precision_ratio(catalog.gpu("K80"), "amp") is None


def calls(operator, shapes, dtype, times, flops, size):
    return Operator(
        operator=operator, shapes=shapes, dtype=dtype, calls=times, flops=flops, bytes=int(size)
    )

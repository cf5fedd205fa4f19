"""The GPU an emulated model is made for: by the catalog's name, or by its rates."""

from __future__ import annotations

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from stash.base.errors import UserError
from stash.cli import testbed as cli
from stash.keep import catalog
from stash.keep.catalog import GpuFacts
from stash.lab.testbed import generate
from stash.lab.testbed.emulation import Emulation
from stash.lab.testbed.peak import peak, variants


def gpu(name: str, fp32: float | None = 10e12, memory: float | None = 500e9, **facts: float) -> GpuFacts:
    return GpuFacts(
        name=name, model="X1", fp32_flops_per_second=fp32, memory_bytes_per_second=memory,
        as_of="2020-01-01", source="somebody", **facts,
    )  # fmt: skip


def made(*arguments: str) -> Result:
    app = typer.Typer()
    app.add_typer(cli.app, name="testbed")
    return CliRunner().invoke(app, ["testbed", "model", *arguments])


def test_a_model_made_in_variants_is_its_fastest_and_says_so_with_date_and_source() -> None:
    slow, fast, big = gpu("X1-PCIe", 9e12), gpu("X1-SXM-16GB"), gpu("X1-SXM-32GB")
    found = peak((slow, fast, big), "fp32")
    assert (found.flops_per_second, found.memory_bytes_per_second) == (10e12, 500e9)
    assert found.about.startswith("X1-SXM-16GB, the fastest of its variants (others: X1-PCIe, X1-SXM-32GB)")
    assert "2020-01-01" in found.about
    assert "somebody" in found.about


def test_half_precision_runs_on_tensor_cores_where_there_are_any() -> None:
    plain = gpu("X1-a", fp16_flops_per_second=20e12)
    tensor = gpu("X1-b", fp16_flops_per_second=20e12, tensor_fp16_flops_per_second=100e12)
    assert peak((plain,), "fp16").flops_per_second == 20e12
    assert peak((tensor,), "fp16").flops_per_second == 100e12


@pytest.mark.parametrize("lacking", [gpu("X1", fp32=None), gpu("X1", memory=None)])
def test_a_rate_the_catalog_does_not_know_is_refused_not_guessed(lacking: GpuFacts) -> None:
    with pytest.raises(UserError, match="does not know the fp32 rate of X1; give it with --tflops"):
        peak((lacking,), "fp32")


def test_a_gpu_is_found_by_model_or_variant_and_a_wrong_name_brings_the_nearest() -> None:
    everything = catalog.load()
    assert len(variants("v100", everything)) > 1
    assert [found.name for found in variants("V100-SXM2-16GB", everything)] == ["V100-SXM2-16GB"]
    with pytest.raises(UserError, match=r"unknown GPU 'V100-SXM9'; did you mean V100-"):
        variants("V100-SXM9", everything)


def test_half_precision_moves_half_the_bytes_and_exchanges_the_same_gradients() -> None:
    def at(value_bytes: int) -> Emulation:
        return generate.emulate("alexnet", 1e30, 1e9, batch=2, value_bytes=value_bytes)

    whole, half = at(4), at(2)  # so many operations per second that only bytes take time
    assert half.bytes == whole.bytes
    assert half.optimizer_seconds == whole.optimizer_seconds
    for one, other in zip(half.layers, whole.layers, strict=True):
        assert one.forward_seconds == pytest.approx(other.forward_seconds / 2)


def test_the_command_prints_yaml_with_the_facts_it_rests_on() -> None:
    result = made("alexnet", "--gpu", "V100-SXM2-16GB", "--batch", "2")
    assert result.exit_code == 0, result.output
    facts = catalog.gpu("V100-SXM2-16GB")
    assert f"V100-SXM2-16GB, fp32: {facts.fp32_flops_per_second / 1e12:g} TFLOP/s" in result.output  # type: ignore[operator]
    assert facts.as_of in result.output
    shown = Emulation.model_validate(yaml.safe_load(result.output))
    own = made("alexnet", "--tflops", "15.7", "--memory", "900GB/s", "--batch", "2")
    assert shown == Emulation.model_validate(yaml.safe_load(own.output))
    fast = Emulation.model_validate(yaml.safe_load(made("alexnet", "--gpu", "V100", "--precision", "fp16").output))
    slow = Emulation.model_validate(yaml.safe_load(made("alexnet", "--gpu", "V100").output))
    assert fast.compute_seconds < slow.compute_seconds


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--gpu NAME"),
        (("--tflops", "15.7"), "both --tflops and --memory"),
        (("--gpu", "V100", "--tflops", "15.7"), "leave out --tflops and --memory"),
        (("--gpu", "V100", "--precision", "fp8"), "fp32 or fp16"),
        (("--gpu", "Z9000"), "unknown GPU 'Z9000'"),
        (("--gpu", "V100", "--size-scale", "nan"), "--size-scale"),
    ],
)
def test_a_wrong_wish_is_refused_in_one_sentence(words: tuple[str, ...], said: str) -> None:
    result = made("alexnet", *words)
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)

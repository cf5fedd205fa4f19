"""The zoo's workloads: every one builds, has the size it claims, and the training script runs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from stash.base.errors import UserError
from stash.lab.zoo import WORKLOADS, language, losses, train, workload
from stash.lab.zoo.datasets import make_dataset
from stash.lab.zoo.feed import synthetic_feed
from stash.lab.zoo.readers import Sample

PAPER = {
    "alexnet", "resnet18", "shufflenet_v2_x0_5", "mobilenet_v2",
    "squeezenet1_0", "resnet50", "vgg11", "bert_large_qa",
}  # fmt: skip
TRAINED = [
    "squeezenet1_0", "mobilenet_v2", "shufflenet_v2_x0_5", "resnet10", "resnet10_noskip", "resnet10_nobn",
    "resnet50_noskip", "resnet50_nobn", "m5", "dlrm",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return workload(name).build()


def batch_of(samples: list[Sample]) -> list[torch.Tensor]:
    return [torch.stack(column) for column in zip(*samples, strict=True)]


def test_the_paper_s_grid_and_feature_study_are_complete() -> None:
    assert {name for name, item in WORKLOADS.items() if item.group == "paper"} == PAPER
    for depth in (10, 12, 16, 18, 34, 50, 101, 152):
        assert {f"resnet{depth}", f"resnet{depth}_noskip", f"resnet{depth}_nobn"} <= WORKLOADS.keys()
    assert {"vgg11", "vgg13", "vgg16", "vgg19"} <= WORKLOADS.keys()


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_has_as_many_parameters_as_the_registry_says(name: str) -> None:
    model = on_meta(name)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == WORKLOADS[name].parameters
    assert WORKLOADS[name].gradient_bytes == 4 * WORKLOADS[name].parameters


@pytest.mark.parametrize("name", TRAINED)
def test_a_workload_learns_from_a_tiny_batch(name: str) -> None:
    item = workload(name)
    model = item.build(image_size=64).train()
    batch = batch_of(synthetic_feed(item, 2, image_size=64).samples[:2])
    loss = getattr(losses, item.loss)(model, batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("name", ["bert_base_qa", "gpt2_small"])
def test_a_narrow_transformer_learns_from_a_tiny_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bert = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    monkeypatch.setitem(language.BERT_SIZES, "base", bert)
    monkeypatch.setitem(language.GPT2_SIZES, "small", {"n_embd": 32, "n_layer": 2, "n_head": 2})
    item = workload(name)
    model = item.build().train()
    loss = getattr(losses, item.loss)(model, batch_of(synthetic_feed(item, 2, sequence_length=16).samples[:2]))
    loss.backward()
    choices = 16 if item.loss == "question_answering" else item.vocabulary
    assert loss.item() == pytest.approx(math.log(choices), rel=0.2)  # Random weights guess.
    # A parameter without a gradient would make DistributedDataParallel wait for ever.
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


def test_a_vision_transformer_fits_its_images() -> None:
    item = workload("vit_b_16")
    batch = batch_of(synthetic_feed(item, 2, image_size=64).samples[:2])
    with torch.device("meta"):
        model = item.build(image_size=64)
    assert losses.classification(model, [tensor.to("meta") for tensor in batch]).shape == ()


@pytest.mark.parametrize("depth", [10, 18, 50])
def test_variants_lack_what_their_name_says(depth: int) -> None:
    plain, noskip, nobn = (on_meta(f"resnet{depth}{suffix}") for suffix in ("", "_noskip", "_nobn"))

    def norms(model: nn.Module) -> int:
        return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())

    def projections(model: nn.Module) -> int:
        return sum("downsample" in name for name, _ in model.named_parameters())

    assert norms(plain) > 0
    assert norms(noskip) > 0
    assert norms(nobn) == 0
    assert projections(plain) > 0
    assert projections(nobn) > 0
    assert projections(noskip) == 0


def test_without_links_a_block_with_zero_weights_passes_nothing_on() -> None:
    for name, passes in (("resnet10", True), ("resnet10_noskip", False)):
        block = workload(name).build().layer1[0].eval()
        for parameter in block.parameters():
            nn.init.zeros_(parameter)
        assert bool(block(torch.ones(1, 64, 8, 8)).any()) is passes


@pytest.mark.parametrize(("typed", "meant"), [("resnet5O", "resnet50"), ("BERT_base", "bert_base_qa")])
def test_an_unknown_workload_suggests_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"did you mean .*{meant}"):
        workload(typed)


def test_an_image_size_that_does_not_fit_is_explained() -> None:
    with pytest.raises(UserError, match="at least 63 pixels"):
        workload("alexnet").build(image_size=32)
    with pytest.raises(UserError, match="--image-size 48"):
        workload("vit_b_16").build(image_size=50)


def test_missing_transformers_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stash.lab.zoo.language.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'stash-ddl\[nlp\]'"):
        workload("gpt2_small").build()


def test_listing_needs_no_torch() -> None:
    code = "import sys, stash.cli.zoo as z; z.zoo(); z.zoo(json=True); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_listing_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from stash.cli.zoo import zoo

    monkeypatch.setenv("COLUMNS", "80")
    zoo()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.split()[0] in WORKLOADS for line in lines if line.strip()) == len(WORKLOADS)
    assert len(lines) == len(WORKLOADS) + 2 * 3 + 1  # Nothing wrapped: a title and a header per group, a foot.
    zoo(json=True)
    listed = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in listed] == list(WORKLOADS)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset("images", tmp_path_factory.mktemp("data") / "images", 12).path


def test_training_takes_the_steps_asked_for(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Three epochs of three batches: the loop goes round, and stops in the middle of the last.
    arguments = "--workload shufflenet_v2_x0_5 --batch 4 --workers 0 --image-size 32 --steps 8 --amp"
    assert train.main([*arguments.split(), "--data", str(images)]) == 0
    assert capsys.readouterr().out.startswith("step 8  loss ")


def test_training_runs_on_synthetic_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--workload", "m5", "--synthetic", "--batch", "2", "--workers", "0", "--steps", "2"]) == 0
    assert "step 2" in capsys.readouterr().out


def test_two_processes_train_one_model(images: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = "-m stash.lab.zoo.train --workload shufflenet_v2_x0_5 --batch 2 --workers 1 --image-size 32 --steps 2"
    run = subprocess.run(
        [*launcher, *script.split(), "--data", str(images)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("step 2") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--workload resnet18", "stash dataset make images PATH"),
        ("--workload resnet1 --synthetic", "did you mean"),
        ("--workload resnet18 --data {tmp}/none", "there is no data set folder"),
        ("--workload resnet18 --data {tmp}", "holds no images"),
        ("--workload m5 --data {images}", "holds images, but m5 reads audio"),
        ("--workload resnet18 --data {images} --batch 13", "holds 12 samples, too few for a batch of 13"),
        ("--workload resnet18 --synthetic --batch 0", "--batch must be at least 1"),
        ("--workload bert_base_qa --synthetic --sequence-length 600", "at most 512 tokens"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: str, message: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main(arguments.format(tmp=tmp_path, images=images).split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_corrupt_image_is_named(workers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cat"
    folder.mkdir()
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 not really")
    arguments = ["--workload", "resnet18", "--batch", "1", "--data", str(tmp_path), "--workers", workers]
    assert train.main(arguments) == 2
    error = capsys.readouterr().err
    assert f"error: the image {folder / 'broken.jpg'} cannot be decoded" in error
    assert error.count("\n") == 1


def test_the_dataset_command_makes_a_data_set(tmp_path: Path) -> None:
    from stash.cli.dataset import app

    run = CliRunner().invoke(app, ["make", "clicks", str(tmp_path / "new"), "--size", "16kB"])
    assert run.exit_code == 0, run.output
    assert "100 samples of clicks, 16.0 kB, made in" in run.stdout
    assert (tmp_path / "new" / "clicks-00000.bin").stat().st_size == 16_000


def test_the_dataset_command_wants_one_measure_of_size(tmp_path: Path) -> None:
    from stash.cli.dataset import app

    run = CliRunner().invoke(app, ["make", "clicks", str(tmp_path / "new"), "--size", "1kB", "--count", "3"])
    assert isinstance(run.exception, UserError)

"""The zoo's training script: its steps, its processes, and its mistakes in one sentence."""

import subprocess
import sys

import pytest

from stash.lab.zoo import train
from stash.lab.zoo.datasets import make_dataset


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return make_dataset("images", tmp_path_factory.mktemp("data") / "images", 12).path


def test_training_takes_the_steps_asked_for(images, capsys):
    # Three epochs of three batches: the loop goes round, and stops in the middle of the last.
    arguments = (
        "--workload shufflenet_v2_x0_5 --batch 4 --workers 0 --image-size 32 --steps 8 --amp"
    )
    assert train.main([*arguments.split(), "--data", str(images)]) == 0
    assert capsys.readouterr().out.startswith("step 8  loss ")


def test_training_runs_on_synthetic_data(capsys):
    assert (
        train.main(
            ["--workload", "m5", "--synthetic", "--batch", "2", "--workers", "0", "--steps", "2"]
        )
        == 0
    )
    assert "step 2" in capsys.readouterr().out


@pytest.mark.slow  # one process trains by day, and two ranks of every other script do
def test_two_processes_train_one_model(images):
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
    ]
    script = "-m stash.lab.zoo.train --workload shufflenet_v2_x0_5 --batch 2 --workers 1 --image-size 32 --steps 2"
    run = subprocess.run(
        [*launcher, *script.split(), "--data", str(images)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=images,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("step 2") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--workload resnet18", "stash lab dataset make images PATH"),
        ("--workload resnet1 --synthetic", "did you mean"),
        ("--workload resnet18 --data {tmp}/none", "there is no data set folder"),
        ("--workload resnet18 --data {tmp}", "holds no images"),
        ("--workload bert_base_qa --data {images}", "holds images, but bert_base_qa reads text"),
        ("--workload m5 --data {images}", "m5 trains on samples in memory only; leave --data out"),
        ("--workload dlrm", "dlrm trains on samples in memory only; use --synthetic"),
        (
            "--workload resnet18 --data {images} --batch 13",
            "holds 12 samples, too few for a batch of 13",
        ),
        ("--workload resnet18 --synthetic --batch 0", "--batch must be at least 1"),
        ("--workload bert_base_qa --synthetic --sequence-length 600", "at most 512 tokens"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments,
    message,
    images,
    tmp_path,
    capsys,
):
    assert train.main(arguments.format(tmp=tmp_path, images=images).split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_a_corrupt_image_is_named(tmp_path, capsys):
    folder = tmp_path / "cat"
    folder.mkdir()
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 not really")
    arguments = [
        "--workload",
        "shufflenet_v2_x0_5",
        "--batch",
        "1",
        "--data",
        str(tmp_path),
        "--workers",
        "0",
    ]
    assert train.main(arguments) == 2
    error = capsys.readouterr().err
    assert f"error: the image {folder / 'broken.jpg'} cannot be decoded" in error
    assert error.count("\n") == 1

"""Every kind of loop there is, watched: its seeded weights are bit-identical, its loaders and ranks are all seen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from profiled import SCRIPTS

from stash.monitor.records import load_record

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SEEDED = ROOT / "tests" / "support" / "seeded"
STEPS = 25
RANKS = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
SOURCE = str(ROOT / "src")


def run(folder, *words, **variables):
    """What a program printed, run among the scripts; fails if it did."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{SEEDED}:{SOURCE}",
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        **variables,
    }
    environment["HF_HUB_OFFLINE"] = "1"
    command = [sys.executable, *map(str, words)]
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


def weights(folder, *words, steps=STEPS):
    """Of each rank, after so many steps."""
    folder.mkdir()
    variables = {"WEIGHTS": str(folder), "STEPS": str(steps)}
    run(SCRIPTS, *words, **variables)
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("script", "arguments", "ranks"),
    [
        ("single.py", ("DATA",), 1),
        ("compiled.py", ("DATA",), 2),
        ("plain_ddp.py", ("DATA", "--workers", 1), 2),
        ("accelerate_loop.py", ("DATA",), 2),
        ("hf_trainer.py", ("DATA", "--output_dir", "OUT"), 2),
        ("sharded.py", ("DATA", "--api", 1), 2),
        ("sharded.py", ("DATA", "--api", 2), 2),
        ("gan.py", ("DATA",), 2),
        ("odd_loaders.py", ("DATA",), 2),
        ("trimmings.py", ("DATA", "OUT"), 2),
        ("trimmings.py", ("DATA", "OUT", "--hook", "powersgd"), 2),
        ("replaces_optimizer.py", ("--epochs", 400), 1),
        ("stops_early.py", ("DATA", "MODEL"), 2),
        ("evaluates_training_data.py", (), 1),
        ("tensor_parallel.py", ("DATA",), 2),
        ("dtensor.py", (), 2),
    ],
)
def test_seeded_weights_are_bit_identical(data, tmp_path, script, arguments, ranks):
    places = {"DATA": str(data), "OUT": str(tmp_path / "out"), "MODEL": str(tmp_path / "model.pt")}
    job = [script, *(places.get(str(each), str(each)) for each in arguments)]
    launcher = RANKS if ranks > 1 else ()
    (tmp_path / "out").mkdir()
    steps = 6 if script in ("hf_trainer.py", "stops_early.py") else STEPS  # they have no more
    plain = weights(tmp_path / "plain", *launcher, *job, steps=steps)
    watch = ("-m", "stash", "watch", "-o", tmp_path / "run.watch.jsonl", "--")
    watched = weights(tmp_path / "watched", *watch, sys.executable, *launcher, *job, steps=steps)
    assert plain.keys() == {str(rank) for rank in range(ranks)}
    assert watched == plain
    record = load_record(tmp_path / "run.watch.jsonl")
    assert record.header.ranks == ranks
    assert not [event for event in record.events if event.what == "note"]


def watched(tmp_path, *job, **variables):
    run(SCRIPTS, "-m", "stash", "watch", "-o", tmp_path / "run.watch.jsonl", *job, **variables)
    return load_record(tmp_path / "run.watch.jsonl")


def test_hugging_faces_trainer_is_seen_with_its_evaluations_between_steps(data, tmp_path):
    record = watched(
        tmp_path, "--nproc-per-node", "2", "hf_trainer.py", data, "--output_dir", tmp_path / "out"
    )
    shown = record.windows[-1]
    assert record.header.ranks == 2
    assert shown.stalls["other"] > 0  # evaluated and saved every five steps
    assert all(
        shown.ranks[rank]["backward"] > 0 and shown.ranks[rank]["exchange"] > 0 for rank in (0, 1)
    )
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_lightning_is_seen(data, tmp_path):
    record = watched(tmp_path, "lightning_fit.py", data, "--output", tmp_path / "out")
    assert record.header.ranks == 2
    assert sum(value or 0.0 for value in record.windows[-1].stalls.values()) == pytest.approx(
        record.windows[-1].step_seconds, rel=1e-3
    )
    assert (tmp_path / "out" / "last.ckpt").exists()


SEVERAL = """
import time, torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __init__(self, seconds): self.seconds = seconds
    def __len__(self): return 60
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.ones(4)
class Pictures(Slow): pass
class Texts(Slow): pass
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for pictures, texts in zip(DataLoader(Pictures(0.02)), DataLoader(Texts(0.005))):
    optimizer.zero_grad()
    model(pictures + texts).sum().backward()
    optimizer.step()
"""


def test_several_loaders_are_told_apart_by_name(tmp_path):
    (tmp_path / "several.py").write_text(SEVERAL)
    record = watched(tmp_path, tmp_path / "several.py")
    assert [name.partition(" ")[0] for name in record.header.loaders] == ["Pictures", "Texts"]
    shown = record.windows[0]
    # sleeps are no shorter; other work makes them longer
    assert 0.0249 <= shown.stalls["input"] <= shown.step_seconds


@pytest.mark.parametrize("recorder", ["0", "2000"])
def test_collectives_of_functional_calls_are_counted_as_unseen(data, tmp_path, recorder):
    watch = ("-m", "stash", "watch", "-o", tmp_path / "run.watch.jsonl", "--", sys.executable)
    os.environ["TORCH_FR_BUFFER_SIZE"] = recorder
    try:
        weights(tmp_path / "weights", *watch, *RANKS, "dtensor.py", data, steps=300)
    finally:
        del os.environ["TORCH_FR_BUFFER_SIZE"]
    assert (
        "collectives of a step were issued by C++"
        in load_record(tmp_path / "run.watch.jsonl").header.unseen
    )

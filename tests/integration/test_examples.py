"""Every script of ``examples/`` is profiled as its first line says, unmodified, and leaves no weights behind."""

import shlex
import shutil
from pathlib import Path

import pytest
from profiled import profile_of

from stash.analysis.attribution import attribute
from stash.lab.zoo.datasets import make_dataset

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
ALONE = ("single_device", "spot_job")
"""On one device."""
SAMPLES_PER_STEP = {
    "accumulate_amp": 8,  # four batches of two
    "ddp": 8,
    "hf_trainer": 8,
    "lightning_fit": 8,
    "single_device": 8,
    "spot_job": 32,
    "streaming": 8,
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """``data/`` as the examples' README makes it, but small."""
    folder = tmp_path_factory.mktemp("sets")
    make_dataset("images", folder / "data" / "images", 96)
    make_dataset("text", folder / "data" / "text", 500)
    return folder


@pytest.mark.slow  # test_docs_commands has one of them by day
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_is_profiled_as_its_first_line_says(run_profile, sets, tmp_path, script):
    words = shlex.split(script.read_text().splitlines()[0].split("   ")[0])
    assert words[:3] == ["#", "stash", "profile"]
    assert f"examples/{script.name}" in words
    (tmp_path / "data").symlink_to(sets / "data")
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    before = {
        path for path in tmp_path.rglob("*") if path.suffix in (".pt", ".ckpt", ".safetensors")
    }
    profile = profile_of(run_profile(*words[3:], folder=tmp_path, as_typed=True))
    alone = script.stem in ALONE
    assert len(profile.ranks) == (1 if alone else 2)
    expected = {"solo", "warm"} | ({"cold"} if script.stem == "single_device" else set())
    assert expected | (set() if alone else {"crowd", "node"}) <= set(profile.settings.rungs)
    assert profile.workload.batch == SAMPLES_PER_STEP[script.stem]
    breakdown = attribute(profile)
    assert sum(stall.seconds for stall in breakdown.stalls) == pytest.approx(breakdown.step_seconds)
    weights = {
        path for path in tmp_path.rglob("*") if path.suffix in (".pt", ".ckpt", ".safetensors")
    }
    assert weights == before

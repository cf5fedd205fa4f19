"""What a real profile of the integration tests' scripts must be like, whatever the script."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from stash.analysis.attribution import attribute
from stash.analysis.step_times import step_matrix
from stash.core.ladder import NAMES


def _scripts():
    """The folder of scripts; several workers of one session have copies, as only one command works in a folder."""
    folder = Path(__file__).parents[1] / "integration" / "scripts"
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return folder
    parent = tempfile.mkdtemp(prefix="stash-scripts-")
    atexit.register(shutil.rmtree, parent, ignore_errors=True)
    return Path(
        shutil.copytree(
            folder, Path(parent) / "scripts", ignore=shutil.ignore_patterns("__pycache__")
        )
    )


SCRIPTS = _scripts()
ZOO = Path(__file__).parents[1] / "zoo"
FILES = 192
COMMUNICATION = ("solo", "crowd", "node")
FULL = (*COMMUNICATION, "warm", "cold")


def profile_of(outcome):
    """The profile of a run that went well; fails with everything that was said if it did not."""
    assert outcome.code == 0, f"exit code {outcome.code}\n{outcome.stdout}\n{outcome.stderr}"
    assert outcome.profile is not None, outcome.stderr
    assert not outcome.survivors, outcome.survivors
    return outcome.profile


def blocks_of(profile, rung):
    """The blocks measured under one rung."""
    return [block for block in profile.blocks if block.rung == rung]


def skipped_rungs(profile):
    """Why each rung was left out."""
    return {item.rung: item.why for item in profile.skipped}


def ladder_of(outcome, rungs=FULL, ranks=2):
    """The profile, after checks that hold for every kind of script on one machine without a GPU."""
    profile = profile_of(outcome)
    assert profile.settings.rungs == rungs
    assert set(skipped_rungs(profile)) == set(NAMES) - set(rungs), skipped_rungs(profile)
    assert "CPU" in skipped_rungs(profile)["resident"]
    assert skipped_rungs(profile)["cluster"] == ("one node" if ranks > 1 else "one device")
    assert [rank.rank for rank in profile.ranks] == list(range(ranks))
    assert len(step_matrix(profile).rounds) >= 1
    for rung in rungs:
        taking_part = {0} if rung == "solo" else set(range(ranks))
        assert {block.rank for block in blocks_of(profile, rung)} == taking_part, rung
    for block in profile.blocks:
        assert block.seconds > 0
        assert len(block.step_seconds) == block.steps
        assert sum(block.step_seconds) == pytest.approx(block.seconds, rel=0.02)
    breakdown = attribute(profile)
    total = sum(stall.seconds for stall in breakdown.stalls if stall.seconds is not None)
    assert total == pytest.approx(breakdown.step_seconds, rel=1e-6)
    return profile


def read_from_disk(profile):
    """Cold blocks read files that were out of the page cache, warm blocks as many in each step, in it."""
    cold, warm = blocks_of(profile, "cold"), blocks_of(profile, "warm")
    assert all(block.resident is not None and block.resident < 0.1 for block in cold)
    # on average: kernels may reclaim pages of their own accord at any time
    assert np.mean([np.nan if block.resident is None else block.resident for block in warm]) > 0.9
    assert all(block.files and block.file_bytes for block in cold + warm)
    before, after = (
        {(b.round, b.rank): b.files / b.steps for b in blocks} for blocks in (cold, warm)
    )
    common = before.keys() & after.keys()
    assert common
    # but for what a loop over several loaders reads of one before another ends
    assert all(before[key] == pytest.approx(after[key], rel=0.1) for key in common)

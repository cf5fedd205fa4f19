"""Scripts of the zoo whose data or batches are unusual: profiled by the real command."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from profiled import ZOO, RunProfile, blocks_of, measured, skipped


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An array of 32 MB on disk."""
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.random.default_rng(0).standard_normal((8192, 1024), dtype=np.float32))
    return path


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 2])
@pytest.mark.slow
def test_fetch_is_measured_of_a_file_that_two_ranks_map(run_profile: RunProfile, rows: Path, workers: int) -> None:
    # GIVEN a file of which every rank has mapped and read every page before its first step
    outcome = run_profile("--nproc-per-node", 2, "mapped_two_ranks.py", rows, "--workers", workers, folder=ZOO)
    # WHEN it is profiled THEN cold blocks found nothing of it in memory and read it from disk; warm blocks did not
    profile = measured(outcome)
    cold = blocks_of(profile, "cold")
    assert {block.rank for block in cold} == {0, 1}
    assert all(block.resident is not None and block.resident < 0.1 for block in cold)
    read, again = (sum(b.storage_bytes or 0 for b in blocks_of(profile, rung)) for rung in ("cold", "warm"))
    assert read > 2 * again
    # AND the data set is as large as its file, however much of it is read around every row
    assert profile.workload.dataset_bytes == pytest.approx(rows.stat().st_size, rel=0.05)


@pytest.mark.slow
def test_accumulation_that_ramps_up(run_profile: RunProfile) -> None:
    # GIVEN steps of two batches at first, and of three or more from the tenth step on
    profile = measured(run_profile("ramping_accumulation.py", 10, folder=ZOO))
    # THEN samples are those of the measured steps, one by one, and the job's are not those of its first step
    assert all(sum(block.step_samples) == block.samples for block in profile.blocks)
    assert all(samples % 8 == 0 for block in profile.blocks for samples in block.step_samples)
    served = {samples for block in blocks_of(profile, "warm") for samples in block.step_samples}
    assert max(served) > 16
    assert 16 < profile.workload.batch <= 56


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of a small label and a picture of 64 kB, all in memory, since they were just written."""
    folder = tmp_path_factory.mktemp("pairs")
    for number in range(256):
        (folder / f"{number:03d}.txt").write_text(f"{number % 10} is what it shows")
        (folder / f"{number:03d}.bin").write_bytes(os.urandom(65536))
    os.sync()
    return folder


@pytest.mark.slow
def test_small_files_that_are_seen_do_not_prove_the_large_ones_that_are_not(
    run_profile: RunProfile, pairs: Path
) -> None:
    # GIVEN samples whose label Python opens, and whose picture is read by C code, out of memory
    profile = measured(run_profile("read_by_c_code.py", pairs, folder=ZOO))
    # THEN cold blocks are refuted by what the process read, although every label was out of memory
    assert "came from memory" in skipped(profile)["cold"]
    # WHEN Stash is told where the data lie THEN all of it is read from storage
    of_pairs = measured(run_profile("--data-root", pairs, "read_by_c_code.py", pairs, folder=ZOO))
    cold = blocks_of(of_pairs, "cold")
    assert cold
    assert all((block.storage_bytes or 0) >= 65536 * (block.samples or 0) for block in cold)
    assert sum(block.storage_bytes or 0 for block in blocks_of(of_pairs, "warm")) == 0


@pytest.mark.slow
def test_timed_batches_out_of_memory_pay_no_bookkeeping(run_profile: RunProfile, data: Path, tmp_path: Path) -> None:
    # GIVEN batches of 8 small files WHEN only warm blocks are measured
    log = tmp_path / "opens.log"
    profile = measured(run_profile("--rungs", "solo,warm", "counts_opens.py", data, log, folder=ZOO))
    assert skipped(profile)["cold"] == "not asked for (--rungs)"
    # THEN only the data set opened its files, save once when a block began, which is not timed
    twice = log.read_text().splitlines().count("16")
    warm = blocks_of(profile, "warm")
    assert 0 < twice <= len(warm) + len(profile.rates)
    # and what a block's samples are on disk is known all the same
    size = next(data.iterdir()).stat().st_size
    assert all(block.file_bytes == size * (block.samples or 0) for block in warm)

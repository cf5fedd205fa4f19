"""Scripts of the zoo whose data or batches are unusual: profiled by the real command."""

import numpy as np
import pytest
from profiled import ZOO, blocks_of, profile_of


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """An array of 32 MB on disk."""
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.random.default_rng(0).standard_normal((8192, 1024), dtype=np.float32))
    return path


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 2])
@pytest.mark.slow
def test_fetch_is_measured_of_a_file_that_two_ranks_map(run_profile, rows, workers):
    # GIVEN a file of which every rank has mapped and read every page before its first step
    outcome = run_profile(
        "--nproc-per-node", 2, "mapped_two_ranks.py", rows, "--workers", workers, folder=ZOO
    )
    # WHEN it is profiled THEN cold blocks found nothing of it in memory and read it from disk; warm blocks did not
    profile = profile_of(outcome)
    cold = blocks_of(profile, "cold")
    assert {block.rank for block in cold} == {0, 1}
    assert all(block.resident is not None and block.resident < 0.1 for block in cold)
    read, again = (
        sum(b.storage_bytes or 0 for b in blocks_of(profile, rung)) for rung in ("cold", "warm")
    )
    assert read > 2 * again
    # AND the data set is as large as its file, however much of it is read around every row
    assert profile.workload.dataset_bytes == pytest.approx(rows.stat().st_size, rel=0.05)

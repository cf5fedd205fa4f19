"""Disks with a burst that ends, told from noise."""

from __future__ import annotations

import numpy as np
import pytest
from probe_builder import GB, disk, host, links
from readings import found

from stash.analysis.findings.rates import burst, sustained_rate


def test_very_noisy_reads_are_hardly_ever_taken_for_a_burst():
    generator = np.random.default_rng(3)
    trials = [disk(*(GB * factor for factor in generator.lognormal(0, 0.7, 6))) for _ in range(500)]
    assert sum(burst(trial) is not None for trial in trials) <= 5


def test_a_burst_that_ends_is_told_from_noise_and_from_the_page_cache():
    ended = disk(*[1.0 * GB] * 5, *[0.125 * GB] * 7)
    assert burst(ended).seconds == pytest.approx(5 * ended.file_bytes / GB)
    assert sustained_rate(ended).value == pytest.approx(0.125 * GB)
    noisy = [float(GB * factor) for factor in np.random.default_rng(3).lognormal(0, 0.15, 12)]
    assert burst(disk(*noisy)) is None
    relapsed = [1.0, 1.0, 1.0, 0.4, 0.4, 0.4, 0.4, 1.1, 0.4]
    assert burst(disk(*(rate * GB for rate in relapsed))) is None
    assert burst(disk(*[5 * GB] * 5, *[1 * GB] * 5, cold=False)) is None
    assert burst(disk(*[0.1 * GB] * 5, *[1 * GB] * 5)) is None  # faster later is no burst
    (text,) = found(host(measured=links(reads=(ended,))))["disk-burst"]
    assert "reach 1.00 ± <0.01 GB/s for 336 ms, then 125 ± <1 MB/s" in text

"""From repetitions to rates."""

from __future__ import annotations

import pytest
from probe_builder import GB, disk, stream

from stash.analysis.findings.rates import copy_rate, read_rate, stream_rate
from stash.core.records.host import Copy, Timing


def test_a_copys_rate_is_that_of_its_largest_messages():
    small, large = Timing(bytes=1000, seconds=(1.0,)), Timing(bytes=4000, seconds=(2.0, 2.0, 1.0))
    assert copy_rate(Copy(source="host", target="host", timings=(small, large))).value == 2000


def test_a_streams_rate_counts_every_spell_also_the_slow_ones():
    spells = tuple(Timing(bytes=size, seconds=(1.0,)) for size in (100, 10, 90))
    assert stream_rate(stream(0, 1, 1, GB).model_copy(update={"timings": spells})).value == 90


def test_a_disk_that_hands_out_bytes_in_portions_has_the_rate_of_the_whole_run():
    # Bytes come ten times a second: a repetition waits for two portions or for three, and the median for two.
    seconds = [0.2, 0.2, 0.3] * 3
    rates = [0.14e6 / one for one in seconds]
    assert read_rate(disk(*rates)).value == pytest.approx(0.14e6 * len(seconds) / sum(seconds))
    assert read_rate(disk(*rates, cold=False)).value == pytest.approx(0.14e6 / 0.2)  # from memory: the usual one
